"""Imported by the fork server before all else: when its parent is gone, nothing that was started below it goes on.

The server has a session of its own, so that a signal for the parent's whole process group leaves it the time to do
this.
"""

import atexit
import os
import warnings

from conformance.worker.children import adopt_orphans, end_below

_server = os.getpid()


def _end() -> None:
    if os.getpid() == _server:
        end_below(_server, patience=1.0)


os.setsid()
adopt_orphans()
atexit.register(_end)
# multiprocessing waits for each child of the server, and warns of those that it did not start: the orphans
warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")
