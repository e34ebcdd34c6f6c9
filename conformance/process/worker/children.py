"""The processes below a process, also those with a session of their own, and their end.

Linux gives a process whose parent is gone to the next process above it that has asked for orphans. A worker and the
fork server both ask, so that all that a call starts stays below them, and is found there.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Collection
from multiprocessing import resource_tracker

# bound here, since the code of a case may patch the modules that they come from
from os import O_CLOEXEC, O_RDONLY, WNOHANG, close, getpid, kill, listdir, read, waitpid
from os import open as open_fd
from signal import SIGKILL
from time import monotonic, sleep
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_STUCK = 1.0  # seconds after which a process that was killed counts as stuck, in a driver perhaps
_PATIENCE = 5.0  # seconds for a resource tracker, of which most is the start of its Python on a busy host


def adopt_orphans() -> None:
    """From now on, a process below this one whose parent is gone becomes a child of this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signalled_with_parent(number: int) -> None:
    """From now on, the kernel sends this process that signal when the thread ends that started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def below(pid: int, spared: Collection[int] = ()) -> list[int]:
    """All processes below that one, without the ``spared`` and what is below those; also ended ones that nobody has
    waited for."""
    found: list[int] = []
    todo = [pid]
    while todo:
        for child in _children(todo.pop()):
            if child not in spared and child not in found:
                found.append(child)
                todo.append(child)
    return found


def end_below(
    pid: int, spared: Collection[int] = (), patience: float | None = _PATIENCE, own_tracker: int | None = None
) -> list[str]:
    """End what ``below`` tells, and what that starts in the meantime; the names of what was still running.

    multiprocessing's resource trackers remove what was left in /dev/shm, and end, when all others are gone; they are
    not among the names. They get ``patience`` seconds for it; with None they are left alone.
    """
    names: dict[int, str] = {}
    trackers = {own_tracker}
    start = monotonic()
    before: list[int] | None = None
    while True:
        found = below(pid, spared)
        running = {child: name for child in found if (name := _running(child)) is not None}
        # While they are listed, the parent of some may die, and they move to where was looked before.
        if not running and found == before:
            break
        before = found
        passed = monotonic() - start
        for child, name in running.items():
            if child not in names and _is_tracker(child):  # to be asked once: its command line goes before it does
                trackers.add(child)
            if child not in trackers:
                names[child] = name
            if child not in trackers or (patience is not None and passed > patience):
                with contextlib.suppress(OSError):  # it is gone, or of another user
                    kill(child, SIGKILL)
        if running and running.keys() <= trackers and patience is None:
            break
        if passed > _STUCK + (patience or 0 if running.keys() & trackers else 0):
            break
        if running:
            sleep(0.001)
    return list(names.values())


def end_all() -> tuple[bool, list[str]]:
    """End all processes below this one; whether there were any that still ran, and their names.

    A few microseconds where there are none.
    """
    if not _reap():
        return False, []
    tracker = _let_tracker_go()
    names = end_below(getpid(), own_tracker=tracker)
    _reap()
    return tracker is not None or bool(names), names


def _reap() -> bool:
    """Wait for all children that have ended; whether there are others."""
    try:
        while waitpid(-1, WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _let_tracker_go() -> int | None:
    """Close the pipe to the resource tracker of this process, a sign for it to end; its id, if it was started."""
    tracker: Any = resource_tracker._resource_tracker
    pid: int | None = getattr(tracker, "_pid", None)
    if pid is not None and tracker._fd is not None:
        with contextlib.suppress(OSError):
            close(tracker._fd)
        tracker._fd = tracker._pid = None
    return pid


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process is gone
        for task in listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError):  # that thread is gone
                found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _running(pid: int) -> str | None:
    """The name of a process; None where it has ended."""
    try:
        name, _, rest = _read(f"/proc/{pid}/stat").partition(b"(")[2].rpartition(b")")
    except OSError:
        return None
    return None if rest.split()[0] in (b"Z", b"X") else name.decode(errors="replace")


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in _read(f"/proc/{pid}/cmdline")
    except OSError:
        return False


def _read(path: str) -> bytes:
    file = open_fd(path, O_RDONLY | O_CLOEXEC)
    try:
        parts = []
        while part := read(file, 2**16):
            parts.append(part)
        return b"".join(parts)
    finally:
        close(file)
