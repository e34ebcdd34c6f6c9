"""Outputs of parsed networks held against those that are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

SECONDS = 60.0
"""Seconds that one network may take."""


def compared(got: Sequence[Any], wanted: Sequence[Any]) -> tuple[str, str]:
    """Return ``right`` or ``wrong``, and in what the outputs differ."""
    for one, right in zip(got, map(np.asarray, wanted), strict=True):
        if one.shape != right.shape:
            return "wrong", f"shape {one.shape} for {right.shape}"
        if one.dtype != right.dtype != np.float64:  # which TensorRT makes float32 of, as NVIDIA documents
            return "wrong", f"{one.dtype} for {right.dtype}"
        floats = right.dtype.kind == "f" or "float" in right.dtype.name
        share = {1: 0.3, 2: 2e-2}.get(right.dtype.itemsize, 1e-5) if floats else 0.0
        a, b = one.astype(np.float64), right.astype(np.float64)
        same = np.isclose(a, b, rtol=share, atol=share / 10, equal_nan=True)
        if not same.all():
            at = tuple(np.argwhere(~same)[0])
            return "wrong", f"{int((~same).sum())} of {same.size} values, as {a[at]:.6g} for {b[at]:.6g}"
    return "right", ""
