"""Running a case with a change, to see whether its cells pass then."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.errors import or_else
from conformance.process.worker.isolation import Death, Worker
from conformance.results.records.record import Record

TIMEOUT = 300.0
"""Seconds that a cell, or a question about a model, may take."""
PROVING = ("export", "accuracy", "specials", "fidelity")
"""The checks that have to pass with a change."""


@dataclass(frozen=True)
class Fix:
    """A change to a case with which the cells pass that did not."""

    what: str
    """What to do, in a few words."""
    paste: str
    """What to write into the case file."""
    shown: str
    """What was run to show it."""


Doing = Callable[[str, Mapping[str, object], float], object]


@dataclass(frozen=True)
class RepairTrials:
    """Runs cells of changed cases in a worker, with models in a store."""

    worker: Worker
    store: Path
    doing: Doing = lambda *_: None
    """Shows which cell is running, by its name, the last note of the worker and when it began."""

    def shown(self, cells: Sequence[Cell]) -> str | None:
        """Return what passing cells have verified; None where one fails, or none of accuracy or fidelity has passed.
        A cell that is skipped, as for a runtime that is not here, shows nothing either way."""
        passed: list[Cell] = []
        examples = 0
        for cell in cells:
            record = self.record(cell)
            if record.status == "passed":
                passed.append(cell)
                examples += record.examples
            elif record.status != "skipped":
                return None
        compared = examples and any(cell.check in ("accuracy", "fidelity") for cell in passed)
        return f"{len(passed)} cells pass, {examples} examples verified" if compared else None

    def record(self, cell: Cell) -> Record:
        """The record of a cell."""
        start = time.monotonic()
        runner = Runner(Settings(store=self.store, smallest=False), TIMEOUT, self.worker)
        return runner(cell, lambda note: self.doing(cell.id, note, start))

    def unharmed(self, cells: Sequence[Cell]) -> bool:
        """Return whether none of these cells fails otherwise than it is declared to."""
        return all(self.record(cell).status != "failed" for cell in cells)

    def call(self, function: Any, *arguments: object) -> Any:
        """Return what a function gives in the worker, which gets the worker's progress first; None where it raises or
        ends the process."""
        answer = or_else(None, partial(self.worker.call, function, *arguments, timeout=TIMEOUT))
        return None if isinstance(answer, Death) else answer


def changed(case: Case, **values: object) -> Case:
    """The case with other values, and without failures that it declares: with the change it has to pass."""
    return dataclasses.replace(case, says=case.says.model_copy(update={"fails": [], **values}), fails_lines=())


def proving(case: Case, record: Record, exporter: str, opset: int, checks: Collection[str] = PROVING) -> list[Cell]:
    """The cells of a changed case that have to pass: of that export, on the record's runtime and at its precision."""
    runtime, precision = record.runtime, record.precision

    def counts(cell: Cell) -> bool:
        if (cell.exporter, cell.opset) != (exporter, opset) or cell.check not in checks:
            return False
        if cell.check in ("export", "registration"):
            return True
        return cell.precision == precision and (runtime is None or cell.runtime in (None, runtime))

    return [cell for cell in plan(case) if counts(cell)]


@contextlib.contextmanager
def beside(case: Case, files: Mapping[str, str]) -> Iterator[Case]:
    """The case as if these files lay beside its own, in place of any of the same name: in a folder of links, since a
    process loads the Python of a folder once."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name).resolve()
        for entry in case.folder.resolve().iterdir():
            if entry.name not in files and not entry.name.startswith((".", "__pycache__")):
                (folder / entry.name).symlink_to(entry)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        yield dataclasses.replace(case, file=folder / case.file.name)


def listed(names: Iterable[str]) -> str:
    """A list as YAML has it, on one line."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
