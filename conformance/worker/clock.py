"""The time that a worker process has had, by which its limit is measured."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

_BRIEF = 0.1  # seconds in which most calls are over
_STRETCH = 10  # times its limit that a worker gets at most, however busy the processors are


class Clock:
    """The time that a process has had: without what it waited for a processor that others used.

    A limit in plain time would fail a sound cell on a busy host. The kernel counts, for each thread, how long it was
    ready and not running (the second number of ``schedstat``, in nanoseconds).
    """

    def __init__(self, pid: int, *, tasks: Path | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """``tasks`` has a folder for each thread with its ``schedstat``, where that is not below ``/proc``; ``now``
        gives the seconds that have passed."""
        self._tasks, self._now = tasks or Path(f"/proc/{pid}/task"), now
        self._start = now()
        self._before: dict[str, float] | None = None

    def seconds(self) -> float:
        passed = self._now() - self._start
        if passed < _BRIEF:  # no need yet to look at the kernel's counts
            return passed
        waits = self._waits()
        if self._before is None:
            self._before = waits
        # The longest wait, not the sum: of threads that wait at the same time each may be what the others wait for.
        waited = max((wait - self._before.get(thread, 0.0) for thread, wait in waits.items()), default=0.0)
        return max(passed - waited, passed / _STRETCH)

    def _waits(self) -> dict[str, float]:
        """By thread, the seconds in which it was ready and not running."""
        waits = {}
        with contextlib.suppress(OSError):  # the process is gone, or this is not Linux
            for task in self._tasks.iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):  # that thread is gone
                    waits[task.name] = int((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
        return waits
