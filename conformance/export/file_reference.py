"""Compute the meaning of an ONNX file, with which a case that names one is compared. Needs no PyTorch.

ONNX's evaluator computes it, in the file's types, and in float64. Where the evaluator has no say on an operator, ONNX
Runtime computes node by node with its optimizer off, and there is no float64 form: it has few kernels for that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from conformance.arrays import Array, Inputs
from conformance.case.declaration import Case
from conformance.case.python import Folder, describe
from conformance.disk.onnx_models import serialized
from conformance.errors import Stopped, attempt, stopping
from conformance.export.float64_model import in_float64, load
from conformance.export.passed_inputs import Passing
from conformance.export.reference import Reference
from conformance.export.rounded_file import RoundedSession
from conformance.export.rounding import Rounding
from conformance.runtimes import Session, opener
from conformance.runtimes.evaluator_rules import doubts
from conformance.runtimes.onnxreference import ReferenceSession

_HELD = "biuf"
"""The kinds of dtypes that are compared: booleans, whole numbers and floats."""


class FileReference(Reference):
    """Computes what the file of a case means."""

    def __init__(self, case: Case, folder: Folder) -> None:
        """Raises Stopped at ``declare`` for a file that cannot be read."""
        super().__init__(case, folder)
        self._file = case.folder / str(case.says.onnx)
        model = load(self._file)
        written = serialized(model)
        self.weights, self._bytes = written.sha, 3 * written.size
        told = doubts(model)
        if told:
            self.abstains = f"ONNX's evaluator has no say on {', '.join(map(str, told))}"
            missing = ValueError(f"{self.abstains}, and nothing else computes a whole model in float64")
            self.oracle_missing = describe(missing, folder.path)
        self.passing = Passing(case.says.inputs, self)
        self._open = contextlib.ExitStack()

    def __call__(self, inputs: Mapping[str, Array]) -> list[Array]:
        def say(error: Exception) -> str:
            shapes = ", ".join(f"{name}{list(array.shape)}" for name, array in inputs.items())
            return f"the file itself cannot be run at {shapes}: {describe(error, self.folder.path)}"

        with stopping("declare", "case", say):
            arrays = [_held(array) for array in self._session.run(inputs)]
        self._hold_layout([1] * len(arrays), arrays)
        return arrays

    @cached_property
    def _session(self) -> Session:
        if self.abstains is not None:
            return self._open.enter_context(opener("onnxruntime-unoptimized")(self._file, []))
        return ReferenceSession(load(self._file))

    @cached_property
    def _session_in_float64(self) -> RoundedSession:
        return RoundedSession(in_float64(load(self._file)))

    def oracle(self, inputs: Mapping[str, Array], rounding: Rounding | None = None) -> list[Array] | None:
        if self.oracle_missing is not None:
            return None
        exact = attempt(lambda: self._session_in_float64.run(self._arrays(inputs, np.float64), rounding))
        if isinstance(exact, Exception):
            self.oracle_missing = describe(exact, self.folder.path)
            return None
        return [np.array(array) for array in exact]

    def _arrays(self, inputs: Mapping[str, Array], dtype: Any = None) -> dict[str, Array]:
        return {
            name: array.astype(dtype) if dtype is not None and array.dtype.kind == "f" else array
            for name, array in inputs.items()
        }

    def arguments(self, inputs: Mapping[str, Array], dtype: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.passing.passed(self._arrays(inputs, dtype))

    def otherwise(self, inputs: Inputs, way: AbstractContextManager[Any]) -> list[Array]:
        with way:
            return self(inputs)

    def operators(
        self, inputs: Inputs, shapes: Collection[tuple[int, ...]] = ()
    ) -> tuple[frozenset[str], list[Array]]:
        """Nothing of a file is an operator of PyTorch; its inputs and outputs are all that is seen."""
        seen = [*inputs.values(), *self(inputs)] if shapes else []
        return frozenset(), [array for array in seen if array.dtype.kind == "f" and array.shape in shapes]

    def caller(self, inputs: Mapping[str, Array]) -> Callable[[], object]:
        return lambda: self._session.run(inputs)

    def fingerprint(self) -> str:
        return self.weights

    def changed(self) -> bool:
        return False

    def restore(self) -> bool:
        return False

    def standing(self, *, told: bool = True) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    @property
    def bytes(self) -> int:
        return self._bytes

    def for_case(self, case: Case) -> Reference | None:
        return None

    def copied(self) -> Reference:
        return FileReference(self.case, self.folder)


def _held(array: Array) -> Array:
    """A copy of an output, which a session may write to again. Raises TypeError for what cannot be compared."""
    copy = np.array(array)
    if copy.dtype.kind == "c":
        raise Stopped("declare", "NoTensor", "the file gives complex numbers, which cannot be compared", "case")
    if copy.dtype.kind not in _HELD or not copy.dtype.isbuiltin:
        raise TypeError(f"the file gives values of {copy.dtype}, which cannot be compared")
    return copy
