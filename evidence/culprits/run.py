"""All plants: each with its sound form first, in a store of its own, and who is named for it.

``study`` runs two parts side by side, each a process that prints a line of JSON for each of its plants.
"""

from __future__ import annotations

import dataclasses
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

from benchmarks.common import ROOT, run_python
from conformance.extras.mutants.study import hasty_worker
from conformance.process.worker.isolation import Worker
from conformance.results.records.location import places_of
from conformance.results.records.record import Record
from evidence.culprits.score import Verdict, named, verdict
from tests.plants.culprits import cases, conversion, doors, exporter, host, kernels, optimizer, real, reference
from tests.plants.plant import Culprit, Plant
from tests.plants.planted import asked, cell_of, ending, run_planted

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


def plants(tables: Sequence[Any] | None = None) -> list[tuple[str, Plant]]:
    """Return all plants, or those of some tables, each with the name of its table."""
    made = [(table.__name__, plant) for table in tables or (*TABLES, *DOORS) for plant in table.plants()]
    names = [(plant.culprit, plant.name) for _, plant in made]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"two plants are called {twice}"
    return made


@functools.cache
def study(quick: bool, only: Literal["tables", "doors"] = "tables") -> list[Outcome]:
    """The outcomes of all plants, in their order, from processes side by side; of the tables, or of the doors."""
    with ThreadPoolExecutor(PARTS) as pool:
        answers = list(pool.map(lambda part: _asked(part, 10 if quick else 1, only), range(PARTS)))
    outcomes = {(outcome.culprit, outcome.name): outcome for answer in answers for outcome in answer}
    order = [(plant.culprit, plant.name) for _, plant in plants()]
    return [outcomes[key] for key in order if key in outcomes]


def _asked(part: int, every: int, only: str) -> list[Outcome]:
    text = run_python(ROOT, "-m", "evidence.culprits", str(part), str(PARTS), str(every), only)
    return [Outcome(**json.loads(line)) for line in text.splitlines() if line.startswith('{"name"')]


def part(number: int, of: int, every: int, only: str = "", tables: Sequence[Any] | None = None) -> Iterator[Outcome]:
    """The outcomes of one part; plants in the same case are in one part, which runs its sound form once. ``only`` is
    ``tables``, ``doors``, or a text in the name of each."""
    named = {"tables": TABLES, "doors": DOORS}
    chosen = [
        (table, plant) for table, plant in plants(named.get(only, tables))[::every]
        if only in named or only in f"{plant.culprit}: {plant.name}"
    ]  # fmt: skip
    bodies = {body: place for place, body in enumerate(dict.fromkeys(_key(plant) for _, plant in chosen))}
    mine = [(table, plant) for table, plant in chosen if bodies[_key(plant)] % of == number]
    sound: dict[tuple[Any, ...], str] = {}
    with tempfile.TemporaryDirectory() as name, hasty_worker() as worker:
        for place, (table, found) in enumerate(mine):
            plant = dataclasses.replace(found, settings={**found.settings, "smallest": False})
            print(f"{place + 1} of {len(mine)}: {plant.culprit}, {plant.name}", file=sys.stderr, flush=True)
            start = time.monotonic()
            key = _key(plant)
            if key not in sound:
                sound[key] = _how_sound(worker, plant, Path(name) / f"sound{number}-{place}")
            folder = Path(name) / f"planted{number}-{place}"
            cell = cell_of(plant, plant.case, folder)
            record, planted = asked(worker, run_planted, plant, cell, folder, (table, plant.name))
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
    record, _ = asked(worker, run_planted, plant, cell_of(plant, plant.twin, folder), folder, None)
    return "" if record.status == "passed" else ending(record)
