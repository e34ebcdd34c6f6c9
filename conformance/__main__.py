"""``python -m conformance``: the command, also where the package has only been copied."""

import sys

from conformance.cli import main

sys.exit(main())
