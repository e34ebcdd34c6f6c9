"""What the tests share: case files written in a few lines, cells run in this process, and whole pytest runs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.case.declaration import Case
from conformance.case.file import load
from conformance.checks.run_cell import run_cell
from conformance.errors import CaseFileError, Problem
from conformance.plan.catalogue import plan
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.records import text
from conformance.records.record import Record
from conformance.worker.progress import Progress


def say(*parts: str) -> str:
    """The parts of a case, each indented as it may be, as one text."""
    return "\n".join(textwrap.dedent(part).strip("\n") for part in parts)


def with_symbolic(operator: str, opsets: str = "[17]", without: str = "another graph") -> str:
    """The export of a case whose symbolic is ``symbolic`` in beside.py."""
    entry = f'{{function: beside.symbolic, without: "{without}"}}'
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

    def run(
        self,
        body: str,
        python: str = "",
        *,
        check: str = "accuracy",
        runtime: str = "onnxruntime",
        exporter: str | None = None,
        opset: int | None = None,
        examples: int = 8,
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
        )
        return self.run_cell(cell, examples=examples)

    def run_cell(self, cell: Cell, **settings: Any) -> Record:
        return run_cell(Progress(), cell, Settings(store=self.store, **settings))


def verdict(record: Record) -> tuple[str, str | None, str | None, str | None]:
    """What tests of a defect are about: status, stage, error, fault."""
    return record.status, record.stage, record.error, record.fault


def details(record: Record) -> list[str]:
    """The lines that explain a record."""
    return text.details(record.as_dict())


PASSED = ("passed", None, None, None)


# ---- whole pytest runs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """A pytest run in a process of its own."""

    folder: Path
    code: int
    text: str

    @property
    def header(self) -> dict[str, Any]:
        return self._lines()[0]

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """The records by cell id."""
        records = self._lines()[1:]
        by_id = {record["id"]: record for record in records}
        assert len(by_id) == len(records), "a cell has two records"
        return by_id

    @property
    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "reports/latest/run.json").read_text())
        return found

    def _lines(self) -> list[dict[str, Any]]:
        text = (self.folder / "reports/latest/records.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def failure(self, name: str) -> str:
        """The text of one failing test, by a part of its id."""
        sections = self.text.split("\n____")
        (found,) = (one for one in sections if name in one.split("\n", 1)[0])
        return found.split("\n", 1)[1].split("\n====")[0]


def run_suite(folder: Path, *arguments: str | Path, **environment: str) -> Outcome:
    """``pytest --pyargs conformance`` from ``folder``, as after an installation; none of its caches are kept."""
    return run_pytest(folder, "--pyargs", "conformance", *arguments, **environment)


def run_pytest(folder: Path, *arguments: str | Path, **environment: str) -> Outcome:
    """pytest from ``folder``, with the plugins that are installed."""
    folder.mkdir(parents=True, exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, arguments)],
        cwd=folder,
        env={**clean, "COLUMNS": "160", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
        check=False,
    )
    return Outcome(folder, done.returncode, done.stdout)


Alter = Callable[[dict[str, Any], list[Any]], list[Any]]


def altered(original: Any, alter: Alter) -> Any:
    """A runtime's opener whose sessions give what ``alter(inputs, outputs)`` makes of their outputs."""

    @contextlib.contextmanager
    def open_altered(model, libraries, **options):
        with original(model, libraries, **options) as session:
            run = session.run
            session.run = lambda inputs: alter(inputs, run(inputs))
            yield session

    return open_altered
