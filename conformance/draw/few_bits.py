"""Hold numbers of bfloat16 and of 8, 4 and 2 bits in the dtypes of NumPy that carry them."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.arrays import Array
from conformance.case.dims import carrier_of


def carried(array: Array) -> Array:
    """Return an array that NumPy has no type for in the one that carries it; any other as it is."""
    return array.astype(carrier_of(array.dtype.name)) if array.dtype.kind == "V" else array


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
