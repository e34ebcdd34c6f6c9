"""The evaluator that comes with the ONNX specification: slow, literal, a second opinion on every model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.compare import Array
from conformance.errors import Unavailable


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
        self._inputs = list(self._evaluator.input_names)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        with np.errstate(all="ignore"):  # infinities and NaN are what the specials are about
            outputs = self._evaluator.run(None, {name: inputs[name] for name in self._inputs if name in inputs})
        return [np.asarray(output) for output in outputs]


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[ReferenceSession]:
    yield ReferenceSession(model, libraries)
