"""Excuse values for which float32 itself is off: each by itself, so that one excuses no other."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from conformance.process.arrays import Array

SLACK = 4.0
"""How many times eager float32's own distance from float64 a runtime may be off.

Measured over the catalogue (``docs/evidence/comparison.md``): sound runtimes stay below 1.3 times, real faults
start at 80 times.
"""

ROUNDING_UNITS = 16.0
ROUNDING = ROUNDING_UNITS * float(np.finfo(np.float32).eps)
"""Own error, relative to the output's largest value, up to which a float32 computation is well conditioned.

A convolution or a matrix product that is summed in another order is off by about one eps of its largest
value, also where a value happens to be near zero (``docs/evidence/comparison.md``).
"""

ROUGH = 1e-3
"""Own error, relative to a typical value, up to which the inside of an operator may be what no rounding around it
explains. Larger ones are jumps of single values, which say nothing of the others."""

UNMOVED: Array = np.zeros(())
"""The ``conditioning`` of an output of which it is not known how far rounding moves it."""


def slacks(wanted: Array, oracle: Array | None, moved: Array) -> Array:
    """Return how far each value may be off, since float32 itself is off.

    That is ``SLACK`` times the larger of PyTorch's own error there and ``moved``, how far rounding moves the value.

    An own error says much of one value and little of those that are computed alike: it may be zero by luck. What
    rounding explains nowhere, as the inside of an operator may be rougher, counts for all values of the output. Where
    it is not known how far rounding moves each value, the largest own error does.
    """
    own = np.zeros(wanted.shape) if oracle is None else _own_errors(wanted, oracle)
    if moved.shape != wanted.shape:  # float64 may have other rows than float32
        largest = max(float(own.max(initial=0.0)), float(moved.max(initial=0.0)))
        return np.full(wanted.shape, SLACK * largest)
    sizes = np.abs(wanted[np.isfinite(wanted) & (wanted != 0)])
    typical = float(np.quantile(sizes, 0.25)) if sizes.size else 0.0
    unexplained = (own > SLACK * moved) & (own <= ROUGH * typical)
    rough = float(own.max(initial=0.0, where=unexplained))
    slack: Array = SLACK * np.maximum(np.maximum(own, moved), rough)
    return slack


def by_other_sums(needed: Array, slack: Array, size: Array) -> Array:
    """Return where an excuse that is ``needed`` is one for another order of the same sums.

    It is within ``ROUNDING`` of the terms, which are as large as the output's largest values. A value of which
    one unit in the last place is more than what is excused elsewhere is no term there, such as what a mask puts
    beside it.
    """
    found = np.zeros(needed.shape, dtype=bool)
    sizes = np.sort(size, axis=None)
    places = np.searchsorted(sizes, slack[needed] / _unit(np.dtype(np.float32)), side="right") - 1
    terms = np.where(places >= 0, sizes[np.maximum(places, 0)], 0.0)
    found[needed] = slack[needed] <= SLACK * ROUNDING * terms
    return found


def is_ordinary(errors: Array, size: Array) -> bool:
    """Return whether errors are so small that it need not be asked which values float32 has trouble with: an output
    whose values are as large as most of these are may be as far off by another order of the same sums."""
    return float(errors.max(initial=0.0)) <= SLACK * ROUNDING * float(np.quantile(size, 0.25))


def is_even(errors: Array, wanted: Array, oracle: Array | None) -> bool:
    """Return whether float32's own errors are those of normal distributions, as where each value adds up many
    roundings, and the ``errors`` of a runtime, 0 where none is in question, are hardly larger: then no value moves by
    much less than others do, and it need not be asked how far each does. (Of 44 examples of ResNet-18 the largest own
    error is 3.2 to 4.5 standard deviations, and 3 to 5 % are below a twentieth of one, where a normal distribution
    has 3.0 to 4.3, and 4 %.)

    The channels of an output, or its positions, have a distribution each: they are as large as their weights are.
    """
    if oracle is None or wanted.size < ENOUGH or wanted.shape != oracle.shape:
        return False
    own = _own_errors(wanted, oracle)
    channels = wanted.ndim > 2 and own.size >= ENOUGH * wanted.shape[1]
    axes = tuple(axis for axis in range(wanted.ndim) if axis != 1 or not channels)
    deviation, largest = np.sqrt(np.mean(np.square(own), axes, keepdims=True)), own.max(axes, keepdims=True)
    near = float(np.mean(own < NEAR_ZERO * deviation))
    chance = math.sqrt(NEAR_ZERO_SHARE * (1 - NEAR_ZERO_SHARE) / own.size)
    normal = near <= max(NEAR_ZERO_SHARE + 3 * chance, NEAR_ZERO_MOST) and bool((largest <= FAR * deviation).all())
    return normal and bool((errors <= TWICE * largest).all())


ENOUGH, TWICE, FAR = 200, 2.0, 6.0
"""Values from which their distribution shows; times the largest own error that a runtime's may be, which is the
difference of two such errors; deviations that no value of billions is off by chance."""
NEAR_ZERO, NEAR_ZERO_SHARE, NEAR_ZERO_MOST = 0.05, 0.04, 0.05
"""Of a normal distribution 4 % are within a twentieth of its deviation: more where some values are exact, or move
less than others. One in a hundred may, as the padding around an image moves what is at its edge otherwise."""


def by_rounding(error: float, largest: float, wanted: Array, oracle: Array | None) -> float:
    """An error relative to what rounding explains: ``ROUNDING_UNITS`` in the last place of the output's ``largest``
    finite value or ``SLACK`` times eager's own distance from float64."""
    explained = ROUNDING_UNITS * _unit(wanted.dtype) * largest
    if error > explained and oracle is not None:
        explained = max(explained, SLACK * own_error(wanted, oracle))
    return error / explained if explained else (math.inf if error else 0.0)


def largest_of(array: Array) -> float:
    """The size of the largest finite value."""
    return float(np.abs(array).max(initial=0.0, where=np.isfinite(array)))


def own_error(wanted: Array, oracle: Array) -> float:
    """The largest distance of eager float32 from float64, where both are finite."""
    return float(_own_errors(wanted, oracle).max(initial=0.0))


def _own_errors(wanted: Array, oracle: Array) -> Array:
    """The distance of each value of eager float32 from float64; 0 where one of them is not finite, or where float64
    has another shape. What float32 has no number for is no rounding of it, as where a module fills in the smallest
    number of its own dtype."""
    if wanted.shape != oracle.shape:
        return np.zeros(wanted.shape)
    distance = np.abs(wanted.astype(np.float64) - oracle)
    rounded = np.isfinite(distance) & (np.abs(oracle) <= np.finfo(wanted.dtype).max)
    return np.where(rounded, distance, 0.0)


@cache
def _unit(dtype: np.dtype[Any]) -> float:
    """The distance of 1 from the next larger number of a float dtype."""
    return float(np.finfo(dtype).eps)
