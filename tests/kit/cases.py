"""Cases written in a few lines, and their cells, run in the process of the test."""

import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.case.files.case_file import load
from conformance.case.files.declaration import Case
from conformance.case.files.dims import Dims, Expression, Range
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.red import explain_cell
from conformance.process.errors import CaseFileError, Problem
from conformance.process.worker.progress_note import Progress
from conformance.results.records import text
from conformance.results.records.record import Record

QUICK = "export: {torchscript: [17]}\nruntimes: onnxruntime\nspecials: false"
"""Of a case whose cells are to be few: one export, one runtime, no special values."""


def say(*parts: str) -> str:
    """The parts of a case, each indented as it may be, as one text."""
    return "\n".join(textwrap.dedent(part).strip("\n") for part in parts)


def case_of(forward: str, *more: str, dims: str = "batch: 1..9", **shapes: str) -> str:
    """A case with this forward of float32 inputs of these shapes: of ``x`` with three columns if none is given."""
    inputs = ", ".join(f'{name}: "float32{shape}"' for name, shape in (shapes or {"x": "[batch, 3]"}).items())
    quoted = forward if forward.startswith('"') else f'"{forward}"'
    return say(f"forward: {quoted}", f"inputs: {{{inputs}}}", *([f"dims: {{{dims}}}"] if dims else []), *more)


def module_of(name: str, more: str = "", *, shape: str = "batch, 4") -> str:
    """A case of this module in beside.py; ``more`` are sizes that a second input has, as in ``n: 2..9``."""
    second = f', y: "float32[batch, {more[0]}]"' if more else ""
    return say(
        f"module: beside.{name}",
        f'inputs: {{x: "float32[{shape}]"{second}}}',
        f"dims: {{batch: 1..4{', ' if more else ''}{more}}}",
    )


def with_symbolic(
    operator: str, opsets: str = "[17]", without: str = "another graph", function: str = "beside.symbolic"
) -> str:
    """The export of a case whose symbolic is ``symbolic`` in beside.py, or another function."""
    entry = f'{{function: {function}, without: "{without}"}}'
    return f"export: {{torchscript: {{opsets: {opsets}, symbolics: {{{operator}: {entry}}}}}}}"


def write_case(folder: Path, body: str, python: str = "", name: str = "planted") -> Path:
    """A case file with one case whose ``about`` needs no saying, and ``beside.py`` where there is ``python``."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.yaml"
    text = textwrap.indent(textwrap.dedent(body).strip("\n"), "  ")
    file.write_text(f"{name}:\n  about: a test of the harness\n{text}\n", encoding="utf-8")
    if python:
        (folder / "beside.py").write_text(textwrap.dedent(python), encoding="utf-8")
    return file


def load_case(folder: Path, body: str, python: str = "", name: str = "planted") -> Case:
    """The only case of a file with that body."""
    (case,) = load(write_case(folder, body, python, name))
    return case


def dims_of(where: Sequence[str] = (), **ranges: str) -> Dims:
    """The dims of a case with these ranges and conditions."""
    found = {name: Range.parse(text) for name, text in ranges.items()}
    return Dims.build(found, [Expression.parse(text) for text in where])


def problems_of(folder: Path, text: str | bytes, name: str = "wrong.yaml") -> list[Problem]:
    """All problems of a file with that content; empty where it loads."""
    file = folder / name
    file.write_bytes(textwrap.dedent(text).encode() if isinstance(text, str) else text)
    try:
        load(file)
    except CaseFileError as error:
        return error.problems
    return []


@dataclass(frozen=True)
class Bench:
    """Folders for planted cases, and the store that all of them share.

    Each case gets a folder of its own: a process loads the Python beside a case file once.
    """

    folder: Path
    store: Path

    def cells(self, body: str, python: str = "") -> list[Cell]:
        folder = tempfile.mkdtemp(dir=self.folder)
        return list(plan(load_case(Path(folder), body, python)))

    def cell(self, body: str, python: str = "", **which: Any) -> Cell:
        """Return the only cell that is so; of accuracy unless ``which`` says otherwise."""
        wanted = {"check": "accuracy", **which}.items()
        (found,) = (one for one in self.cells(body, python) if all(getattr(one, name) == to for name, to in wanted))
        return found

    def run(
        self,
        body: str,
        python: str = "",
        *,
        check: str = "accuracy",
        runtime: str = "onnxruntime",
        exporter: str | None = None,
        opset: int | None = None,
        precision: str | None = None,
        examples: int = 8,
        **settings: Any,
    ) -> Record:
        """The record of the only cell of that check; torchscript at opset 17 where the body has no export."""
        if "export:" not in body:
            body = say(body, "export: {torchscript: [17]}")
        (cell,) = (
            cell
            for cell in self.cells(body, python)
            if cell.check == check
            and cell.runtime in (None, runtime)
            and exporter in (None, cell.exporter)
            and opset in (None, cell.opset)
            and precision in (None, cell.precision)
        )
        return self.run_cell(cell, examples=examples, **settings)

    def run_cell(self, cell: Cell, *, smallest: bool = False, **settings: Any) -> Record:
        """Run a cell; ``smallest`` also looks for the smallest model or function that fails alike, for seconds."""
        return explain_cell(Progress(), cell, Settings(store=self.store, smallest=smallest, **settings))


def verdict(record: Record) -> tuple[str, str | None, str | None, str | None]:
    """What tests of a defect are about: status, stage, error, fault."""
    return record.status, record.stage, record.error, record.fault


def details(record: Record) -> list[str]:
    """The lines that explain a record."""
    return text.details(record)


PASSED = ("passed", None, None, None)
