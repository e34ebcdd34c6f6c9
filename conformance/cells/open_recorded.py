"""Tell whether recorded outputs and those of a runtime differ only where ONNX leaves the values open.

What ONNX's evaluator computes is asked for again, with other values in the place of those that no rule of ONNX
defines (``models.otherwise.undefined_file``): an output that changes with them is not right or wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.compare.close import distances
from conformance.compare.recorded_values import named_tensors
from conformance.models.otherwise.undefined_file import OpenSession, UndefinedInFile
from conformance.models.reference.float64_model import load_mapped
from conformance.process.arrays import Array
from conformance.process.disk.recorded_data import RecordedSet
from conformance.process.errors import or_else

_SEEDS = range(3)
"""Other values that are tried: a large one, zero and a small one."""


@dataclass(frozen=True)
class OpenValues:
    """The values of a set's outputs that ONNX leaves open."""

    rules: tuple[str, ...]
    """The names of the rules by which they are."""
    marks: tuple[Array, ...]
    """By output an array of its shape, true where a value is open."""

    def settled(self, one: RecordedSet, got: Sequence[object]) -> Mapping[str, object]:
        """Return the recorded outputs with those of ``got`` where they are open; all recorded ones where ``got`` has
        other shapes."""
        return or_else(one.outputs, lambda: dict(self._settled(one, got)))

    def _settled(self, one: RecordedSet, got: Sequence[Any]) -> Iterator[tuple[str, object]]:
        for (name, right), mark, own in zip(named_tensors(one.outputs), self.marks, got, strict=True):
            right = np.asarray(right)
            if np.shape(own) != right.shape:
                raise ValueError(f"{name} has another shape")
            yield name, np.where(mark, own, right).astype(right.dtype)


def open_values(file: Path, one: RecordedSet) -> OpenValues | None:
    """Return what ONNX leaves open of a set's outputs; None where that is nothing, or where ONNX's evaluator does not
    compute the file."""
    return or_else(None, lambda: _open_values(file, one))


def _open_values(file: Path, one: RecordedSet) -> OpenValues | None:
    found = load_mapped(file)
    session = OpenSession(found.model, found.weights)
    inputs = {name: np.asarray(value) for name, value in one.inputs.items()}
    with UndefinedInFile(session, None) as met:
        plain = session.run(inputs)
    if not met.rules:
        return None
    marks = [np.zeros(array.shape, bool) for array in plain]
    for seed in _SEEDS:
        with UndefinedInFile(session, seed):
            outputs = session.run(inputs)
        if [array.shape for array in outputs] != [array.shape for array in plain]:
            return None
        marks = [mark | (distances(a, b) > 0) for mark, a, b in zip(marks, outputs, plain, strict=True)]
    return OpenValues(tuple(sorted(met.rules)), tuple(marks))
