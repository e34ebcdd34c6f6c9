"""The folder for all temporary files of a run, which a killed worker or a killed run leaves to others to remove.

This process holds a lock on its folder while it lives, so that another run can tell the folder of one that was
killed. Each worker has a folder of its own below, and makes its temporary files there.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing.util
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "conformance-run-"
_LOCK = "lock"
_ROOM = len("/xxxxxxxx/pymp-xxxxxxxx/listener-xxxxxxxx")
_LONGEST = 107
"""Bytes of the path of a socket, as multiprocessing makes one below a temporary folder."""


class _Run:
    """The folder of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        if len(os.fsencode(self.folder)) + _ROOM > _LONGEST:
            self.folder.rmdir()
            raise OSError("the path of the temporary folder is too long for sockets below it")
        unlocked = self.folder / f"{_LOCK}.new"
        self._descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unlocked.rename(self.folder / _LOCK)  # so that nobody sees a lock that is not held
        before, tempfile.tempdir = tempfile.tempdir, str(self.folder)
        try:
            multiprocessing.util.get_temp_dir()  # where multiprocessing has its sockets from now on
        finally:
            tempfile.tempdir = before


_run: _Run | None = None
_given: str | None = None


def begin() -> Path:
    """Make the folder of this process, where it has none, and remove those of killed runs. Raises OSError."""
    global _run
    if _run is None or _run.pid != os.getpid():
        remove_leftovers()
        _run = _Run()
        # at the end, after multiprocessing has removed its own below, at priority -100
        multiprocessing.util.Finalize(None, remove, (_run.folder,), exitpriority=-200)
    _run.folder.mkdir(exist_ok=True)  # somebody may have emptied the disk in the meantime
    return _run.folder


def new() -> Path:
    """Make a folder for the temporary files of one worker. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix="", dir=begin()))


def remove(folder: Path) -> None:
    """Remove the folder of this process or of a worker, once what uses it has ended."""
    shutil.rmtree(folder, ignore_errors=True)


def use(_: object, folder: str) -> None:
    """Have this process, a worker, make its temporary files in ``folder``. Its variables stay, which results may
    depend on."""
    global _given
    tempfile.tempdir = _given = folder


def given() -> str | None:
    """Return the folder that this process was given for its temporary files; None where it was given none."""
    return _given


def remove_leftovers(below: Path | None = None) -> None:
    """Remove the folders of runs that no longer live, below ``below`` (default: where temporary files lie)."""
    for lock in Path(tempfile.gettempdir() if below is None else below).glob(f"{PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # another user's, or removed by another run
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
