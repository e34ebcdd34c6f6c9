"""Hold numbers of bfloat16 and of 8, 4 and 2 bits in the dtypes of NumPy that carry them."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.case.files.dims import carrier_of
from conformance.process.arrays import Array


def carried(array: Array) -> Array:
    """Return an array that NumPy has no type for in the one that carries it, and texts in NumPy's own type of these;
    any other as it is."""
    if array.dtype.kind == "O":  # of recorded data, texts
        return array.astype(str)
    carrier = carrier_of(array.dtype.name)  # of the type's name, as ml_dtypes gives some of them NumPy's kind "f"
    return array.astype(carrier) if carrier != array.dtype.name else array


def given_back(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array in the type that it is carried for; one of another dtype as it is."""
    is_carried = carrier_of(dtype.name) == array.dtype.name != dtype.name
    return array.astype(dtype) if is_carried else array


def representable(array: Array, dtype: str) -> Array:
    """Return numbers as near as a type has them, in the type that carries it."""
    import ml_dtypes

    kind: Any = getattr(ml_dtypes, dtype)
    if dtype.lstrip("u").startswith("int"):
        return np.asarray(array).astype(kind).astype(carrier_of(dtype))
    about: Any = ml_dtypes.finfo
    limits = about(kind)
    least = float(limits.min) if float(limits.min) < 0 else float(limits.tiny)
    within = np.clip(np.abs(array) if least > 0 else array, least, float(limits.max))
    return np.asarray(within).astype(kind).astype(carrier_of(dtype))
