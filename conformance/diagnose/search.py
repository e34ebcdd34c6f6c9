"""Search for the smallest of what fails: which candidates are tried, each once, in the time that there is for it."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from conformance.process.worker import aside

_T = TypeVar("_T")


class OutOfTime(Exception):
    """There is no time left to try more."""


def require_time(deadline: float) -> float:
    """Return the seconds up to a time of ``time.monotonic``; raises OutOfTime where there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise OutOfTime
    return seconds


class Asking(Protocol):
    """A way to ask a question: ``aside.ask``, or ``ask_here``."""

    def __call__(self, question: Callable[[], _T], seconds: float) -> _T: ...


def ask_here(question: Callable[[], _T], seconds: float) -> _T:
    """Return the answer to a question that is asked in this process."""
    return question()


def search_aside(search: Callable[[Asking, float], _T], seconds: float, grace: float = 0.0) -> _T:
    """Return what a search finds until a deadline, all of it in one process of its own, which may take ``grace``
    longer. Most candidates do not take that along; where one does, the search begins again and asks about each in
    another process."""
    deadline = time.monotonic() + seconds
    try:
        return aside.ask(lambda: search(ask_here, deadline), seconds + grace)
    except (aside.Lost, RuntimeError):
        return search(aside.ask, max(deadline, time.monotonic() + seconds / 2))


class Shrinker(Generic[_T]):
    """Tries candidates until a deadline, and keeps the best of those that fail."""

    def __init__(
        self,
        tried: Callable[[_T], bool],
        deadline: float = math.inf,
        *,
        cost: Callable[[_T], float] = lambda _: 0.0,
        key: Callable[[_T], Hashable] | None = None,
        most: float = math.inf,
    ) -> None:
        """``tried`` says whether a candidate fails as it has to. The best is the last of the lowest ``cost``. One
        that was tried is known again by its ``key``, and at ``most`` so many are tried."""
        self._tried, self.deadline, self._cost, self._key, self._most = tried, deadline, cost, key, most
        self._seen: dict[Hashable, bool] = {}
        self.count = 0
        """How many candidates were tried."""
        self.best: _T | None = None

    def fails(self, candidate: _T | None) -> bool:
        """Return whether a candidate fails; None, which is no candidate, does not. Raises OutOfTime."""
        require_time(self.deadline)
        if candidate is None:
            return False
        key = None if self._key is None else self._key(candidate)
        if key in self._seen:
            return self._seen[key]
        if self.count >= self._most:
            raise OutOfTime
        self.count += 1
        failed = self._tried(candidate)
        if key is not None:
            self._seen[key] = failed
        if failed and (self.best is None or self._cost(candidate) <= self._cost(self.best)):
            self.best = candidate
        return failed

    def smallest(self, candidate: _T, *phases: Callable[[_T], Iterable[Step[_T]]]) -> tuple[_T, bool]:
        """Return what is left of a candidate that fails, and whether there was time for all of its phases.

        A phase gives steps for what fails at its beginning. Of the candidates that a step makes of what fails by
        then, the first that fails too takes its place.
        """
        with contextlib.suppress(OutOfTime):
            for phase in phases:
                for step in phase(candidate):
                    candidate = next(filter(self.fails, step(candidate)), None) or candidate
            return candidate, True
        return candidate, False


Step = Callable[[_T], Iterable[_T | None]]
"""Makes candidates of one that fails."""


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
    needed = list(ranked[:count])
    for item in reversed(ranked[:count]):
        fewer = [other for other in needed if other != item]
        if fewer and enough(fewer):
            needed = fewer
    return needed


def part(items: Sequence[_T], holds: Callable[[Sequence[_T]], bool]) -> list[_T] | None:
    """Return a part of ``items``, in their order, for which ``holds``, and for which it does not hold without any one
    of its items; None where it does not hold for all of them. Each part is asked about once.

    By delta debugging: halves first, so that one item among n is met after about log n questions (A. Zeller and
    R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Transactions on Software Engineering 28(2),
    2002).
    """
    asked = Shrinker[Sequence[int]](lambda numbers: holds([items[number] for number in numbers]), key=tuple).fails
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
