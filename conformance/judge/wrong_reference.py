"""Find out whether PyTorch's own float32 is wrong, where it is far from float64 and a runtime is not.

That float32 is far from float64 is mostly a matter of the values, and such an example is ill-conditioned: nothing can
be told of a runtime. But a runtime that gives float64's values, where no rounding of float32 goes as far as PyTorch's
float32 is off, shows that PyTorch's kernel is wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from conformance.case.draw.example import Example
from conformance.case.files.must_hold import Output
from conformance.compare.close import distances
from conformance.compare.excuses import largest_of, own_error
from conformance.compare.judges import Right
from conformance.compare.tolerance import Comparison, Worst, failed, subjects, worst_at
from conformance.judge.conditioning import InFloat64
from conformance.models.kept.answers import KeptAnswers
from conformance.models.otherwise.rounding import Rounding, bits_of
from conformance.process.arrays import Array, Inputs, in_dtype_of

WRONG = 1e-4
"""How far float32 has to be from float64, relative to the output's largest value, to be taken for wrong rather than
rough."""

BEYOND = 32.0
"""How many times further from float64 than roundings go."""

COARSER = -4
"""Roundings by 2 ** 4 units, for the jumps that they cause: what an operator does inside is rougher than one unit."""

ROUNDINGS = 8
"""How many of these are tried."""


class OfPyTorch(Protocol):
    """The part of ``judge.verify.Verifier`` that is needed here."""

    rules: set[str]

    @property
    def reference(self) -> InFloat64: ...

    @property
    def kept(self) -> KeptAnswers: ...

    def outputs(self) -> Sequence[Output]: ...

    def compare(self, got: list[Array], right: Right) -> Comparison: ...

    def conditioning(self, inputs: Inputs, wanted: list[Array], exact: list[Array] | None) -> list[Array] | None: ...

    def open_values(self, inputs: Inputs, wanted: Sequence[Array]) -> tuple[list[Array], set[str]]: ...


def held_against_float64(verify: OfPyTorch, example: Example, got: list[Array]) -> Comparison | None:
    """The failure WrongReference of an ill-conditioned example, or None.

    ``got`` are a runtime's outputs, which have to be float64's by the ordinary tolerance.
    """
    exact, wanted = example.exact, example.wanted
    if exact is None or len(exact) != len(wanted):
        return None
    with np.errstate(over="ignore"):  # as of a module that takes the smallest number of its own dtype for a mask
        rounded = [in_dtype_of(right, true) for true, right in zip(exact, wanted, strict=True)]
    if verify.compare(got, Right(rounded, inputs=example.inputs)).verdict != "verified":
        return None
    far = _far_off(wanted, exact)
    if far:
        wanted = _where_defined(verify, example, exact)
        far = _far_off(wanted, exact)
    reach = _kept_reach(verify, example.inputs, exact) if far else []
    for output in far:
        if _off(wanted[output], exact[output]) > BEYOND * reach[output]:
            called = subjects(output + 1, tuple(entry.name for entry in verify.outputs()))[output]
            who = verify.reference.who
            text = (
                f"{called}: the runtime gives what {who} gives in float64, and {who} in float32 is off by more "
                f"than rounding explains"
            )
            return failed("WrongReference", text, _worst(output, wanted[output], rounded[output]))
    return None


def _where_defined(verify: OfPyTorch, example: Example, exact: list[Array]) -> list[Array]:
    """Return PyTorch's outputs, and float64's in their place where what PyTorch computes is not defined. Where only
    its kernels part, one of them is wrong."""
    found, rules = verify.open_values(example.inputs, example.wanted)
    if not rules - {"kernels"}:
        return example.wanted
    return [
        np.where(np.isinf(far), true, right) if far.shape == right.shape == true.shape else true
        for far, right, true in zip(found, example.wanted, exact, strict=True)
    ]


def _far_off(wanted: list[Array], exact: list[Array]) -> list[int]:
    return [output for output, (right, true) in enumerate(zip(wanted, exact, strict=True)) if _is_far(right, true)]


def _is_far(right: Array, true: Array) -> bool:
    return right.dtype.kind == "f" and _off(right, true) > WRONG * largest_of(true)


def _off(got: Array, true: Array) -> float:
    """The largest distance from float64; infinite where something is NaN or infinite that has a value. Another shape
    is no distance."""
    if got.shape != true.shape:
        return 0.0
    with np.errstate(invalid="ignore"):  # infinities on both sides
        return math.inf if (np.isfinite(true) & ~np.isfinite(got)).any() else own_error(got, true)


def _kept_reach(verify: OfPyTorch, inputs: Inputs, exact: list[Array]) -> list[float]:
    """Return what ``_reach`` does, by an earlier run or found now and kept: it takes longer than all else that is
    asked about an example."""
    known = verify.kept.outputs(_reach.__name__, inputs)
    if known is None:
        start = time.process_time()
        known = [np.asarray(_reach(verify, inputs, exact))]
        verify.kept.add_outputs(_reach.__name__, inputs, known, time.process_time() - start)
    verify.rules = set()  # as after asking, so that none is said of the next example
    return [float(each) for each in known[0]]


def _reach(verify: OfPyTorch, inputs: Inputs, exact: list[Array]) -> list[float]:
    """Return how far each exact output goes with rounding, jumps included; infinite where it leaves the numbers of
    float32.

    A jump counts where results on the way to it are rounded, by a few units. The inputs themselves are exact, so that
    another result for one that lies at a tie is no rounding.
    """
    moved = verify.conditioning(inputs, [], exact)
    reach = [0.0] * len(exact) if moved is None else [float(each.max(initial=0.0)) for each in moved]
    bits = bits_of([str(array.dtype) for array in inputs.values()], verify.reference.half)
    for seed in range(ROUNDINGS if bits is not None else 0):
        far = verify.reference.oracle(inputs, Rounding(bits or 0, seed, COARSER))
        for output, (true, at_far) in enumerate(zip(exact, far or [], strict=False)):
            if true.dtype.kind == "f":
                reach[output] = max(reach[output], _off(at_far, true))
    return reach


def _worst(output: int, wanted: Array, right: Array) -> Worst:
    """The element at which float32 is furthest off."""
    off = np.where(np.isfinite(right), distances(wanted, right), 0.0)
    index = np.unravel_index(int(off.argmax()), off.shape)
    return worst_at(output, index, right, wanted, float(off[index]), np.inf)
