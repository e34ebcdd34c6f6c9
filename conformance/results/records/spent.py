"""Seconds of a cell, each counted in one of its parts."""

from __future__ import annotations

from time import perf_counter  # not by its module, in which a call notes who asks for the time
from typing import Protocol

START = "start"
"""The part in which a process is started for a cell; other cells may need none."""


class Timed(Protocol):
    """A record, or a part of one."""

    @property
    def seconds(self) -> dict[str, float]: ...


def own_seconds(record: Timed) -> float:
    """Return the seconds of a cell, without those in which its process was started."""
    return sum(float(seconds) for name, seconds in record.seconds.items() if name != START)


class Spending:
    """Count the time inside a block as ``what`` in ``seconds``, but for what is counted there meanwhile.

    A class, since several of these are around each example, and a generator costs twice as much.
    """

    def __init__(self, seconds: dict[str, float], what: str) -> None:
        self._seconds, self._what = seconds, what

    def __enter__(self) -> None:
        self._counted, self._start = sum(self._seconds.values()), perf_counter()

    def __exit__(self, *_: object) -> None:
        inside = sum(self._seconds.values()) - self._counted
        spent = max(perf_counter() - self._start - inside, 0.0)
        self._seconds[self._what] = self._seconds.get(self._what, 0.0) + spent
