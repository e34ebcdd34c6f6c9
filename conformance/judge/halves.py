"""Find the outputs that a module computes in 16 bits, though they are of 32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.compare.judges import Right, defaults_for
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Array, Inputs


def outputs_in_halves(reference: Reference, inputs: Inputs, wanted: Sequence[Array]) -> set[int]:
    """Return the float32 outputs whose values show that PyTorch computes them in 16 bits: they are off by more than
    float32 may be from what float64 gives for them. Without a float64 form these are all float32 outputs of a module
    that computes anything in 16 bits."""
    if any(array.dtype == np.float16 for array in inputs.values()) or reference.find_half(inputs) is None:
        return set()
    exact = reference.oracle(inputs)
    found = {output for output, right in enumerate(wanted) if right.dtype == np.float32}
    if exact is not None and len(exact) == len(wanted):
        found = {output for output in found if _is_off(wanted[output], exact[output].astype(np.float32))}
    if not found:  # nothing is rounded to 16 bits, so that no rounding to them excuses anything
        reference.half = None
    return found


def _is_off(right: Array, exact: Array) -> bool:
    return defaults_for([right]).compare([exact], Right([right])).verdict == "failed"
