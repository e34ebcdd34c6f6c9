"""``python -m conformance``: the command, also where the package has only been copied."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  # a checkout, which no installer has refused
    sys.exit("conformance needs Python 3.11 or later (replay: 3.10), and this is Python " + sys.version.split()[0])

from conformance.cli import main

sys.exit(main())
