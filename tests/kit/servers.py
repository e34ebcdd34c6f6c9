"""The fork server of the test process, from which all its workers are forked."""

import contextlib
import os
import signal
from collections.abc import Iterator

from conformance.process.worker import server

WARM = ("conformance.process.worker.preload",)
"""What workers preload that run cells. Tests whose workers import nothing preload it all the same, so that a run
after them in the same process finds torch imported."""


@contextlib.contextmanager
def own_fork_server() -> Iterator[None]:
    """End the fork server before and after the block, for calls that kill it: it comes back with what they preload,
    and tests after them get one that has imported torch."""
    kill_fork_server()
    try:
        yield
    finally:
        kill_fork_server()


def kill_fork_server() -> None:
    """Kill the fork server of this process, if it has one; the next worker starts another."""
    pid = server.server_pid()
    if pid is not None and not server.lost():
        os.kill(pid, signal.SIGKILL)
