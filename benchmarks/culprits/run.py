"""All plants: each with its sound form first, in a store of its own, and who is named for it.

``study`` runs two parts side by side, each a process that prints a line of JSON for each of its plants.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.common import run_python
from benchmarks.culprits import cases, conversion, doors, exporter, host, kernels, optimizer, real, reference
from benchmarks.culprits.plant import Culprit, Plant, Planted, Written
from benchmarks.culprits.score import Verdict, named, verdict
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.process.worker.isolation import Death, Worker
from conformance.results.records.location import places_of
from conformance.results.records.record import Record

ROOT = Path(__file__).parent.parent.parent
PARTS = 2
TABLES = (exporter, optimizer, kernels, real, conversion, reference, cases, host)
DOORS = (doors,)
"""Tables of a section of their own, which are measured alone."""
_FIELDS = ("status", "stage", "error", "fault", "conclusion", "reason", "witnesses", "own_code", "cause", "operator")
_SAID = ("status", "stage", "error", "fault", "conclusion")


@dataclass(frozen=True)
class Outcome:
    """What became of a plant."""

    name: str
    culprit: Culprit
    verdict: Verdict
    record: Mapping[str, Any]
    """``_FIELDS`` of its record."""
    planted: bool
    """Whether the defect was met at all."""
    sound: str
    """How its sound form ended where it did not pass, and then the plant proves nothing; else empty."""
    seconds: float
    placed: bool | None = None
    """True where the first line that it names is one of those that are wrong; None where it need not name one."""

    @property
    def counts(self) -> bool:
        return self.planted and not self.sound

    @property
    def said(self) -> str:
        """Whom the record names, and how it ended."""
        who = named(self.record) or "nobody"
        ended = [str(self.record[key]) for key in _SAID if self.record[key] is not None]
        return f"{who} ({', '.join(ended)})"


def plants(tables: Sequence[Any] | None = None) -> list[Plant]:
    made = [plant for table in tables or (*TABLES, *DOORS) for plant in table.plants()]
    names = [(plant.culprit, plant.name) for plant in made]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"two plants are called {twice}"
    return made


@functools.cache
def study(quick: bool, only: Literal["tables", "doors"] = "tables") -> list[Outcome]:
    """The outcomes of all plants, in their order, from processes side by side; of the tables, or of the doors."""
    with ThreadPoolExecutor(PARTS) as pool:
        answers = list(pool.map(lambda part: _asked(part, 10 if quick else 1, only), range(PARTS)))
    outcomes = {(outcome.culprit, outcome.name): outcome for answer in answers for outcome in answer}
    order = [(plant.culprit, plant.name) for plant in plants()]
    return [outcomes[key] for key in order if key in outcomes]


def _asked(part: int, every: int, only: str) -> list[Outcome]:
    text = run_python(ROOT, "-m", "benchmarks.culprits", str(part), str(PARTS), str(every), only)
    return [Outcome(**json.loads(line)) for line in text.splitlines() if line.startswith('{"name"')]


def part(number: int, of: int, every: int, only: str = "") -> Iterator[Outcome]:
    """The outcomes of one part; plants in the same case are in one part, which runs its sound form once. ``only`` is
    ``tables``, ``doors``, or a text in the name of each."""
    named = {"tables": TABLES, "doors": DOORS}
    chosen = [
        plant for plant in plants(named.get(only))[::every]
        if only in named or only in f"{plant.culprit}: {plant.name}"
    ]  # fmt: skip
    bodies = {body: place for place, body in enumerate(dict.fromkeys(_key(plant) for plant in chosen))}
    mine = [plant for plant in chosen if bodies[_key(plant)] % of == number]
    sound: dict[tuple[Any, ...], str] = {}
    with tempfile.TemporaryDirectory() as name, _worker() as worker:
        for place, plant in enumerate(mine):
            print(f"{place + 1} of {len(mine)}: {plant.culprit}, {plant.name}", file=sys.stderr, flush=True)
            start = time.monotonic()
            key = _key(plant)
            if key not in sound:
                sound[key] = _how_sound(worker, plant, Path(name) / f"sound{number}-{place}")
            record, planted = record_of(worker, plant, plant.case, Path(name) / f"planted{number}-{place}", True)
            fields = {field: record.as_dict()[field] for field in _FIELDS}
            told = verdict(plant.culprit, plant.own_code, fields)
            seconds = round(time.monotonic() - start, 2)
            placed = None if plant.lines is None else _is_placed(plant.lines, record)
            yield Outcome(plant.name, plant.culprit, told, fields, planted, sound[key], seconds, placed)


def _is_placed(lines: range, record: Record) -> bool:
    file, line = next(places_of(record))
    return Path(file).name == "beside.py" and line in lines


def _key(plant: Plant) -> tuple[Any, ...]:
    """What the sound form of a plant is."""
    instructions = plant.settings.get("instructions")
    return plant.twin, plant.check, plant.precision, plant.settings.get("examples"), instructions


def _how_sound(worker: Worker, plant: Plant, folder: Path) -> str:
    if plant.twin is None:
        return ""
    record, _ = record_of(worker, plant, plant.twin, folder, False)
    return "" if record.status == "passed" else f"{record.status}, {record.stage}, {record.error}: {record.reason}"


def _worker(memory_gib: float | None = None) -> Worker:
    """A worker whose failing cells look for a small example for a second at most."""
    return Worker(
        ["conformance.process.worker.preload", "conformance.process.worker.preload_dynamo"], memory_gib, _prepare
    )


def _prepare() -> None:
    from conformance.diagnose import explain_failure
    from conformance.process.worker.warm import prepare_process

    prepare_process()
    explain_failure.SHRINK_SECONDS = 1.0


def record_of(
    worker: Worker, plant: Plant, written: Written, folder: Path, with_defect: bool, *, smallest: bool = False
) -> tuple[Record, bool]:
    """Run the cell of a plant, or of its sound form, in a folder of its own; with ``smallest`` look for the smallest
    model or function that fails alike.

    Return its record, and whether the defect was met, which it was if it ended the process.
    """
    from conformance.cells.runner import died

    cell = cell_of(plant, written, folder)
    settings = Settings(store=folder / "store", smallest=smallest, **plant.settings)
    if plant.alone:
        worker.replace()
    with contextlib.ExitStack() as stack:
        if plant.memory_gib is not None and with_defect:
            worker = stack.enter_context(_worker(plant.memory_gib))
        answer = worker.call(
            run_planted, cell, settings, (plant.culprit, plant.name) if with_defect else None, timeout=plant.timeout
        )
    if isinstance(answer, Death):
        return died(cell, answer, settings.instructions), True
    return answer


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


def run_planted(progress: Any, cell: Cell, settings: Settings, key: tuple[str, str] | None) -> tuple[Record, bool]:
    """In a worker: the record of a cell with the plant of that culprit and name, or without any."""
    from conformance.cells.run_cell import run_cell

    if key is None:
        return run_cell(progress, cell, settings), False
    (plant,) = (plant for plant in plants() if (plant.culprit, plant.name) == key)
    planted = Planted()
    with plant.planting(planted):
        record = run_cell(progress, cell, settings)
    return record, planted.times > 0
