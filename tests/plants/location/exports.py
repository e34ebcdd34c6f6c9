"""Exports that are wrong at a known operator and line: symbolics, translations, division of sizes, values baked in.

The line that a record has to name is the one that ends in ``# here``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.red import explain_cell
from conformance.process.worker.progress_note import Progress
from conformance.results.records.record import Record
from tests.plants.location.defects import BAKED, HALF, SIZES, SYMBOLICS, TRANSLATIONS

_MODULE = """
import math

import torch
import torch.nn.functional as F

{own}

class Planted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm2d(1)
        self.norm.running_mean.fill_(0.3)
        self.norm.running_var.fill_(0.002)

    def part(self, x{more}):
{lines}

    def forward(self, x{more}):
        before = torch.tanh(self.first(x)) * 2
        y = self.part(before{more})
        return torch.sigmoid(self.second(y)) + y.abs()
"""


@dataclass(frozen=True)
class Plant:
    """One defect."""

    name: str
    exporter: str
    python: str
    body: str
    operators: tuple[str, ...]
    """The names by which the operator may be called."""

    @property
    def line(self) -> int:
        return next(n for n, line in enumerate(self.python.splitlines(), 1) if line.rstrip().endswith("# here"))


def _plant(
    name: str, exporter: str, lines: str, operators: str, own: str = "", export: str = "", inputs: str = "",
    dims: str = "", more: str = "",
) -> Plant:  # fmt: skip
    python = _MODULE.format(
        own=textwrap.dedent(own).strip() + "\n",
        more=more,
        lines=textwrap.indent(textwrap.dedent(lines).strip(), " " * 8),
    )
    opset = 17 if exporter == "torchscript" else 18
    body = "\n".join([
        "module: beside.Planted",
        f'inputs: {{x: "float32[batch, 4]"{inputs}}}',
        f"dims: {{batch: 2..6{dims}}}",
        f"export: {{{exporter}: {{opsets: [{opset}]{export}}}}}",
    ])  # fmt: skip
    return Plant(name, exporter, python, body, tuple(operators.split()))


def _symbolic(operator: str) -> str:
    return f', symbolics: {{"{operator}": {{function: beside.symbolic, without: "another graph"}}}}'


def _translation(operator: str) -> str:
    return f', translations: {{"{operator}": beside.translation}}'


def plants() -> Iterator[Plant]:
    for name, operator, lines, parameters, wrong in SYMBOLICS:
        own = f"def symbolic({parameters}):\n{textwrap.indent(textwrap.dedent(wrong).strip(), '    ')}\n"
        yield _plant(f"symbolic: {name}", "torchscript", lines, operator.replace("::", "."), own, _symbolic(operator))
    for name, operator, lines, parameters, wrong in TRANSLATIONS:
        body = (
            f"    from onnxscript import opset18 as op\n\n{textwrap.indent(textwrap.dedent(wrong).strip(), '    ')}\n"
        )
        called = (
            operator.replace("::", ".").rpartition(".")[0] if operator.count(".") else operator.replace("::", ".")
        )
        yield _plant(
            f"translation: {name}", "dynamo", lines, called, f"def translation({parameters}):\n{body}",
            _translation(operator),
        )  # fmt: skip
    two = {"inputs": ', y: "float32[batch, n]"', "dims": ", n: 2..9", "more": ", y"}
    for name, lines, operators in SIZES:
        for exporter in ("torchscript", "dynamo"):
            own = HALF if "half(" in lines else ""
            yield _plant(f"sizes: {name}, {exporter}", exporter, lines, operators, own, **two)
    for name, lines, operators in BAKED:
        yield _plant(f"baked in: {name}", "torchscript", lines, operators, **two)


def record_of(plant: Plant, folder: Path, **settings: Any) -> Record:
    """Run the cell that a plant is about in this process; ``folder`` is made for it, ``settings`` are those of it."""
    (cell,) = (cell for cell in _cells(plant, folder) if cell.check == "accuracy" and cell.runtime == "onnxruntime")
    return explain_cell(Progress(), cell, Settings(store=folder / "store", **settings))


def _cells(plant: Plant, folder: Path) -> Iterator[Cell]:
    from conformance.case.files.case_file import load
    from conformance.case.plan.catalogue import plan

    folder.mkdir(parents=True)
    (folder / "beside.py").write_text(plant.python, encoding="utf-8")
    lines = "".join(f"  {line}\n" for line in plant.body.splitlines())
    (folder / "planted.yaml").write_text(f"planted:\n  about: a wrong export\n{lines}", encoding="utf-8")
    (case,) = load(folder / "planted.yaml")
    return plan(case)
