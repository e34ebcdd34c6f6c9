"""How far rounding alone moves what a module gives for an example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from conformance.arrays import Array, Inputs
from conformance.compare.reading import Reading
from conformance.export.rounding import Rounding, bits_of

NUDGES = 3
"""How many other roundings are tried, each in both directions, to see how far rounding alone can move the outputs: a
result that is rounded up already moves by half a unit one way, and by one and a half the other."""


class InFloat64(Protocol):
    """What this needs of ``export.reference.Reference``."""

    def oracle(self, inputs: Inputs, rounding: Rounding | None = None) -> list[Array] | None: ...


def moved_by_rounding(reference: InFloat64, inputs: Inputs, exact: Sequence[Array]) -> list[float]:
    """How far each of the ``exact`` outputs, those of float64, moves when every float input, weight, constant and
    result of an operator moves by one unit in its last place.

    No computation in float32 can be expected to be closer. How far PyTorch's float32 is off does not always tell: it
    may be exact by luck, as in normalising equal values, where whatever rounding leaves of the mean is divided by
    almost nothing. An output that jumps, as a rounding at a tie does, moves as far for a step a thousand times
    smaller; that is no question of precision and excuses nothing.
    """
    moved = [0.0] * len(exact)
    for far, near in zip(_otherwise(reference, inputs, 0), _otherwise(reference, inputs, 10), strict=True):
        for output, (right, at_far, at_near) in enumerate(zip(exact, far, near, strict=False)):
            if right.shape == at_far.shape == at_near.shape and right.dtype.kind == "f":
                step, small_step = np.abs(at_far - right), np.abs(at_near - right)
                smooth = np.where(small_step <= step / 16, step, 0.0)
                moved[output] = max(moved[output], float(smooth.max(initial=0.0, where=np.isfinite(smooth))))
    return moved


def unsettled_rows(
    reference: InFloat64, reading: Reading, inputs: Inputs, wanted: Sequence[Array], exact: Sequence[Array]
) -> set[int]:
    """The outputs of boxes that have other rows in float64 (``exact``) than in float32 (``wanted``, which may be
    empty), or in float64 when everything moves by one unit in its last place.

    Which rows there are is a jump by its nature. Results that are exact move as well, so that ties are broken: which
    of equal scores are the best, PyTorch leaves open.
    """
    if not reading.detections:
        return set()
    found = set(reading.unsettled(wanted, exact))
    for other in _otherwise(reference, inputs, 0, ties=True):
        found.update(reading.unsettled(exact, other))
    return found


def _otherwise(reference: InFloat64, inputs: Inputs, finer: int, *, ties: bool = False) -> Iterator[list[Array]]:
    """The outputs in float64 by each of the other roundings; empty where there are none."""
    bits = bits_of([str(array.dtype) for array in inputs.values()])
    for nudge in range(2 * NUDGES):
        seed, mirrored = divmod(nudge, 2)
        rng = np.random.default_rng(seed)
        signs = {name: rng.choice([-1.0, 1.0], size=array.shape) for name, array in inputs.items()}
        rounding = None if bits is None else Rounding(bits, seed, finer, bool(mirrored), ties)
        direction = -1.0 if mirrored else 1.0
        yield reference.oracle(_nudged(inputs, signs, direction * 2.0**-finer), rounding) or []


def _nudged(inputs: Inputs, signs: Inputs, units: float) -> Inputs:
    """The float inputs in float64, moved by ``units`` units in the last place of their dtype, with the others."""
    return {
        name: np.asarray(array + signs[name] * units * np.spacing(np.abs(array)), dtype=np.float64)
        if array.dtype.kind == "f"
        else array
        for name, array in inputs.items()
    }
