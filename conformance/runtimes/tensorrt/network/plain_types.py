"""TensorRT's dtypes as NumPy and ml_dtypes have them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from conformance.process.arrays import Array

_PLAIN = {
    "HALF": np.float16, "INT8": np.int8, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_, "UINT8": np.uint8,
}  # fmt: skip
_OF_ML_DTYPES = {
    "BF16": "bfloat16", "FP8": "float8_e4m3fn", "INT4": "int4", "FP4": "float4_e2m1fn", "E8M0": "float8_e8m0fnu",
}  # fmt: skip
FP8_MOST = 448.0
"""The largest number of FP8."""


def dtype_of(word: str, single: Any = np.float32) -> Any:
    """Return the dtype that TensorRT calls ``word``; ``single`` is what holds its FLOAT. LookupError for one that
    another version has more."""
    if word == "FLOAT":
        return np.dtype(single)
    if word in _PLAIN:
        return np.dtype(_PLAIN[word])
    if word not in _OF_ML_DTYPES:
        raise LookupError(f"nothing is known of the dtype {word}")
    others: Any = importlib.import_module("ml_dtypes")  # which onnx brings
    return np.dtype(getattr(others, _OF_ML_DTYPES[word]))


def cast_to(array: Array, word: str, single: Any = np.float32) -> Array:
    """Return an array in the dtype that TensorRT calls ``word``."""
    array, wanted = np.asarray(array), dtype_of(word, single)
    if array.dtype == wanted:
        return array
    with np.errstate(all="ignore"):
        return array.astype(wanted)


def array_of(weights: Array, word: str, shape: tuple[int, ...]) -> Array:
    """Return the weights of a constant in its shape."""
    return cast_to(weights, word).reshape(shape)
