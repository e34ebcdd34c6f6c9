"""Runs the cells of all modules, and says which are red.

A process takes a share of the modules, a few at a time, and writes what came of each as a file, so that a run which
was stopped goes on where it was. Results are kept for exactly this code and these versions of its libraries.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from conformance.case.files.case_file import case_files, load
from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.extras.mutants.study import hasty_worker
from conformance.process.worker.isolation import Worker
from conformance.results.records.record import Record

INDEX = "index.json"
"""In the folder of the case files: the names of the cases, with what each is of, and why others are none."""
KEPT = ROOT / ".conformance" / "accusations"
SEEDS = {"usual": 10, "open": 5}
"""The groups of modules, and how many seeds each is run in: as people use them, and those that leave values open."""
PROCESSES = 2
TOGETHER = 10
"""Modules of which the cells run in one process, as in any run of the suite; for each seed a fresh one."""
REPEATED = 2
"""Seeds in which a cell is red in the same way before it is left out of the others."""
TIMEOUT = 600.0
"""Seconds a cell; far more than any takes, since a busy host is no red."""


@dataclass
class Red:
    """A kind of failure of a module's cells: where, with which error, and who is blamed."""

    module: str
    exporter: str
    runtime: str | None
    check: str
    stage: str | None
    error: str | None
    fault: str | None
    reason: str | None
    seeds: list[int] = field(default_factory=list)
    """In which of the seeds it was seen."""
    record: dict[str, Any] = field(default_factory=dict)
    """The whole record of the first."""

    @property
    def kind(self) -> tuple[str | None, ...]:
        return self.exporter, self.runtime, self.check, self.error, self.fault


@dataclass
class Outcome:
    """What came of one module."""

    name: str
    about: str
    seeds: int = 0
    """The number of seeds that were run, from 1 on."""
    code: str = ""
    """The state of the package and its libraries that it ran with last, as the folder of its results is named."""
    seconds: float = 0.0
    cells: dict[str, int] = field(default_factory=dict)
    """By exporter."""
    examples: dict[str, int] = field(default_factory=dict)
    """Verified, by exporter."""
    ill_conditioned: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Cells by the reason why they were skipped."""
    reds: list[Red] = field(default_factory=list)

    def add(self, record: Record, seed: int) -> None:
        self.cells[record.exporter] = self.cells.get(record.exporter, 0) + 1
        if record.check != "export":  # which verifies no example
            self.examples[record.exporter] = self.examples.get(record.exporter, 0) + record.examples
        self.ill_conditioned += record.ill_conditioned
        if record.status == "skipped":
            self.skipped[f"{record.reason}"] = self.skipped.get(f"{record.reason}", 0) + 1
        if record.status in ("failed", "xpassed"):
            red = Red(
                self.name, record.exporter, record.runtime, record.check, record.stage, record.error, record.fault,
                record.reason,
            )  # fmt: skip
            known = next((one for one in self.reds if one.kind == red.kind), None)
            if known is None:
                red.record = record.as_dict()
                self.reds.append(red)
            (known or red).seeds.append(seed)

    def runs(self, cell: Cell, first: bool) -> bool:
        """Whether a cell runs in a further seed: it depends on the seed, has a model, and is not known to be red."""
        if cell.check == "export":
            return first
        for red in self.reds:
            if red.exporter == cell.exporter and red.check == "export" and red.stage in ("declare", "export"):
                return False
            if (red.exporter, red.runtime, red.check) == (cell.exporter, cell.runtime, cell.check):
                return len(red.seeds) < REPEATED
        return True

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        return cls(**{**values, "reds": [Red(**red) for red in values["reds"]]})


def run_cases(
    cases: Sequence[Case], seeds: int, worker: Worker | None, store: Path, outcomes: list[Outcome] | None = None
) -> list[Outcome]:
    """Return what came of the cases, in their order, drawn with each seed up to ``seeds`` that ``outcomes``, which
    are alike in this, do not have yet; models are exported once."""
    outcomes = outcomes or [Outcome(case.name, case.says.about) for case in cases]
    for seed in range(outcomes[0].seeds + 1, seeds + 1):
        if worker is not None:
            worker.replace()
        runner = Runner(Settings(store=store, random=seed, smallest=False), TIMEOUT, worker)
        for case, outcome in zip(cases, outcomes, strict=True):
            start = time.perf_counter()
            for cell in plan(case):
                if outcome.runs(cell, seed == 1):
                    outcome.add(runner(cell), seed)
            outcome.seeds = seed
            outcome.seconds += time.perf_counter() - start
    return outcomes


def run_part(folder: Path, results: Path, part: tuple[int, int], seeds: int) -> None:
    """Write the outcomes of the ``part[0]``-th of ``part[1]`` shares, from 1; those that are there get the seeds that
    they lack, the fewest first."""
    results.mkdir(parents=True, exist_ok=True)
    cases = [case for file in case_files([folder]) for case in load(file)]
    mine = cases[part[0] - 1 :: part[1]]
    known = {outcome.name: outcome for outcome in _read(results, [case.name for case in mine])}
    by_seeds = defaultdict[int, list[Case]](list)
    for case in mine:
        by_seeds[known[case.name].seeds if case.name in known else 0].append(case)
    left = {had: by_seeds[had] for had in sorted(by_seeds) if had < seeds}
    done = len(mine) - sum(map(len, left.values()))
    chunks = [each[start : start + TOGETHER] for each in left.values() for start in range(0, len(each), TOGETHER)]
    with hasty_worker() as worker:
        for cases in chunks:
            had = [known[case.name] for case in cases if case.name in known]
            with tempfile.TemporaryDirectory() as name:
                store = Path(name) / "models"  # beside which bundles of what fails are left
                outcomes = run_cases(cases, seeds, worker, store, had)
            for outcome in outcomes:
                done, outcome.code = done + 1, folder.name
                print(_line(outcome, f"{part[0]}/{part[1]}", f"{done} of {len(mine)}"), file=sys.stderr, flush=True)
                _write(results / f"{outcome.name}.json", outcome)


def _write(file: Path, outcome: Outcome) -> None:
    """In one step, so that a run which is stopped leaves no half of an outcome."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(outcome.as_dict()), encoding="utf-8")
    unfinished.replace(file)


def _line(outcome: Outcome, part: str, place: str) -> str:
    kinds = Counter(f"{red.exporter} {red.check} {red.error} ({red.fault})" for red in outcome.reds)
    told = "; ".join(kinds) or "no red"
    cells, examples = sum(outcome.cells.values()), sum(outcome.examples.values())
    return f"{part} {place}: {outcome.name}: {outcome.seconds:.1f} s, {cells} cells, {examples} examples, {told}"


@dataclass
class Study:
    """All outcomes, and the samples that no case could be made of, with the reason."""

    group: str
    outcomes: list[Outcome]
    unfit: dict[str, str]
    seconds: float
    """That the processes took together, without what an earlier run had done."""
    whole: bool
    """True where it is about all modules of the group."""
    left: int = 0
    """Modules that have not run in any seed yet."""
    code: str = ""
    """The state of the package and its libraries now, as ``Outcome`` has it."""

    @property
    def reds(self) -> list[Red]:
        return [red for outcome in self.outcomes for red in outcome.reds]


def study(
    group: str, *, seeds: int, only: str = "*", every: int = 1, part: tuple[int, int] | None = None,
    processes: int = PROCESSES,
) -> Study:  # fmt: skip
    """Run the modules of a group whose name matches ``only``, of these each ``every``-th, or the ``part`` of them."""
    start = time.monotonic()
    folder = _folder(group, only, every)
    _collected(folder, group, only, every)
    results = folder / "results"
    parts = [part] if part is not None else [(k + 1, processes) for k in range(processes)]
    command = [sys.executable, "-c", "from evidence.accusations import run; run.main()"]
    command += [str(folder), str(results), str(seeds)]
    # modules of this package are loaded by name, wherever a worker is
    searched = os.pathsep.join([f"{ROOT}", *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": searched}
    running = [
        subprocess.Popen([*command, f"{k}", f"{n}"], cwd=ROOT, env=environment, stdout=sys.stderr) for k, n in parts
    ]
    codes = [one.wait() for one in running]
    if any(codes):
        raise RuntimeError(f"a process of the benchmark ended with {max(codes, key=abs)}; what it did is kept")
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    outcomes = list(_read(results, index["cases"]))
    whole, left = only == "*" and every == 1, len(index["cases"]) - len(outcomes)
    return Study(group, outcomes, index["unfit"], time.monotonic() - start, whole, left, folder.name)


def _read(results: Path, names: Sequence[str]) -> Iterator[Outcome]:
    for name in names:
        file = results / f"{name}.json"
        if file.is_file():
            yield Outcome.from_dict(json.loads(file.read_text(encoding="utf-8")))


def _folder(group: str, only: str, every: int) -> Path:
    """The folder of what this code makes of these libraries."""
    digest = hashlib.blake2b(f"{only} {every}".encode(), digest_size=8)
    for file in sorted([*(ROOT / "conformance").rglob("*.py"), *Path(__file__).parent.glob("*.py")]):
        if file.name not in ("looked_at.py", "page.py", "__init__.py", "__main__.py"):  # that judge, and run nothing
            digest.update(file.read_bytes())
    for package in ("torch", "torchvision", "onnx", "onnxscript", "onnxruntime", "numpy"):
        digest.update(metadata.version(package).encode())
    return KEPT / f"{group}-{digest.hexdigest()}"


def _collected(folder: Path, group: str, only: str, every: int) -> None:
    """Makes the case files, unless they are there; those that other code made go."""
    if (folder / INDEX).is_file():
        return
    for other in KEPT.glob(f"{group}-*") if only == "*" and every == 1 else ():
        shutil.rmtree(other, ignore_errors=True)
    command = [sys.executable, "-W", "ignore", "-m", "evidence.accusations.collect", str(folder), group]
    subprocess.run([*command, "--only", only, "--every", str(every)], cwd=ROOT, check=True, stdout=sys.stderr)


def main() -> None:
    """What ``study`` runs in a process of its own: a share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("seeds", type=int)
    parser.add_argument("part", type=int)
    parser.add_argument("parts", type=int)
    given = parser.parse_args()
    run_part(given.folder, given.results, (given.part, given.parts), given.seeds)
