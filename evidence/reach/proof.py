"""Whether a declaration is one: the project reads it, draws its inputs, and computes what a direct call computes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conformance.case.draw.draw import Draw, Maker
from conformance.case.draw.shapes import trace_sizes
from conformance.case.files.case_file import load
from conformance.case.files.declaration import Case
from conformance.case.files.python import Folder
from conformance.case.samples.calls import Said
from conformance.models.reference.module_reference import ModuleReference
from conformance.models.reference.output_layout import array_of, tensors_of
from conformance.process.errors import CaseFileError, Stopped
from evidence.reach import held

Direct = Callable[[Sequence[torch.Tensor]], Any]
"""The call itself, with these tensors in place of a sample's."""


class Unproved(Exception):
    """A declaration is none, or computes something else; ``kind`` is why, and the text says more."""

    def __init__(self, kind: str, text: str = "") -> None:
        super().__init__(text)
        self.kind = kind


def prove(folder: Path, said: Said, direct: Direct) -> None:
    """Raises Unproved where what the case computes of inputs that it draws is not what ``direct`` does of them."""
    case = _read(folder, said)
    held.NAMES[:] = case.says.inputs
    with Folder.of(folder).active() as python, torch.no_grad():
        try:
            reference, make = ModuleReference(case, python), Maker(case, python.resolve)
            inputs = make(Draw(trace_sizes(case.dims, case.says.trace), "plain", 0))
            torch.manual_seed(1)
            first = reference({name: array.copy() for name, array in inputs.items()})
            torch.manual_seed(2)
            second = reference({name: array.copy() for name, array in inputs.items()})
            if not _equal(first, second):
                raise Unproved("random")
            torch.manual_seed(1)
            tensors = [torch.from_numpy(array.copy()) for array in inputs.values()]
            try:
                result = direct(tensors)
            except Exception as error:
                raise Unproved("direct call", f"{type(error).__name__}: {error}") from None
            wanted = [array_of(leaf) for leaf in tensors_of(result)]
        except Stopped as stopped:
            raise Unproved(stopped.error, stopped.reason) from None
    if not _equal(first, wanted):
        raise Unproved("another answer")


def _read(folder: Path, said: Said) -> Case:
    """The case as a file of its own has it."""
    text = json.dumps({"about": "a sample of PyTorch's", **said})
    file = folder / "case.yaml"
    file.write_text(f"sample: {text}\n", encoding="utf-8")
    try:
        (case,) = load(file)
    except CaseFileError as error:
        raise Unproved("not read", "; ".join(problem.message for problem in error.problems)) from None
    return case


def _equal(some: Sequence[np.ndarray[Any, Any]], others: Sequence[np.ndarray[Any, Any]]) -> bool:
    return len(some) == len(others) and all(
        one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        for one, other in zip(some, others, strict=True)
    )
