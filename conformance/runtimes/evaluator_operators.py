"""Operators that ONNX's evaluator lacks, or takes in part, by the words of their specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array

if TYPE_CHECKING:
    from onnx.reference.op_run import OpRun


def lacking_operators() -> list[type[OpRun]]:
    """Return the classes of these operators, as ``onnx.reference.ReferenceEvaluator`` takes them."""
    from onnx.reference.op_run import OpRun
    from onnx.reference.ops import op_loop, op_non_max_suppression

    class ZipMap(OpRun):
        op_domain = "ai.onnx.ml"

        def _run(self, x: Array, classlabels_int64s: Any = None, classlabels_strings: Any = None) -> tuple[object]:
            keys = [*(classlabels_strings or classlabels_int64s)]
            return ([dict(zip(keys, row, strict=True)) for row in np.atleast_2d(x)],)

    class CategoryMapper(OpRun):
        op_domain = "ai.onnx.ml"

        def _run(self, x: Array, cats_int64s: Any = None, cats_strings: Any = None, default_int64: int | None = None,
                 default_string: str | None = None) -> tuple[Array]:  # fmt: skip
            if x.dtype.kind in "iu":
                return (mapped(x, cats_int64s, cats_strings, default_string or "_Unused", object),)
            return (mapped(x, cats_strings, cats_int64s, -1 if default_int64 is None else default_int64, np.int64),)

    base: Any = op_non_max_suppression.NonMaxSuppression

    class NonMaxSuppression(base):  # which takes thresholds without dims too
        def _run(self, boxes: Array, scores: Array, *thresholds: Array | None, **attributes: object) -> object:
            given = [None if one is None else np.atleast_1d(one) for one in thresholds]
            return super()._run(boxes, scores, *given, **attributes)

    loop: Any = op_loop.Loop

    class Loop(loop):  # which stacks what the body gives of any rank, and goes on where there is no condition
        def _run(self, limit: Array | None, condition: Array | None, *carried: Array, context: Any = None,
                 body: object = None, **more: object) -> tuple[Array, ...]:  # fmt: skip
            names, stacked, count = self.body.input_names, list[list[Array]](), 0
            while (condition is None or condition) and (limit is None or count < limit):
                passed = {
                    names[0]: np.array(count),
                    names[1]: np.array(True),
                    **dict(zip(names[2:], carried, strict=True)),
                }
                condition, *given = self._run_body({**(context or {}), **passed}, **more)
                stacked, carried = [*stacked, given[self.N :]], tuple(given[: self.N])
                count += 1
            if self.K and not stacked:
                raise ValueError("the shape of what no turn of the loop has given is not known")
            return (*carried, *map(np.stack, zip(*stacked, strict=True)))

    return [ZipMap, CategoryMapper, NonMaxSuppression, Loop]


def mapped(x: Array, keys: Sequence[object], values: Sequence[object], otherwise: object, dtype: type) -> Array:
    """Return what stands for each element: the value at the place of its key, or ``otherwise`` for what is no key."""
    values_by_key = dict(zip(keys, values, strict=True))
    return np.array([values_by_key.get(key, otherwise) for key in x.reshape(-1).tolist()], dtype).reshape(x.shape)
