"""The evaluator that comes with the ONNX specification: slow, literal, a second opinion on every model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.arrays import Array
from conformance.errors import Unavailable
from conformance.runtimes.sequences import tensors


class ReferenceSession:
    arithmetic: Mapping[str, Any] = {
        "provider": "onnx.reference",
        "optimizer": False,
        "storage": "float32",
        "arithmetic": "float32",
    }

    def __init__(self, model: Path, libraries: Sequence[str]) -> None:
        from onnx.reference import ReferenceEvaluator

        if libraries:
            raise Unavailable("onnx-reference cannot load custom-operator libraries")
        self._evaluator = ReferenceEvaluator(str(model))
        misread = _misread_operators(self._evaluator)
        if misread:
            raise Unavailable(f"ONNX's evaluator knows only a later version of {', '.join(misread)}")
        self._inputs = list(self._evaluator.input_names)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        with np.errstate(all="ignore"):  # the check ``specials`` is about infinities and NaN
            outputs = self._evaluator.run(None, {name: inputs[name] for name in self._inputs if name in inputs})
        return [np.asarray(output) for output in tensors(outputs)]


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[ReferenceSession]:
    yield ReferenceSession(model, libraries)


def _misread_operators(evaluator: Any) -> list[str]:
    """Operators of a model that the evaluator computes by the rules of a later opset.

    It has implementations for some earlier versions (``Clip_6``), but not where only the default of an attribute has
    changed, as with Softmax at opset 13: on a model with such an operator its results mean nothing.
    """
    from onnx import defs

    opset = evaluator.opsets.get("", 0)

    def changed(name: str) -> bool:
        try:
            old, new = defs.get_schema(name, opset).attributes, defs.get_schema(name).attributes
        except defs.SchemaError:
            return False
        return any(key not in new or was.default_value != new[key].default_value for key, was in old.items())

    # Implementations are classes named after their operator, with the version where there are several.
    names = {type(node).__name__ for node in evaluator.rt_nodes_}
    return sorted(name for name in names if changed(name))
