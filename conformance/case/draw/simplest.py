"""The simplest values that still show a failure, at a shape that has been made as small as it gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np

from conformance.case.files.declaration import Case
from conformance.case.files.dims import Sizes
from conformance.case.files.inputs import Between
from conformance.process.arrays import Array, Inputs, equal


def simplest(
    case: Case, sizes: Sizes, inputs: Inputs, fails: Callable[[Inputs], bool], kept: Collection[str] = ()
) -> Inputs:
    """Try simpler arrays for one input after the other and keep those for which ``fails`` still holds.

    Only values that the case allows are tried; inputs from the case's own Python or from a choice stay, and
    so do those that are ``kept``.
    """
    best = dict(inputs)
    for name, declared in case.says.inputs.items():
        values = declared.values
        chosen = values and (values.python or values.choice or values.mask or values.permutations or values.exactly)
        chosen = chosen or (values and values.positions_of)
        if name in kept or case.says.draw or chosen:
            continue
        between = (values.uniform or values.integers) if values else None
        for candidate in simpler(best[name]):
            candidate = np.sort(candidate, axis=-1) if declared.sorted else candidate
            if _inside(candidate, between, sizes) and not equal(candidate, best[name]):
                trial = {**best, name: candidate}
                if fails(trial):
                    best = trial
                    break
    return best


def simpler(array: Array) -> Iterator[Array]:
    """From the simplest: constants, counting, then the same values rounded or mostly zero."""
    if not array.size:
        return
    for constant in (0, 1):
        yield np.full_like(array, constant)
    if array.dtype.kind == "f":
        yield np.arange(array.size, dtype=array.dtype).reshape(array.shape)
        finite = array[np.isfinite(array)]
        for value in {float(finite.max()), float(finite.min())} if finite.size else set():
            yield np.full_like(array, value)
        with np.errstate(invalid="ignore"):
            yield np.asarray(np.round(array))  # NumPy rounds a 0-d array to a scalar
            yield np.asarray(np.round(array, 1))
        odd = ~np.isfinite(array)
        if odd.any():
            yield np.where(odd, array, np.zeros_like(array))
    else:
        yield np.full_like(array, array.reshape(-1)[0])


def smaller(arrays: Mapping[str, Array], size: int) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield smaller sizes in place of one, each with the arrays cut to it on all axes of that size."""
    for count in dict.fromkeys((1, 2, size // 2)):
        if 0 < count < size:
            cut = {name: array[tuple(slice(count if axis == size else None) for axis in array.shape)]
                   for name, array in arrays.items()}  # fmt: skip
            yield count, cut


def _inside(array: Array, between: Between | None, sizes: Sizes) -> bool:
    if between is None:
        return array.dtype.kind in "fb"
    low, high = between.at(sizes)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    return not finite.size or bool(low <= finite.min() and finite.max() <= high)
