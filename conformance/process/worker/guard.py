"""Imported by the fork server before all else: when its parent is gone, nothing that was started below it goes on.

The server has a session of its own, so that a signal for the parent's whole process group leaves it the time to do
this.
"""

import atexit
import os
import signal
import warnings

from conformance.process.worker import uses
from conformance.process.worker.children import adopt_orphans, end_below, signalled_with_parent

_server, _parent = os.getpid(), os.getppid()


def _end() -> None:
    if os.getpid() == _server:
        end_below(_server, patience=1.0)


def _parent_ended(*_: object) -> None:
    if os.getpid() == _server and os.getppid() != _parent:
        _end()
        os._exit(0)


def end_in_order() -> None:
    """Called once the imports are done; until then there is nothing below the server, and nothing that Python could
    do about the end of its parent: an import of PyTorch runs no signal handler for seconds."""
    signalled_with_parent(signal.SIGCONT)
    _parent_ended()  # it may have ended between the imports and that


if os.environ.get("PYTHONSAFEPATH") == "conformance":  # given for the start of this server alone, by ``server``
    del os.environ["PYTHONSAFEPATH"]
uses.begin()  # what the server imports belongs to what each case uses
os.setsid()
adopt_orphans()
# A server that a call has stopped goes on when its parent ends, so as to notice that.
signal.signal(signal.SIGCONT, _parent_ended)
signalled_with_parent(signal.SIGKILL)
atexit.register(_end)
# multiprocessing waits for each child of the server, and warns of those that it did not start: the orphans
warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
