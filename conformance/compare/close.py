"""Compare arrays to explain a failure: NaN meets only NaN, and an infinity only itself.

Nothing here decides on a cell; that is for ``judges``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from conformance.compare.excuses import largest_of
from conformance.process.arrays import Array


@dataclass(frozen=True)
class Limit:
    """A limit of how far floats may be off, the sum of what is given. Other values are exact."""

    units: float = 0.0
    """Units in the last place of the value, and multiples of how far rounding moves it."""
    of_largest: float = 0.0
    """Units in the last place of the largest finite value of the array."""
    share: float = 0.0
    """The same as a share of that value, which counts as ``floor`` at least."""
    floor: float = 0.0
    spread: bool = False
    """Take what rounding makes of any value for all of them: it may be nothing by luck for one sum."""


def distances(got: Array, wanted: Array) -> Array:
    """Return how far each value is off: infinitely where integers differ, or where one is NaN or infinite and the
    other something else; an array without dims where the shapes differ."""
    if got.shape != wanted.shape:
        return np.array(np.inf)
    with np.errstate(all="ignore"):
        same = (got == wanted) | ((got != got) & (wanted != wanted))
        if wanted.dtype.kind != "f":
            return np.where(same, 0.0, np.inf)
        far = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
        return np.where(same, 0.0, np.where(np.isfinite(far), far, np.inf))


def ratios(got: Array, wanted: Array, limit: Limit, moved: Callable[[], Array | None] = lambda: None) -> Array:
    """Return by how many times each value is off more than it may be. ``moved`` says how far rounding moves each, and
    is asked only where that matters."""
    off = distances(got, wanted)
    if wanted.dtype.kind != "f":
        return off
    form, largest = np.finfo(wanted.dtype), largest_of(wanted)
    with np.errstate(all="ignore"):
        allowed = limit.units * (float(form.eps) * np.abs(wanted.astype(np.float64)) + float(form.tiny))
        allowed = allowed + limit.of_largest * float(form.eps) * largest + limit.share * max(largest, limit.floor)
        far = moved() if (off > allowed).any() or np.isinf(off).any() else None
        if far is not None:
            allowed = allowed + limit.units * (far.max(initial=0.0) if limit.spread else far)
        return np.where(off == 0, 0.0, np.where(np.isinf(off), np.inf, off / allowed))


def differs(
    got: Array, wanted: Array, limit: Limit, moved: Callable[[], Array | None] = lambda: None, *, dtypes: bool = True
) -> Literal["dtype", "shape", "value"] | None:
    """Return in what an array differs from the one that is right; None where it does not. Without ``dtypes`` the
    values of another dtype may be the same."""
    if dtypes and got.dtype != wanted.dtype:
        return "dtype"
    if got.shape != wanted.shape:
        return "shape"
    return "value" if (ratios(got, wanted, limit, moved) > 1).any() else None
