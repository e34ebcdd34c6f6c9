"""Compare the signs of zeros, where nothing leaves them open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.compare.tolerance import Comparison, Subject, failed, worst_at
from conformance.process.arrays import Array


def other_zeros(
    got: Sequence[Array], wanted: Sequence[Array], called: Sequence[Subject], moved: Sequence[Array] | None
) -> Comparison | None:
    """Return the failure of an output with zeros of the other sign: 1 / x tells them apart. None where there is none,
    but for values that are open, as they move infinitely far. The outputs agree in all else."""
    for output, (given, right) in enumerate(zip(got, wanted, strict=True)):
        wrong = turned(given, right)
        if moved is not None and moved[output].shape in ((), right.shape):
            wrong &= ~np.isinf(moved[output])
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            text = f"{called[output]}: {int(wrong.sum())} of {right.size} values are a zero of the other sign"
            return failed("WrongValue", text, worst_at(output, first, given, right, 0.0, np.inf), wrong)
    return None


def turned(got: Array, right: Array) -> Array:
    """Return which values of floats are a zero of the other sign: none of other kinds and shapes."""
    if right.dtype.kind != "f" or got.dtype.kind != "f" or got.shape != right.shape:
        return np.zeros(right.shape, bool)
    return np.asarray((got == 0) & (right == 0) & (np.signbit(got) != np.signbit(right)))
