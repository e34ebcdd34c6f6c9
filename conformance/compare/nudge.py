"""Move values by as much as rounding may, and measure how far results go with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from conformance.process.arrays import Array, in_parts


def to_neighbours(array: Array, rng: np.random.Generator) -> Array:
    """Return each float as the next number of its dtype, up or down."""
    if array.dtype.kind != "f":
        return array
    return np.asarray(np.nextafter(array, rng.choice([-np.inf, np.inf], array.shape).astype(array.dtype)))


def by_units(array: Array, signs: Array, units: float, *, whole: bool) -> Array:
    """Return the finite floats in float64, moved by so many units in the last place of their dtype; ``whole`` numbers
    only where these are moved too."""

    def moved(array: Array, signs: Array) -> Array:
        moves = np.isfinite(array) if whole else np.isfinite(array) & (np.round(array) != array)
        steps = np.spacing(np.abs(array), where=moves, out=np.zeros_like(array))
        there = np.asarray(array + signs * units * steps, dtype=np.float64)
        return np.where((steps == 0) | (array == 0), array, there)  # of two zeros the sum would be the positive one

    return in_parts(moved, array, signs) if array.dtype.kind == "f" else array


def by_share(array: Array, rng: np.random.Generator, share: float) -> Array:
    """Return each float moved by this share of itself, up or down."""
    if array.dtype.kind != "f":
        return array
    return np.asarray(array * (1 + share * rng.choice([-1.0, 1.0], array.shape)), dtype=array.dtype)


def in_float16(array: Array) -> Array:
    """Return each float as float16 holds it, in the dtype that it has; others as they are."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):  # infinite, as in a file in float16
        return array.astype(np.float16).astype(array.dtype)


def movement(there: Array, base: Array) -> Array:
    """Return how far each value has moved from ``base``: 0 for integers, and where either is no finite number."""
    if base.dtype.kind != "f":
        return np.zeros(base.shape)
    with np.errstate(all="ignore"):  # infinities, and values near the largest of float64
        far = np.asarray(np.subtract(there, base, dtype=np.float64))
    far = np.asarray(np.abs(far, out=far))
    far[~np.isfinite(far)] = 0.0
    return far


def largest_movement(runs: Iterable[Sequence[Array] | None], base: Sequence[Array]) -> list[Array] | None:
    """Return how far each value of ``base`` moves at most; None where a run has no results, or other shapes."""
    moved = [np.zeros(array.shape) for array in base]
    for run in runs:
        if run is None or [np.shape(array) for array in run] != [array.shape for array in base]:
            return None
        moved = [np.maximum(far, movement(*both)) for far, *both in zip(moved, run, base, strict=True)]
    return moved
