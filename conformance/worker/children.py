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

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_SECONDS = 1.0  # until a process that was killed counts as stuck, in a driver perhaps
_GRACE = 0.5  # seconds in which multiprocessing's resource tracker may remove what was left in /dev/shm


def adopt_orphans() -> None:
    """From now on, a process below this one whose parent is gone becomes a child of this one."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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


def end_below(pid: int, spared: Collection[int] = (), seconds: float = _SECONDS) -> list[str]:
    """Ends what ``below`` tells, and what that starts in the meantime; the names of what was still running.

    multiprocessing's resource trackers end by themselves when the others are gone; they are not among the names.
    """
    names: dict[int, str] = {}
    start = monotonic()
    while running := {child: name for child in below(pid, spared) if (name := _running(child)) is not None}:
        passed = monotonic() - start
        for child, name in running.items():
            tracker = _is_tracker(child)
            if not tracker:
                names[child] = name
            if not tracker or passed > _GRACE:
                with contextlib.suppress(ProcessLookupError):
                    kill(child, SIGKILL)
        if passed > seconds:
            break
        sleep(0.001)
    return list(names.values())


def end_all() -> tuple[bool, list[str]]:
    """Ends all processes below this one; whether there were any that still ran, and their names.

    A few microseconds where there are none.
    """
    if not _reap():
        return False, []
    stopped = _let_tracker_go()
    names = end_below(getpid())
    _reap()
    return stopped or bool(names), names


def _reap() -> bool:
    """Waits for all children that have ended; whether there are others."""
    try:
        while waitpid(-1, WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _let_tracker_go() -> bool:
    """Closes the pipe to the resource tracker of this process, if it started one: a sign for it to end."""
    tracker: Any = resource_tracker._resource_tracker
    if getattr(tracker, "_pid", None) is None or tracker._fd is None:
        return False
    with contextlib.suppress(OSError):
        close(tracker._fd)
    tracker._fd = tracker._pid = None
    return True


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
