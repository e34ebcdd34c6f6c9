"""Each plant as a cell of the suite runs it, and what its record names."""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.location.plants import Plant, plants
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.red import explain_cell
from conformance.process.worker.progress_note import Progress
from conformance.results.records.record import Record


@dataclass(frozen=True)
class Outcome:
    """What became of a plant."""

    plant: Plant
    failed: bool
    fault: str | None
    told: Mapping[str, Any]
    seconds: float
    """That looking for the operator has taken."""

    @property
    def operator(self) -> bool:
        return self.told.get("operator") in self.plant.operators

    @property
    def line(self) -> bool:
        return self.told.get("line") == f"beside.py:{self.plant.line}"

    @property
    def named(self) -> str:
        if self.told.get("unable"):
            return f"nothing ({self.told['unable']} {self.told.get('detail', '')})".replace(" )", ")")
        return f"{self.told.get('operator')} at {self.told.get('line')}, node {self.told.get('type')}"


@functools.cache
def study(quick: bool) -> list[Outcome]:
    chosen = list(plants())[:: 8 if quick else 1]
    with tempfile.TemporaryDirectory() as name:
        return [_outcome(plant, Path(name) / str(number), quick) for number, plant in enumerate(chosen)]


def _outcome(plant: Plant, folder: Path, quick: bool) -> Outcome:
    if not quick:
        print(plant.name, file=sys.stderr, flush=True)
    record = record_of(plant, folder)
    return Outcome(
        plant, record.status == "failed", record.fault, record.operator or {}, record.seconds.get("locate", 0.0)
    )


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
