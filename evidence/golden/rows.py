"""The failures whose explanations are kept: the plants of five pages, and the declared failures of the cases.

Each runs as in the benchmark that it comes from, but without its sound form, which has no failure to explain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Death, Worker
from evidence import passes as passes_page
from evidence.culprits import run as culprits
from evidence.golden.limits import CELL, patient
from evidence.reduction import run as reduction_run
from evidence.repairs import run as repairs_run
from tests.plants import planted, reduction, repairs
from tests.plants.location import exports as location
from tests.plants.passes import defects as passes
from tests.plants.plant import Plant


@dataclass(frozen=True)
class Explained:
    """What the suite says of a failure."""

    record: Mapping[str, Any]
    """``Record.as_dict`` of its cell."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What is kept beside the record's fields."""


@dataclass(frozen=True)
class Failure:
    """One row of the file, before it is run."""

    group: str
    id: str
    run: Callable[[Worker, Path], Explained | Death]
    """Runs it in a worker and in a folder that is made for it."""
    hangs: bool = False
    """Whether it ends at a time limit because that is the defect."""

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.id


def _hangs(plant: Plant) -> bool:
    """Return whether a plant hangs on purpose; such a plant says itself how long to wait for it."""
    default = next(item.default for item in dataclasses.fields(Plant) if item.name == "timeout")
    return plant.timeout != default


def _patient(plant: Plant) -> Plant:
    """Return the plant with more time for its cell, which a busy host may need; not for one that hangs on purpose."""
    seconds = plant.timeout if _hangs(plant) else CELL
    return dataclasses.replace(plant, timeout=seconds, settings=patient(plant.settings))


def failures(only: str | None = None) -> Iterator[Failure]:
    """Yield all rows, group by group, or those of the group ``only``."""
    for group, made in GROUPS.items():
        if only in (None, group):
            yield from made()


def _of_culprits() -> Iterator[Failure]:
    for table, plant in culprits.plants():
        yield _planted("culprits", table, plant, planted.run_planted, f"{plant.culprit}: {plant.name}")


def _of_passes() -> Iterator[Failure]:
    for plant in passes.plants():
        yield _planted("passes", passes_page.TABLE, plant, planted.run_planted)


def _of_reduction() -> Iterator[Failure]:
    for plant in reduction.plants():
        yield _planted("reduction", reduction_run.TABLE, plant, reduction_run.run_everywhere)
    for cell in reduction.declared():
        yield _without_declaration("reduction", cell, smallest=True)


def _planted(group: str, table: str, plant: Plant, how: Callable[..., Any], name: str | None = None) -> Failure:
    def run(worker: Worker, folder: Path) -> Explained:
        cell = planted.cell_of(plant, plant.case, folder)
        record, met = planted.asked(worker, how, _patient(plant), cell, folder, (table, plant.name))
        return Explained(record.as_dict(), {"met": met})

    return Failure(group, name or plant.name, run, _hangs(plant))


def _of_location() -> Iterator[Failure]:
    for plant in location.plants():

        def run(worker: Worker, folder: Path, name: str = plant.name) -> Explained | Death:
            answer = worker.call(run_located, name, folder, timeout=CELL)
            return answer if isinstance(answer, Death) else Explained(answer)

        yield Failure("location", plant.name, run)


def run_located(progress: Any, name: str, folder: Path) -> dict[str, Any]:
    """Return the record of a plant of ``tests.plants.location``; called in a worker."""
    (plant,) = (plant for plant in location.plants() if plant.name == name)
    return location.record_of(plant, folder, **patient({})).as_dict()


def _of_repairs() -> Iterator[Failure]:
    """Yield the plants with the changes that are proposed for them. Their smallest models and functions are searched
    as rows of other groups, where the same plants are."""
    for plant in repairs.plants():
        found = dataclasses.replace(_patient(plant), settings={**plant.settings, "smallest": False})

        def run(worker: Worker, folder: Path, plant: Plant = plant, found: Plant = found) -> Explained:
            cell, record, met = repairs_run.found_of(worker, found, folder)
            if record["status"] != "failed" or not met:
                return Explained(record, {"met": met})
            holding = repairs_run.with_plant(worker, plant)
            fixes = [f"{fix.what}: {fix.paste}" for fix in repairs_run.proposed(holding, cell, record, folder)]
            return Explained(record, {"met": met, "fixes": fixes})

        yield Failure("repairs", plant.name, run)


def _of_declared() -> Iterator[Failure]:
    """Yield each cell of which a failure is declared, without the declaration: a failure that is expected is not
    explained in full. The smallest model or function is searched in the first cell of each declaration only."""
    from conformance.case.files.case_file import case_files, load
    from conformance.case.plan.catalogue import plan
    from conformance.case.plan.expected import declared
    from conformance.extras.repairs.trials import changed
    from conformance.runtimes import registry

    seen: set[tuple[Path, int]] = set()
    for case in (case for file in case_files([ROOT / "cases"]) for case in load(file)):
        for cell in plan(case):
            if registry.absence(cell.runtime) is not None:
                continue
            places = {(case.file, case.line_of(entry)) for entry in declared(cell)}
            if places:
                new = not places <= seen
                seen |= places
                yield _without_declaration("declared", dataclasses.replace(cell, case=changed(case)), smallest=new)


def _without_declaration(group: str, cell: Cell, *, smallest: bool) -> Failure:
    def run(worker: Worker, folder: Path) -> Explained:
        settings = Settings(store=folder / "store" / "models", **patient({"smallest": smallest}))
        return Explained(Runner(settings, CELL, worker)(cell).as_dict())

    return Failure(group, f"declared: {cell.id}" if group == "reduction" else cell.id, run)


GROUPS: Mapping[str, Callable[[], Iterator[Failure]]] = {
    "culprits": _of_culprits,
    "passes": _of_passes,
    "location": _of_location,
    "reduction": _of_reduction,
    "repairs": _of_repairs,
    "declared": _of_declared,
}
