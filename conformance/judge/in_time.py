"""The draws of a cell for as long as its time lasts: all where they cost little, else the most telling ones first."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from conformance.case.draw.example import Draw

SECONDS = 5.0
"""Seconds of CPU for the examples of a cell, unless ``--budget`` says otherwise. An MLP of 1 GB then has four
examples on a busy host, and its check takes twice as long as Polygraphy (AMD EPYC, 2 cores)."""

SEVERAL = 2
"""Draws after which it is known what one costs: the first also pays for what is made once. Fewer show nothing: that a
comparison can fail is seen by the outputs of another draw."""


LITTLE = 0.25
"""The share of a cell's seconds that more draws than it has to run may take."""


class InTime:
    """The draws of a cell in their order. Once several were run, and the cheapest of them as often as draws are left
    would take longer than the budget, what is left comes in the order of what it tells, and ends with the budget.

    A process counts its own CPU, so that a busy host decides on nothing.
    """

    def __init__(
        self, draws: Sequence[Draw], budget: float | None, clock: Callable[[], float] = time.process_time,
        more: Sequence[Draw] = (),
    ) -> None:  # fmt: skip
        """``budget`` in seconds; None is ``SECONDS``, which the ends of the dims may exceed. ``more`` draws follow
        where all of them take little of it."""
        self._clock, self._more = clock, more
        self.seconds = SECONDS if budget is None else budget
        self._strict = budget is not None
        self._given: list[Draw] = []
        self.left: list[Draw] = [*draws]
        """Those that were not given out."""
        self._lacking = _ends(draws, draws)
        """The ends of dims at which none was that was given out."""

    def __iter__(self) -> Iterator[Draw]:
        start = before = self._clock()
        cheapest, hurried = math.inf, False
        while self.left:
            remaining = self.seconds - (before - start)
            enough = self._given if self._strict else len(self._given) >= SEVERAL and not self.lacks_ends()
            if enough and remaining <= 0:
                return
            if not hurried and len(self._given) >= SEVERAL and cheapest * len(self.left) > remaining:
                hurried = True
                self.left = by_telling(self.left, self._given)
            draw = self.left.pop(0)
            self._given.append(draw)
            self._lacking.difference_update(draw.dims.items())
            yield draw
            now = self._clock()
            before, cheapest = now, min(cheapest, now - before)
        if len(self._more) * (before - start) <= LITTLE * min(self.seconds, SECONDS) * len(self._given):
            yield from self._more

    def lacks_ends(self) -> bool:
        """Return whether a dim was not at its smallest and largest sizes yet, without which nothing is verified."""
        return bool(self._lacking)


def by_telling(left: Sequence[Draw], given: Sequence[Draw]) -> list[Draw]:
    """Return the draws that are left in the order of what they tell that those ``given`` did not: each dim at its
    smallest and largest size, then each regime and each other size, then the others as they were. Of equal ones the
    smallest goes first.
    """
    everything = [*given, *left]
    rest, chosen = [*left], list[Draw]()
    for telling in (lambda draws: _ends(draws, everything), _regimes_and_sizes):
        wanted = telling(rest) - telling([*given, *chosen])
        while wanted:
            best = max(rest, key=lambda draw: (len(telling([draw]) & wanted), -sum(draw.dims.values())))
            rest.remove(best)
            chosen.append(best)
            wanted -= telling([best])
    return [*chosen, *rest]


def _regimes_and_sizes(draws: Sequence[Draw]) -> set[tuple[str, int]]:
    return {(draw.regime, 0) for draw in draws} | {size for draw in draws for size in draw.dims.items()}


def _ends(draws: Sequence[Draw], of: Sequence[Draw]) -> set[tuple[str, int]]:
    """Return the dims that are at their smallest or largest size of all draws ``of`` in some of ``draws``, each with
    that size."""
    sizes: dict[str, set[int]] = {}
    for draw in of:
        for name, size in draw.dims.items():
            sizes.setdefault(name, set()).add(size)
    ends = {name: (min(of_dim), max(of_dim)) for name, of_dim in sizes.items()}
    return {(name, size) for draw in draws for name, size in draw.dims.items() if size in ends[name]}
