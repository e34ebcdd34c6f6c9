"""On which values of an example PyTorch itself decides nothing, and by which rule: its own kernels part there, or
what they compute is not defined. ``conditioning`` finds those on which rounding decides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from conformance.arrays import Array, Inputs
from conformance.compare.close import Limit, differs, distances
from conformance.export.other_kernels import other_ways
from conformance.export.undefined import Undefined, leaves_open

DRAWS = 6
"""How many times what is not defined is given other values, and ties are broken: three times in either direction."""
MOST_DRAWS = 32
"""The most runs in which equal values take each other's places; as many as there are equal ones show all."""
_NEAR = Limit(share=1e-4, floor=1e-2)
"""How far a value that a module computes may be from one that it is known by."""


class InOtherWays(Protocol):
    """The part of ``export.reference.Reference`` that is needed here."""

    def otherwise(self, inputs: Inputs, way: AbstractContextManager[Any]) -> list[Array]: ...

    def operators(
        self, inputs: Inputs, shapes: Collection[tuple[int, ...]] = ()
    ) -> tuple[frozenset[str], list[Array]]: ...


def _tried(reference: InOtherWays, inputs: Inputs, way: AbstractContextManager[Any]) -> list[Array] | None:
    try:
        return reference.otherwise(inputs, way)
    except (Exception, SystemExit):
        # such as an operator without such a kernel, or an undefined index beyond its axis: that way shows nothing
        return None


def computes(reference: InOtherWays, inputs: Inputs, values: Sequence[Array]) -> bool:
    """Return whether a module computes all these values on its way, each as the result of an operator."""
    arrays = [np.asarray(value) for value in values]
    _, results = reference.operators(inputs, {array.shape for array in arrays})
    return all(any(_is_near(array, result) for result in results) for array in arrays)


def _is_near(array: Array, result: Array) -> bool:
    return array.dtype.kind == "f" and differs(array, result, _NEAR, dtypes=False) is None


def left_open(
    reference: InOtherWays, operators: Collection[str], inputs: Inputs, wanted: Sequence[Array]
) -> tuple[list[Array], set[str]]:
    """Return how far PyTorch parts from ``wanted``, its own outputs, in other ways, infinitely where that is no
    question of size; and the rules that leave it open. An array without dims is about all values and their number."""
    found = [np.zeros(right.shape) for right in wanted]
    rules = set[str]()
    if not operators:
        return found, rules

    def see(rule: str, before: Sequence[Array], after: Sequence[Array] | None) -> None:
        for output, right in enumerate(before):
            same = after is not None and len(after) == len(before)
            far = distances(right, after[output]) if same and after is not None else np.array(np.inf)
            # kernels also round in other ways; what is not defined is so however little it decides on
            if np.isinf(far).any() or (rule != "kernels" and far.any()):
                rules.add(rule)
            found[output] = np.maximum(found[output], far) if far.ndim == found[output].ndim else np.array(np.inf)

    special = any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in [*inputs.values(), *wanted])
    for way in other_ways(operators, special=special):
        other = _tried(reference, inputs, way())
        if other is not None:
            see("kernels", wanted, other)
    if not leaves_open(operators):
        return found, rules
    noted = Undefined(None)
    before = _tried(reference, inputs, noted)
    draws = max(DRAWS, min(noted.most_equal, MOST_DRAWS)) if before is not None and noted.rules else 0
    for seed in range(draws):
        after = _tried(reference, inputs, Undefined(seed))
        for rule in noted.rules:
            see(rule, before or [], after)
    return found, rules


def merged(moved: Sequence[Array], found: Sequence[Array]) -> list[Array]:
    """Return how far values move, or part; where either is about a whole output, so is the larger of the two."""
    together = []
    for one, other in zip(moved, found, strict=True):
        if one.shape == other.shape:
            together.append(np.maximum(one, other))
        else:
            together.append(np.array(np.inf) if np.isinf(one).any() or np.isinf(other).any() else one)
    return together
