"""The types of arrays that everything passes around, and whether two sequences of them are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""An input or output, of any dtype and shape."""

Inputs: TypeAlias = dict[str, Array]
"""The inputs of one example by their ONNX names."""


def equal(one: Array, other: Array) -> bool:
    """Return whether two arrays have the same shape and values; NaN is NaN, whatever its bits."""
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


def same(got: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Return whether there are as many arrays, of the same dtypes, shapes and values."""
    return len(got) == len(wanted) and all(
        same_dtype(one.dtype, other.dtype) and equal(one, other) for one, other in zip(got, wanted, strict=True)
    )


def in_dtype_of(wanted: Array, array: Array) -> Array:
    """Return an array in the dtype of another; texts as they are, since the dtype of shorter ones would cut them."""
    return array if wanted.dtype.kind == array.dtype.kind == "U" else array.astype(wanted.dtype)


def same_dtype(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return whether two dtypes are the same; those of texts are, however long the longest text is."""
    return one == other or one.kind == other.kind == "U"


def dtype_name(array: Array) -> str:
    """Return the name of an array's dtype as ONNX has it: all texts are ``string``."""
    return "string" if array.dtype.kind in "UO" else str(array.dtype)


PART = 2**15
"""Values that ``in_parts`` takes at a time: what is made of them in between stays in the processor's caches, and
large arrays have no copies."""


def in_parts(compute: Callable[..., Array], *arrays: Array) -> Array:
    """Return the float64 that a function of single values gives for arrays of one shape, of a few values at a time.
    It has them in the order in which the first array has them in memory."""
    first = arrays[0]
    if first.size <= PART:
        return compute(*arrays)
    axes = sorted(range(first.ndim), key=lambda axis: -abs(first.strides[axis]))
    flat, found = [one.transpose(axes).reshape(-1) for one in arrays], np.empty(first.size)
    for begin in range(0, first.size, PART):
        part = slice(begin, begin + PART)
        found[part] = compute(*(one[part] for one in flat))
    return found.reshape([first.shape[axis] for axis in axes]).transpose(np.argsort(axes))
