"""Notice what a cell leaves running or open. It cannot be put back."""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

_ENDING = 0.05  # seconds that a thread gets to end which is about to
_NAMED = 3  # threads, those that were started last
_OF_LIBRARIES = {"tqdm_monitor"}  # started with the first progress bar of whatever library, and shared by all of them
_MANY = 100  # files that a cell may leave open; libraries keep a few


class Held(NamedTuple):
    """The threads of Python, but for those of ``_OF_LIBRARIES``, and the lowest number that a new file would get."""

    threads: int
    free: int


def held() -> Held:
    return Held(_threads(), _lowest_free())


def _threads() -> int:
    """All threads count, also those that ``threading`` does not know."""
    return _thread._count() - sum(thread.name in _OF_LIBRARIES for thread in threading.enumerate())


def left_since(before: Held) -> dict[str, str]:
    """Return what is held now and was not before, by kind, in a few words."""
    now = held()
    if now == before:
        return {}
    left = {}
    if now.threads > before.threads and _still_more(before.threads):
        own = {threading.main_thread().name, *_OF_LIBRARIES}
        names = [thread.name for thread in threading.enumerate() if thread.name not in own]
        left["threads"] = ", ".join(names[-_NAMED:]) or "without a name"
    if now.free > before.free + _MANY:
        left["open files"] = f"about {now.free - before.free}"
    return left


def _still_more(threads: int) -> bool:
    deadline = time.monotonic() + _ENDING
    while _threads() > threads:
        if time.monotonic() > deadline:
            return True
        time.sleep(_ENDING / 50)
    return False


def _lowest_free() -> int:
    with contextlib.suppress(OSError):  # no number is left, or stdin was closed
        number = os.dup(0)
        os.close(number)
        return number
    return 0 if _can_open() else 1 << 20


def _can_open() -> bool:
    with contextlib.suppress(OSError), Path(os.devnull).open("rb"):
        return True
    return False
