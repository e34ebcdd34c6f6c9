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

from conformance.process.errors import UserError

PREFIX = "conformance-run-"
_LOCK = "lock"
_ROOM = len("/xxxxxxxx/pymp-xxxxxxxx/listener-xxxxxxxx")
_LONGEST = 107
"""Bytes of the path of a socket, as multiprocessing makes one below a temporary folder."""
_SHORT = ("/tmp", "/var/tmp", "/dev/shm")
"""Folders that are tried for sockets where that of temporary files has too long a path."""


class _Run:
    """The folder of this process, and the one of its sockets, where that is another."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.folder = _locked_folder(None)
        too_long = len(os.fsencode(self.folder)) + _ROOM > _LONGEST
        self.sockets = _folder_for_sockets() if too_long else self.folder
        before, tempfile.tempdir = tempfile.tempdir, str(self.sockets)
        try:
            multiprocessing.util.get_temp_dir()  # where multiprocessing has its sockets from now on
        finally:
            tempfile.tempdir = before


def _locked_folder(below: str | None) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=below))
    unlocked = folder / f"{_LOCK}.new"
    fcntl.flock(os.open(unlocked, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)  # open until this process ends
    unlocked.rename(folder / _LOCK)  # so that nobody sees a lock that is not held
    return folder


def _folder_for_sockets() -> Path:
    for place in _SHORT:
        remove_leftovers(Path(place))
        with contextlib.suppress(OSError):
            return _locked_folder(place)
    text = f"the path of the folder for temporary files, {tempfile.gettempdir()}, is too long for sockets below it, "
    raise UserError(f"{text}and none of {', '.join(_SHORT)} can be written: set TMPDIR to a folder with a short path")


_run: _Run | None = None
_given: str | None = None


def begin() -> Path:
    """Make the folder of this process, where it has none, and remove those of killed runs. Raises OSError, and
    UserError where no path is short enough for sockets."""
    global _run
    if _run is None or _run.pid != os.getpid():
        remove_leftovers()
        _run = _Run()
        # at the end, after multiprocessing has removed its own below, at priority -100
        for folder in {_run.folder, _run.sockets}:
            multiprocessing.util.Finalize(None, remove, (folder,), exitpriority=-200)
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
