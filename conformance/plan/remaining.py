"""Estimate how much of a run is left: cells, cells a second, and time."""

from __future__ import annotations

from collections.abc import Mapping

_SURE = 10.0
"""Seconds of a run after which its own pace counts as much as that of the run before."""

_TELLING = 0.02
"""The part of the work after which the pace of a run tells something, where there is no run before."""


class Remaining:
    """Estimate what is left of a run whose cells end one after the other."""

    def __init__(self, expected: Mapping[str, float], workers: int, *, measured: bool) -> None:
        """``expected`` are seconds by cell; ``measured`` says that an earlier run took them, and not that only their
        ratios are meant."""
        self._left = dict(expected)
        self.cells, self.all_seconds = len(expected), sum(expected.values())
        self._done = 0.0
        self.workers, self._measured = min(workers, max(len(expected), 1)), measured

    def end(self, cell: str) -> None:
        """A cell has ended; what is not known, or has ended before, counts for nothing."""
        self._done += self._left.pop(cell, 0.0)

    def seconds(self, elapsed: float) -> float | None:
        """About how long the rest takes, None while that cannot be told. ``elapsed`` is the time since the first cell
        began.

        The expected seconds of what is left, divided by the workers, times how much longer than expected the cells
        so far took.
        """
        left, done = (max(self.all_seconds - self._done, 0.0) / self.workers, self._done / self.workers)
        if self._measured:
            return left * (elapsed + _SURE) / (done + _SURE)
        return left * elapsed / done if self._done >= _TELLING * self.all_seconds and done > 0 else None

    def line(self, elapsed: float) -> str:
        """``1,234 of 5,210 cells, 17 a second, 3 to 6 min left``"""
        ended = self.cells - len(self._left)
        seconds = self.seconds(elapsed)
        parts = [f"{ended:,} of {self.cells:,} cells"]
        if ended and elapsed > 0:
            parts.append(f"{_rate(ended / elapsed)} a second")
        if seconds is not None and self._left:
            unsure = 1 + _UNSURE * max(1 - self._done / self.all_seconds, 0.0) if self.all_seconds else 1.0
            parts.append(f"{_range(seconds / unsure, seconds * unsure)} left")
        return ", ".join(parts)


_UNSURE = 0.6
"""The part by which an estimate of all of a run may be off; that of the rest is the surer the less is left."""
_FROM, _TO = 0.8, 1.6
"""Least and most of what a run takes on other hosts, relative to the seconds that were measured on one."""


def describe_expected(seconds: float, workers: int, *, here: bool) -> str:
    """Say how long a run takes: ``about 8 min``; ``about 6 to 12 min`` of what was not measured ``here``."""
    alone = seconds / workers
    if here:
        return f"about {_duration(alone)}"
    return f"about {_range(_FROM * alone, _TO * alone)}"


def _range(low: float, high: float) -> str:
    """``4 to 7 min``, ``40 s to 2 min``, or one of them where both are shown alike."""
    least, unit = _duration(low).split(" ")
    most, last_unit = _duration(high).split(" ")
    if (least, unit) == (most, last_unit):
        return f"{least} {unit}"
    return f"{least} to {most} {unit}" if unit == last_unit else f"{least} {unit} to {most} {last_unit}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _duration(seconds: float) -> str:
    """In the unit that one would say it in, no more exactly than it is known."""
    if seconds < 55:
        return f"{max(5 * round(seconds / 5), 5)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60):.0f} min"
    return f"{seconds / 3600:.1f} h"
