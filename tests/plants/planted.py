"""Planted defects of a group run in a worker: what it takes, for those that read whole records.

A table is a module with ``plants()``, as those of ``tests.plants.culprits``. A worker finds a plant by its table and
name, since what plants it cannot be sent there.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.diagnose.nodes.other_runtime import forget
from conformance.extras.mutants.study import hasty_worker
from conformance.process.worker.isolation import Death, Worker
from conformance.process.worker.warm import new_worker
from conformance.results.records.record import Record
from tests.plants.plant import Plant, Planted, Written

CellsOf = Callable[[Plant, Written, Path], Sequence[Cell]]
"""The cells to run of a plant's case, written into a folder."""


@dataclass(frozen=True)
class Seen:
    """What the suite says of a plant."""

    plant: Plant
    records: list[dict[str, Any]]
    """``Record.as_dict`` of its cells."""
    planted: bool
    """Whether the defect was met at all."""
    sound: str = ""
    """How a cell ended without the defect where it did not pass, and then the plant proves nothing; else empty."""

    @property
    def counts(self) -> bool:
        return self.planted and not self.sound

    @property
    def record(self) -> dict[str, Any]:
        """The first record that failed, or the first of all."""
        return next((one for one in self.records if one["status"] == "failed"), self.records[0])

    @property
    def failed(self) -> bool:
        return self.record["status"] == "failed"

    @property
    def void(self) -> str:
        """Why the plant proves nothing, for a list of a page."""
        why = f"without the defect it is {self.sound[:200]}" if self.sound else "the defect was not met"
        return f"- {self.plant.name}: {why}"


def part_of(plants: Sequence[Plant], quick: bool, every: int = 8) -> list[Plant]:
    """All plants, or in quick mode each eighth."""
    return list(plants)[:: every if quick else 1]


def one_cell(plant: Plant, written: Written, folder: Path) -> list[Cell]:
    """The cell that the plant is about."""
    return [cell_of(plant, written, folder)]


def cell_of(plant: Plant, written: Written, folder: Path) -> Cell:
    """The cell that a plant is about, of a case in a folder of its own."""
    from conformance.case.files.case_file import load
    from conformance.case.plan.catalogue import plan

    folder.mkdir(parents=True)
    body = "\n".join(f"  {line}" for line in written.body.splitlines())
    (folder / "case.yaml").write_text(f"planted:\n  about: a plant\n{body}\n", encoding="utf-8")
    (folder / "beside.py").write_text(written.python, encoding="utf-8")
    (case,) = load(folder / "case.yaml")
    (cell,) = (cell for cell in plan(case) if (cell.check, cell.precision) == (plant.check, plant.precision))
    return cell


def walk(
    table: str, plants: Sequence[Plant], quick: bool, cells: CellsOf = one_cell, run: Callable[..., Any] | None = None
) -> Iterator[Seen]:
    """The plants of a table, one after another, each with its sound form first. ``run`` is ``run_planted`` or wraps
    it, by a name that can be imported."""
    with tempfile.TemporaryDirectory() as name, hasty_worker() as worker:
        for number, plant in enumerate(plants):
            if not quick:
                print(f"{number + 1} of {len(plants)}: {plant.name}", file=sys.stderr, flush=True)
            yield _seen(worker, table, plant, Path(name) / str(number), cells, run or run_planted)


def _seen(worker: Worker, table: str, plant: Plant, folder: Path, cells: CellsOf, run: Callable[..., Any]) -> Seen:
    sound = ""
    if plant.twin is not None:
        for cell in cells(plant, plant.twin, folder / "sound"):
            record, _ = asked(worker, run_planted, plant, cell, folder / "sound", None)
            if record.status not in ("passed", "skipped") and not sound:
                sound = ending(record)
    found = [
        asked(worker, run, plant, cell, folder / "planted", (table, plant.name))
        for cell in cells(plant, plant.case, folder / "planted")
    ]
    return Seen(plant, [record.as_dict() for record, _ in found], any(met for _, met in found), sound)


def ending(record: Record) -> str:
    """Say how a cell ended, of one that ought to have passed."""
    return f"{record.status}, {record.stage}, {record.error}: {record.reason}"


def asked(
    worker: Worker, run: Callable[..., Any], plant: Plant, cell: Cell, folder: Path, key: tuple[str, str] | None
) -> tuple[Record, bool]:
    """The record of a cell, and whether the defect was met, which it was if it ended the process."""
    from conformance.cells.runner import died

    settings = Settings(store=folder / "store" / "models", **plant.settings)
    if plant.alone:
        worker.replace()
    limited = plant.memory_gib is not None and key is not None
    with new_worker(plant.memory_gib, dynamo=True) if limited else contextlib.nullcontext(worker) as worker:
        answer = worker.call(run, cell, settings, key, timeout=plant.timeout)
    return (died(cell, answer, settings.instructions), True) if isinstance(answer, Death) else answer


def run_planted(progress: Any, cell: Cell, settings: Settings, key: tuple[str, str] | None) -> tuple[Record, bool]:
    """In a worker: the record of a cell with the plant of that table and name, or without any."""
    from conformance.cells.red import explain_cell

    forget()
    with planting(key) as planted:
        record = explain_cell(progress, cell, settings)
    return record, planted.times > 0


class Holding:
    """A worker whose calls have a plant; another worker does the work. ``held`` is called there with ``plant``, the
    function and its arguments."""

    def __init__(self, worker: Worker, held: Callable[..., Any], plant: Any) -> None:
        self._worker, self._held, self._plant = worker, held, plant

    def begin(self, function: Callable[..., object], *args: object) -> None:
        self._worker.begin(self._held, self._plant, function, args)

    def call(self, function: Callable[..., object], *args: object, timeout: float) -> Any:
        self.begin(function, *args)
        return self._worker.finish(timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


_held: dict[tuple[str, str], contextlib.ExitStack] = {}


def held(progress: object, key: tuple[str, str], function: Callable[..., Any], args: tuple[object, ...]) -> Any:
    """In a worker: what a function gives while the plant of a table and name is there, for ``Holding``.

    The plant stays until the process ends: one that came and went would be taken for what a case's Python does.
    """
    if key not in _held:
        _held[key] = contextlib.ExitStack()
        _held[key].enter_context(planting(key))
    return function(progress, *args)


@contextlib.contextmanager
def planting(key: tuple[str, str] | None) -> Iterator[Planted]:
    """Holds the defect of the plant of that table and name inside its block."""
    planted = Planted()
    if key is None:
        yield planted
        return
    table, name = key
    (plant,) = (plant for plant in importlib.import_module(table).plants() if plant.name == name)
    with plant.planting(planted):
        yield planted
