"""Each defect as a cell finds it, what is proposed for it, and the cells with each proposal pasted into the case."""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.case.plan.cell import Cell
from conformance.extras.repairs.fixes import fixes
from conformance.extras.repairs.trials import PROVING, Fix, RepairTrials
from conformance.process.worker.isolation import Worker
from conformance.process.worker.warm import new_worker
from conformance.results.records.findings import findings
from conformance.results.records.record import Record
from tests.plants.plant import Plant
from tests.plants.planted import Holding, asked, cell_of, held, part_of, run_planted
from tests.plants.repairs import plants

TABLE = "tests.plants.repairs"


@dataclass(frozen=True)
class Proposal:
    """A change that was proposed, and how the cells end with it."""

    what: str
    wrong: str
    """Of the first cell that does not pass with it, how it ended; empty where all pass."""


@dataclass(frozen=True)
class Outcome:
    """What became of a defect."""

    name: str
    located: str
    """The operator, the pass or the precision that the record names; empty where the defect was not located."""
    proposals: list[Proposal] = field(default_factory=list)
    void: str = ""
    """Why it proves nothing."""

    @property
    def mended(self) -> bool:
        return any(not one.wrong for one in self.proposals)


@functools.cache
def study(quick: bool) -> list[Outcome]:
    chosen = part_of(list(plants()), quick, 27)
    found = []
    with tempfile.TemporaryDirectory() as name, new_worker(dynamo=True) as worker:
        for number, plant in enumerate(chosen):
            if not quick:
                print(f"{number + 1} of {len(chosen)}: {plant.name}", file=sys.stderr, flush=True)
            found.append(outcome_of(worker, plant, Path(name) / str(number)))
    return found


def outcome_of(worker: Worker, plant: Plant, folder: Path) -> Outcome:
    """What becomes of a plant, in a folder of its own."""
    cell, told, met = found_of(worker, plant, folder)
    if told["status"] != "failed" or not met:
        return Outcome(plant.name, "", void=f"the cell is {told['status']}")
    planted = with_plant(worker, plant)
    proposals = [
        Proposal(fix.what, pasted(planted, cell, told, fix, folder / f"pasted{number}"))
        for number, fix in enumerate(proposed(planted, cell, told, folder))
    ]
    return Outcome(plant.name, located(told), proposals)


def found_of(worker: Worker, plant: Plant, folder: Path) -> tuple[Cell, dict[str, Any], bool]:
    """Run the cell of a plant. Return it, its record as plain data, and whether the defect was met."""
    cell = cell_of(plant, plant.case, folder / "found")
    record, met = asked(worker, run_planted, plant, cell, folder / "found", (TABLE, plant.name))
    return cell, record.as_dict(), met


def with_plant(worker: Worker, plant: Plant) -> Any:
    """Return a worker whose processes have the plant, and no other before it."""
    worker.replace()
    return Holding(worker, held, (TABLE, plant.name))


def proposed(planted: Any, cell: Cell, told: Mapping[str, Any], folder: Path) -> Iterator[Fix]:
    """Yield the changes that are proposed for a cell with this record; ``planted`` is a worker with its plant."""
    record = Record.from_dict(told)
    (finding,) = findings([record])
    yield from fixes(finding, cell.case, record, RepairTrials(planted, folder / "tried" / "models"))


def located(record: Mapping[str, Any]) -> str:
    """What a record names of a defect, in a few words."""
    operator = (record["operator"] or {}).get("operator")
    passes = (record["optimizer"] or {}).get("passes")
    return operator or ", ".join(passes or ()) or (record["precision"] if record["fault"] == "precision" else "")


def pasted(worker: Worker, cell: Cell, record: Mapping[str, Any], fix: Fix, folder: Path) -> str:
    """Writes a proposal into a copy of the case, as a reader does who pastes it, and runs its cells: how the first
    ended that does not pass, or empty."""
    from conformance.case.files.case_file import read
    from conformance.case.plan.catalogue import plan
    from conformance.case.plan.settings import Settings
    from conformance.cells.runner import Runner
    from conformance.extras.repairs.trials import TIMEOUT

    shutil.copytree(cell.case.folder, folder, ignore=shutil.ignore_patterns("store"))
    file = folder / cell.case.file.name
    try:
        file.write_text(with_paste(file.read_text(encoding="utf-8"), fix.paste), encoding="utf-8")
    except ValueError as error:
        return str(error)
    cases, problems = read(file)
    if problems:
        return f"the case cannot be read any more: {problems[0]}"
    cells = [
        one for one in plan(cases[0])
        if one.check in (*PROVING, "registration") and one.precision in ("fp32", record["precision"])
        and (record["runtime"] is None or one.runtime in (None, record["runtime"]))
        and (record["precision"] == "fp32" or one.precision != "fp32")
    ]  # fmt: skip
    passed = 0
    for one in cells:
        after = Runner(Settings(store=folder / "store" / "models", smallest=False), TIMEOUT, worker)(one)
        if after.status not in ("passed", "skipped"):
            return f"{after.id}: {after.error}: {after.reason}"
        passed += after.status == "passed" and one.check in ("accuracy", "fidelity")
    return "" if passed else "no cell compares outputs"


KEEP = "..."
"""Stands in a proposal for what the case has there already."""


def with_paste(text: str, paste: str) -> str:
    """The text of a case file with one case, with a proposal in it. A mapping takes the proposal's keys into its own,
    but for ``export``, which is replaced unless the proposal says ``...``. Raises ValueError for what is no YAML."""
    from io import StringIO

    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.width = 1000
    try:
        given = yaml.load(paste.replace(", the rest of it as it is", ""))
        whole = yaml.load(text)
    except YAMLError as error:
        raise ValueError(f"what is proposed is no YAML: {paste}") from error
    if not isinstance(given, dict):
        raise ValueError(f"what is proposed is no entry of a case: {paste}")
    (case,) = (value for name, value in whole.items() if name != "defaults")
    for name, value in given.items():
        if name == "export":
            case["export"] = {
                exporter: _merged(dict(_settings(case["export"].get(exporter))), said) if _keeps(said) else said
                for exporter, said in value.items()
            }  # fmt: skip
        else:
            case[name] = _merged(case.get(name), value)
    stream = StringIO()
    yaml.dump(whole, stream)
    return stream.getvalue()


def _keeps(said: Any) -> bool:
    return isinstance(said, dict) and KEEP in said


def _settings(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {} if said is None else {"opsets": said}


def _merged(had: Any, given: Any) -> Any:
    if not isinstance(had, dict) or not isinstance(given, dict):
        return given
    return {**had, **{name: _merged(had.get(name), value) for name, value in given.items() if name != KEEP}}
