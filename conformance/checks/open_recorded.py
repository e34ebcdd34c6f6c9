"""Tell whether recorded outputs and those of a runtime differ only where ONNX leaves the values open.

What ONNX's evaluator computes is asked for again, with other values in the place of those that no rule of ONNX
defines (``export.undefined_file``): an output that changes with them is not right or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.compare.close import distances
from conformance.compare.recorded_values import difference, named_tensors
from conformance.disk.recorded_data import RecordedSet
from conformance.errors import or_else
from conformance.export.float64_model import load
from conformance.export.undefined_file import OpenSession, UndefinedInFile

_SEEDS = range(3)
"""Other values that are tried: a large one, zero and a small one."""


def left_open(file: Path, one: RecordedSet, got: Sequence[Any], rtol: float, atol: float) -> list[str]:
    """Return the names of the rules by which the outputs may be unlike the recorded ones, where all that differ are
    open; an empty list where some are not, or where ONNX's evaluator does not compute the file."""
    return or_else([], lambda: _rules(file, one, got, rtol, atol))


def _rules(file: Path, one: RecordedSet, got: Sequence[Any], rtol: float, atol: float) -> list[str]:
    session, wanted = OpenSession(load(file)), dict(named_tensors(one.outputs))
    inputs = {name: np.asarray(value) for name, value in one.inputs.items()}
    with UndefinedInFile(session, None) as met:
        plain = session.run(inputs)
    if not met.rules or len(plain) != len(wanted):
        return []
    marks = [np.zeros(array.shape, bool) for array in plain]
    for seed in _SEEDS:
        with UndefinedInFile(session, seed):
            outputs = session.run(inputs)
        if [array.shape for array in outputs] != [array.shape for array in plain]:
            return []
        marks = [mark | (distances(a, b) > 0) for mark, a, b in zip(marks, outputs, plain, strict=True)]
    settled = {}
    for (name, right), mark, own in zip(wanted.items(), marks, got, strict=True):
        right = np.asarray(right)
        settled[name] = np.where(mark, own, right).astype(right.dtype)
    return sorted(met.rules) if difference(got, settled, rtol, atol) is None else []
