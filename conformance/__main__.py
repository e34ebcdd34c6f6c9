"""``python -m conformance``: the command, also where the package has only been copied."""

import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  # a checkout, which no installer has refused
    sys.exit("conformance needs Python 3.11 or later (replay: 3.10), and this is Python " + sys.version.split()[0])

import conformance

if str(Path(__file__).parent) not in map(str, conformance.__path__):
    hiding = "a folder 'conformance' hides this package from python -m conformance"
    sys.exit(f"{hiding}: type conformance instead, or start it in another folder")

from conformance.process.worker.reserved import unhide

unhide()  # before anything is imported that a file of the working directory may hide

from conformance.front.cli import main  # noqa: E402

sys.exit(main())
