"""What the suite says of each mistake of ``lowerings.yaml``: the cells of its case run as a user runs them, in
processes that import the edited files. Each result is kept at once, so that the next call goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, run_python
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Death, Worker
from conformance.process.worker.warm import FOR_DYNAMO, prepare_process
from conformance.results.records.environment import code
from conformance.results.records.location import places_of
from conformance.results.records.record import Record
from tests.plants.location.lowerings import Lowering, lowerings, plant
from tests.plants.planted import Holding

RESULTS = ROOT / ".conformance" / "lowered"
CELL = 180.0
"""Seconds for a cell."""
_PLAIN = ("torch", "onnx", "onnxruntime", "hypothesis")
PRELOAD = {
    "torchscript": _PLAIN,
    "dynamo": (*_PLAIN, *(name for name in FOR_DYNAMO if name.startswith(("torch._", "sympy")))),
}
"""What workers have imported before an edit is put in place, so that they start quickly: none of the edited files."""
CHECKS = ("accuracy", "specials", "export")
"""In this order, until one is red; specials for what is wrong with NaN."""
KEPT = ("status", "stage", "error", "reason", "fault", "conclusion", "operator", "place", "seconds")


@dataclass(frozen=True)
class Result:
    """What became of one mistake."""

    name: str
    sound: str
    """How a cell ended without the mistake where it did not pass; then the mistake proves nothing."""
    check: str
    record: Mapping[str, Any]
    """Some fields of the record of the first red cell, or of the last of all."""
    line: str
    """The place that annotations get."""
    seconds: float
    """Of all cells that ran."""

    @property
    def plant(self) -> Lowering:
        return _by_name()[self.name]

    @property
    def told(self) -> Mapping[str, Any]:
        return self.record["operator"] or {}

    @property
    def red(self) -> bool:
        return bool(self.record["status"] == "failed")

    @property
    def counts(self) -> bool:
        """Return whether the mistake is one: sound without it, and red with it."""
        return not self.sound and self.red

    @property
    def at_fault(self) -> bool:
        return bool(self.record["fault"] == "exporter")

    @property
    def operator(self) -> bool:
        return self.told.get("operator") in self.plant.called.split()

    @property
    def placed(self) -> bool:
        """Return whether the line is right."""
        return (self.told.get("line") or self.line) == f"beside.py:{self.plant.line()}"

    @property
    def passed(self) -> bool:
        """Return whether the pass is named, and no other."""
        passes = self.told.get("passes") or []
        return len(passes) == 1 and passes[0].startswith(self.plant.passed)

    @property
    def second(self) -> bool:
        told = self.told.get("second") or {}
        return (
            told.get("operator") == self.plant.then and told.get("line") == f"beside.py:{self.plant.line('# then')}"
        )

    @property
    def wrong(self) -> bool:
        """Return whether a place is named that is not the right one."""
        named = self.told.get("operator"), self.told.get("line")
        return (named[0] is not None and not self.operator) or (named[1] is not None and not self.placed)

    @property
    def proposed_wrongly(self) -> bool:
        """Return whether a change is proposed that is not what was planted."""
        change, pattern = self.told.get("change"), self.plant.change
        return change is not None and not (pattern and re.search(pattern, change))

    @property
    def locating(self) -> float | None:
        seconds: float | None = self.record["seconds"].get("locate")
        return seconds

    @property
    def said(self) -> str:
        """Return what the record names, in short."""
        told = self.told
        if not told.get("operator") and not told.get("line") and not told.get("passes"):
            return f"nothing ({told.get('unable')} {told.get('detail', '')})".replace(" )", ")")[:160]
        words = [f"{told.get('operator')} at {told.get('line')}"]
        words += [f"passes {', '.join(told['passes'])}"] if told.get("passes") else []
        words += [f"change: {told['change']}"] if told.get("change") else []
        second = told.get("second")
        words += [f"then {second.get('operator')} at {second.get('line')}"] if second else []
        return "; ".join(words)


def _by_name() -> dict[str, Lowering]:
    return {one.name: one for one in lowerings()}


def state(lowering: Lowering) -> str:
    """Return what a result depends on: the package's code, the mistake and its module."""
    made_of = dataclasses.asdict(dataclasses.replace(lowering, change=""))
    text = json.dumps([code(), made_of, lowering.python, lowering.body], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def study(quick: bool, folder: Path = RESULTS) -> list[Result]:
    """Return the result of each mistake; those that ``folder`` has of this state of the code are not run. Each
    exporter has a process of its own: what workers may have imported before an edit depends on its files."""
    every = 16 if quick else 1
    for exporter in PRELOAD:
        run_python(ROOT, "-m", "evidence.location", "lowered", str(folder), exporter, str(every))
    kept = _kept(folder)
    return [kept[one.name, state(one)] for one in lowerings()[::every]]


def collect(folder: Path, exporter: str, every: int = 1, text: str = "") -> Iterator[Result]:
    """Yield the results of the mistakes of an exporter whose names have a text, or of some; each is kept at once."""
    folder.mkdir(parents=True, exist_ok=True)
    kept, file = _kept(folder), folder / "results.jsonl"
    chosen = [one for one in lowerings()[::every] if one.by == exporter and text in one.name]
    with tempfile.TemporaryDirectory() as name, _worker(exporter) as worker, _worker(exporter) as sound:
        for number, one in enumerate(chosen):
            if (one.name, state(one)) not in kept:
                print(f"{number + 1} of {len(chosen)}: {one.name}", file=sys.stderr, flush=True)
                result = _result(worker, sound, one, Path(name).resolve() / str(number))
                with file.open("a", encoding="utf-8") as results:
                    results.write(json.dumps({"state": state(one), **dataclasses.asdict(result)}) + "\n")
                yield result


def _worker(exporter: str) -> Worker:
    return Worker(PRELOAD[exporter], None, prepare)


def prepare() -> None:
    """Prepare a worker whose failing cells look for a small example for a second at most; they fail either way."""
    from conformance.diagnose import explain_failure

    prepare_process()
    explain_failure.SHRINK_SECONDS = 1.0  # how long a small example is looked for; what fails does either way


def _kept(folder: Path) -> dict[tuple[str, str], Result]:
    file, kept = folder / "results.jsonl", {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        told = json.loads(line)
        made_of = told.pop("state")
        kept[told["name"], made_of] = Result(**told)
    return kept


def _result(worker: Worker, sound: Worker, one: Lowering, folder: Path) -> Result:
    ended = next(filter(None, (_ended(sound, cell, folder) for cell in cells_of(one, folder / "sound"))), "")
    worker.replace()
    held_there: Any = Holding(worker, held, one.name)
    run = Runner(Settings(store=folder / "planted" / "store", smallest=False), CELL, held_there)
    start, record, cell = time.perf_counter(), None, None
    for cell in cells_of(one, folder / "planted"):
        record = run(cell)
        if record.status != "passed":
            break
    seconds = round(time.perf_counter() - start, 2)
    assert cell is not None and record is not None
    file, line = next(iter(places_of(record)), ("", 0))
    kept = {key: record.as_dict()[key] for key in KEPT}
    return Result(one.name, ended, cell.check, kept, f"{Path(file).name}:{line}", seconds)


def _ended(sound: Worker, cell: Cell, folder: Path) -> str:
    """Return how a cell ended without the mistake where it did not pass, else an empty text."""
    record = sound.call(run_sound, cell, Settings(store=folder / "store", smallest=False), timeout=CELL)
    if isinstance(record, Death):
        return record.how
    told = f"{record.stage}, {record.error}: {record.reason}"[:300]
    return "" if record.status == "passed" else told


def run_sound(progress: Any, cell: Cell, settings: Settings) -> Record:
    """In a worker: the record of a cell."""
    from conformance.cells.red import explain_cell

    return explain_cell(progress, cell, settings)


def cells_of(one: Lowering, folder: Path) -> list[Cell]:
    from conformance.case.files.case_file import load
    from conformance.case.plan.catalogue import plan

    folder.mkdir(parents=True)
    (folder / "beside.py").write_text(one.python, encoding="utf-8")
    lines = "".join(f"  {line}\n" for line in one.body.splitlines())
    (folder / "planted.yaml").write_text(f"planted:\n  about: a wrong lowering\n{lines}", encoding="utf-8")
    (case,) = load(folder / "planted.yaml")
    planned = [cell for cell in plan(case) if cell.precision == "fp32"]
    wanted = [check for check in CHECKS if check != "specials" or one.kind == "NaN"]
    return [cell for check in wanted for cell in planned if cell.check == check]


_planted: set[str] = set()


def held(progress: object, name: str, function: Any, arguments: tuple[object, ...]) -> Any:
    """In a worker: what a function gives while the files of a mistake are edited, as they stay in that process."""
    if name not in _planted:
        plant(_by_name()[name])
        _planted.add(name)
    return function(progress, *arguments)
