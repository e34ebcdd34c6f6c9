"""Learn how far rounding usually moves the outputs of a cell, from the draws for which it was measured.

Two other roundings may show too little of single values, and all take forty runs in float64. Of a deep network nearly
every draw needs them: its values near zero are further off than their tolerance, by as much as all others. Of
hundreds of values two roundings do show what is usual, of later draws too, and a runtime that is off by no more is
right; any other draw is measured itself. (Of seven regimes of values of a convolutional network and six of a graph of
5,000 nodes, what is usual differs by a factor of 2.6 and 3.2.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.compare.excuses import largest_of
from conformance.process.arrays import Array

SHARE = 0.25
"""The share of an output's values that move less than what is taken to be usual: where values differ much in that, it
is what those move by that hardly move. (Of normally distributed moves it is a third of their deviation.)"""
VALUES, DRAWS = 100, 3
"""Measured values of an output from which on it shows; and measured draws from which on fewer suffice."""


class UsualMoves:
    """The usual moves of the values of each output, relative to the largest of them."""

    def __init__(self) -> None:
        self._shares: list[list[float]] = []
        """Of each measured draw, of each output."""
        self._values = 0
        """The number that the smallest output has had in all."""

    def learn(self, exact: Sequence[Array], moved: Sequence[Array]) -> None:
        """Take note of how far each value of the ``exact`` outputs of a draw has ``moved``."""
        if all(largest_of(one) for one in exact if one.dtype.kind == "f"):  # zeros are exact, and show nothing
            self._shares.append([*map(_usual, exact, moved)])
            self._values += min((one.size for one in exact), default=0)

    def of(self, exact: Sequence[Array]) -> list[Array] | None:
        """Return how far each value of these outputs is taken to move, by the measured draw whose values moved least;
        None where they show too little."""
        if len(self._shares) < DRAWS and self._values < VALUES:
            return None
        if any(len(shares) != len(exact) for shares in self._shares):
            return None
        least = np.min(self._shares, axis=0)
        return [np.full(one.shape, share * largest_of(one)) for one, share in zip(exact, least, strict=True)]


def _usual(exact: Array, moved: Array) -> float:
    """Return by what part of its largest value all but ``SHARE`` of an output move; 0 where a value is open, where
    rows are others, and of whole numbers, so that nothing of it is taken to be usual."""
    if exact.dtype.kind != "f" or moved.shape != exact.shape or not np.isfinite(moved).all():
        return 0.0
    return float(np.quantile(moved, SHARE)) / largest_of(exact)
