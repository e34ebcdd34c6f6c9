"""Operators that ONNX's evaluator lacks, in whole or in part, by the words of their specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance.arrays import Array


def lacking_operators() -> list[Any]:
    """Return the classes of these operators, as ``onnx.reference.ReferenceEvaluator`` takes them."""
    from onnx.reference.op_run import OpRun

    class Upsample(OpRun):  # of which it has whole scales and no interpolation
        op_domain = ""

        def _run(self, x: Array, scales: Array, mode: str | None = None) -> tuple[Array]:
            return (upsampled(x, scales, linear=mode in ("linear", b"linear")),)

    class ZipMap(OpRun):
        op_domain = "ai.onnx.ml"

        def _run(self, x: Array, classlabels_int64s: Any = None, classlabels_strings: Any = None) -> tuple[Any]:
            keys = [*(classlabels_strings or classlabels_int64s)]
            return ([dict(zip(keys, row, strict=True)) for row in np.atleast_2d(x)],)

    class CategoryMapper(OpRun):
        op_domain = "ai.onnx.ml"

        def _run(self, x: Array, cats_int64s: Any = None, cats_strings: Any = None, default_int64: Any = None,
                 default_string: Any = None) -> tuple[Array]:  # fmt: skip
            if x.dtype.kind in "iu":
                return (mapped(x, cats_int64s, cats_strings, default_string or "_Unused", object),)
            return (mapped(x, cats_strings, cats_int64s, -1 if default_int64 is None else default_int64, np.int64),)

    return [Upsample, ZipMap, CategoryMapper]


def mapped(x: Array, keys: Sequence[Any], values: Sequence[Any], otherwise: Any, dtype: Any) -> Array:
    """Return what stands for each element: the value at the place of its key, or ``otherwise`` for what is no key."""
    known = dict(zip(keys, values, strict=True))
    return np.array([known.get(one, otherwise) for one in x.reshape(-1).tolist()], dtype).reshape(x.shape)


def upsampled(x: Array, scales: Array, *, linear: bool) -> Array:
    """Return a tensor whose axes have ``floor(size * scale)`` values: of the nearest place that is not behind ``i /
    scale``, or interpolated between the two around it.

    ONNX's text on Upsample does not define these places; its version converter makes Upsample a ``Resize`` of opset
    10, which has them (https://github.com/onnx/onnx/blob/main/docs/Changelog.md#Resize-10).
    """
    for axis, scale in enumerate(scales):
        size = x.shape[axis]
        places = np.arange(int(np.floor(size * scale)), dtype=scales.dtype) / scale
        before = np.minimum(places.astype(np.int64), size - 1)
        after, share = np.minimum(before + 1, size - 1), (places - before).astype(x.dtype)
        shape = [-1 if dim == axis else 1 for dim in range(x.ndim)]
        part = x.take(before, axis)
        x = part + (x.take(after, axis) - part) * share.reshape(shape) if linear else part
    return x
