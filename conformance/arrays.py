"""The types of arrays that everything passes around, and whether two sequences of them are the same."""

from __future__ import annotations

from collections.abc import Sequence
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
        alike_in_type(one, other) and equal(one, other) for one, other in zip(got, wanted, strict=True)
    )


def in_dtype_of(wanted: Array, array: Array) -> Array:
    """Return an array in the dtype of another; texts as they are, since the dtype of shorter ones would cut them."""
    return array if wanted.dtype.kind == array.dtype.kind == "U" else array.astype(wanted.dtype)


def alike_in_type(one: Array, other: Array) -> bool:
    """Return whether two arrays have the same dtype; that of texts depends on how long the longest is."""
    return one.dtype == other.dtype or one.dtype.kind == other.dtype.kind == "U"
