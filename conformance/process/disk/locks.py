"""Locks on files, which end with the process that holds them, however it ends.

They are ``flock``'s, which Linux carries to an NFS server too. Where a file system has none, nothing is locked and
nobody is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def lock(handle: int) -> bool | None:
    """Lock an open file at once. False where another process has it, None where it cannot be locked at all."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


class InUse:
    """A folder's ``.lock``, through which processes tell one another that they use what lies in it."""

    def __init__(self, folder: Path) -> None:
        """Raise nothing: a folder that cannot be written has no lock, or one that another process made."""
        self._handle = -1
        with contextlib.suppress(OSError):
            self._handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if self._handle < 0:
            with contextlib.suppress(OSError):
                self._handle = os.open(folder / ".lock", os.O_RDONLY | os.O_CLOEXEC)

    def share(self) -> None:
        """From now on this process uses the folder; waits at most for as long as another one tidies it."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self._handle, fcntl.LOCK_SH)

    def alone(self) -> bool:
        """Return whether no other process uses the folder.

        Until ``close`` none will then begin to.
        """
        return self._handle >= 0 and lock(self._handle) is True

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


@contextlib.contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Inside the block no other process is inside a block of the same file, which is made and stays."""
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
