"""Ways to choose among what may be tried, and the time that there is for it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


class OutOfTime(Exception):
    """There is no time left to try more."""


def require_time(deadline: float) -> float:
    """Return the seconds up to a time of ``time.monotonic``; raises OutOfTime where there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise OutOfTime
    return seconds


def least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number for which it holds, if it holds from there on to ``high``, which is not asked about."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def grow(ranked: Sequence[_T], enough: Callable[[Sequence[_T]], bool]) -> list[_T]:
    """Return as many of the first items as are enough, doubling, without those that can be taken out one by one, the
    last first; empty where all of them are not enough."""
    count = 1
    while not enough(ranked[:count]):
        if count >= len(ranked):
            return []
        count *= 2
    found = list(ranked[:count])
    for item in reversed(ranked[:count]):
        fewer = [other for other in found if other != item]
        if fewer and enough(fewer):
            found = fewer
    return found


def part(items: Sequence[_T], holds: Callable[[Sequence[_T]], bool]) -> list[_T] | None:
    """Return a part of ``items``, in their order, for which ``holds``, and for which it does not hold without any one
    of its items; None where it does not hold for all of them. Each part is asked about once.

    By delta debugging: halves first, so that one item among n is met after about log n questions (A. Zeller and
    R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Transactions on Software Engineering 28(2),
    2002).
    """
    known: dict[tuple[int, ...], bool] = {}

    def asked(numbers: Sequence[int]) -> bool:
        key = tuple(numbers)
        if key not in known:
            known[key] = holds([items[number] for number in key])
        return known[key]

    left = list(range(len(items)))
    if not asked(left):
        return None
    parts = 2
    while len(left) >= 2:
        cuts = [round(len(left) * cut / parts) for cut in range(parts + 1)]
        windows = list(itertools.pairwise(cuts))
        smaller = next((left[a:b] for a, b in windows if asked(left[a:b])), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        smaller = next((left[:a] + left[b:] for a, b in windows if parts > 2 and asked(left[:a] + left[b:])), None)
        if smaller is not None:
            left, parts = smaller, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(2 * parts, len(left))
    return [items[number] for number in left]
