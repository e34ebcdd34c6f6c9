"""Find out what becomes of mutants: killed by a cell of the case, survived it, or equal to the sound model."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.extras.mutants.probe import Judged, MadeMutant, differs, judge, make
from conformance.process.worker.isolation import Death, Worker
from conformance.process.worker.warm import prepare_process
from conformance.results.records.record import Record
from conformance.runtimes import registry

TIMEOUT = 180.0
"""Seconds that a cell, or a question about one mutant, may take."""
PREFERRED = "onnxruntime"
"""The runtime that a mutant is run on where the case has it: a defect of a model shows on any."""


@dataclass(frozen=True)
class Fate:
    """The fate of a mutant."""

    made: MadeMutant
    record: Record | None
    """The record of the cell that failed for it; None where all passed."""
    differs: bool
    """Of one that was not killed: whether a legal input tells it from the sound model."""
    judged: Judged | None = None
    """Of one that was not killed: what the cell's comparison says on inputs that the cell did not draw."""

    @property
    def called(self) -> Literal["killed", "survived", "equal"]:
        if self.record is not None:
            return "killed"
        return "survived" if self.differs or (self.judged is not None and self.judged.refused) else "equal"


@dataclass(frozen=True)
class UnfitModel:
    """A model that does not pass its own cell, so that nothing can be said of its mutants."""

    record: Record


def hasty_worker() -> Worker:
    """A worker whose failing cells look for a small example for a second at most; they fail either way. It imports at
    once what exporting with dynamo needs, as a failing cell exports again to say where it fails."""
    return Worker(
        ["conformance.process.worker.preload", "conformance.process.worker.preload_dynamo"], initializer=_prepare
    )


def _prepare() -> None:
    from conformance.diagnose import explain_failure

    prepare_process()
    explain_failure.SHRINK_SECONDS = 1.0


def checks_of(cells: Iterable[Cell]) -> list[list[Cell]]:
    """The cells that have to notice a wrong model, for each case and exporter: accuracy at fp32 of the highest opset
    on one runtime, and the specials of the same where the case has them."""
    groups: dict[tuple[Path, str, str], list[Cell]] = {}
    for cell in cells:
        if cell.check in ("accuracy", "specials") and not cell.converted and cell.runtime is not None:
            groups.setdefault((cell.case.file, cell.case.name, cell.exporter), []).append(cell)
    found = (_of_one_model(group) for group in groups.values())
    return [checks for checks in found if checks]


def _of_one_model(cells: Sequence[Cell]) -> list[Cell]:
    ready = [cell for cell in cells if not registry.named(f"{cell.runtime}").builds]
    accuracy = [cell for cell in ready if cell.check == "accuracy"]
    if not accuracy:
        return []
    first = max(accuracy, key=lambda cell: (cell.opset, cell.runtime == PREFERRED))
    same = (first.opset, first.runtime)
    return [first, *(cell for cell in ready if cell.check == "specials" and (cell.opset, cell.runtime) == same)]


def record_of(worker: Worker, cell: Cell, store: Path, *, smallest: bool = False) -> Record:
    """The record of a cell of the model in ``store``."""
    return Runner(Settings(store=store, smallest=smallest), TIMEOUT, worker)(cell)


def made_of(worker: Worker, cell: Cell, store: Path, folder: Path, count: int) -> list[MadeMutant]:
    """Up to ``count`` mutants of the model that a cell has in ``store``, in stores of their own below ``folder``.

    Raises RuntimeError where making them ends the process.
    """
    made = worker.call(make, cell, store, folder, count, timeout=TIMEOUT)
    if isinstance(made, Death):
        raise RuntimeError(f"{cell.id}: making mutants ended the process: {made.how}\n{made.output}")
    return list(made)


def fate_of(worker: Worker, made: MadeMutant, checks: Sequence[Cell], sound: Path) -> Fate:
    """Run the cells ``checks`` of a mutant; of one that passes them all, ask whether it is another model than the
    one in the store ``sound``."""
    for cell in checks:
        record = record_of(worker, cell, made.store)
        if record.status != "passed":
            return Fate(made, record, True)
    cell, specials = checks[0], len(checks) > 1
    told = worker.call(differs, cell, sound, made.store, specials, timeout=TIMEOUT)
    answer = worker.call(judge, cell, made.store, specials, timeout=TIMEOUT)
    judged = Judged(0, 1, 0, 0.0, answer.how) if isinstance(answer, Death) else answer
    return Fate(made, None, isinstance(told, Death) or told, judged)


def fates(
    worker: Worker, checks: Sequence[Cell], store: Path, folder: Path, count: int
) -> Iterator[Fate | UnfitModel]:
    """Yield what becomes of up to ``count`` mutants of one model; Unfit where the model itself does not pass
    ``checks[0]``. Others of these cells are asked where they pass."""
    records = [record_of(worker, cell, store) for cell in checks]
    if records[0].status != "passed":
        yield UnfitModel(records[0])
        return
    passing = [cell for cell, record in zip(checks, records, strict=True) if record.status == "passed"]
    for made in made_of(worker, checks[0], store, folder, count):
        yield fate_of(worker, made, passing, store)
        shutil.rmtree(made.store.parent, ignore_errors=True)
