"""All models, their mutants, and who finds them."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import ROOT
from conformance.case.plan.cell import Cell
from conformance.extras.mutants.probe import Judged, MadeMutant
from conformance.extras.mutants.study import TIMEOUT, fate_of, hasty_worker, made_of, record_of
from conformance.process.worker.isolation import Death, Worker
from conformance.results.records.record import Record
from evidence.mutants.named import NOBODY, Named, exporting, named
from evidence.mutants.tools import TOOLS, ask

EACH = 6
"""Mutants of a model."""
VARIANTS = 2
"""Of a case with ``vary``, so many are taken for each exporter; else deformable convolution would be a quarter."""
LARGE = ("classifier", "swin_t")
"""Whole networks, of which only the smallest is taken: a cell of the others runs for ten seconds and more."""
NETWORKS = ROOT / "cases" / "networks"
"""The folder of others that are whole networks."""
SMALLEST = "mobilenet_v3_small"
QUICK = ("softmax",)


@dataclass(frozen=True)
class Mutant:
    """What became of one mutant."""

    cell: str
    made: MadeMutant
    differs: bool
    record: Record | None
    """The failed record of the suite's cell that found it; None where all of them passed."""
    tools: Mapping[str, bool]
    """Which tools found it, of those that accept the sound model."""
    judged: Judged | None = None
    """Of survivors only."""
    named: Named = NOBODY
    """Which node the record names, of one that was found."""

    @property
    def found(self) -> bool:
        return self.record is not None

    @property
    def counts(self) -> bool:
        """Whether it is a defect: a legal input tells it from the sound model. What Polygraphy feeds may be none."""
        return self.differs or self.found


@dataclass
class Study:
    """What the benchmark found."""

    models: list[str] = field(default_factory=list)
    mutants: list[Mutant] = field(default_factory=list)
    accused: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in TOOLS})
    """By tool: sound models that it refuses."""
    unable: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in TOOLS})
    """By tool: models about which it says nothing, and why."""
    asked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOOLS, 0))
    """By tool: sound models that it was asked about."""

    @property
    def defects(self) -> list[Mutant]:
        return [one for one in self.mutants if one.counts]

    @property
    def survivors(self) -> list[Mutant]:
        return [one for one in self.defects if not one.found]

    @property
    def missed(self) -> list[Mutant]:
        """Survivors that the suite's own comparison refuses on inputs that it did not draw."""
        return [one for one in self.survivors if one.judged is not None and one.judged.refused]

    @property
    def tolerated(self) -> list[Mutant]:
        """Survivors that it accepts on all of those too."""
        return [one for one in self.survivors if one.judged is not None and not one.judged.refused]


def cells(quick: bool) -> list[tuple[Cell, Cell | None]]:
    """The accuracy cells that are looked at, each with its cell of specials: the highest opset, few variants."""
    from conformance.case.files.case_file import case_files, load
    from conformance.case.plan.catalogue import plan

    rng = random.Random(0)
    chosen: list[tuple[Cell, Cell | None]] = []
    groups: dict[tuple[str, str], list[tuple[Cell, Cell | None]]] = {}
    for case in (case for file in case_files([ROOT / "cases"]) for case in load(file)):
        name = case.name.split("-")[0]
        large = name.startswith(LARGE) or NETWORKS in case.file.parents
        if (quick and name not in QUICK) or (large and SMALLEST not in case.name):
            continue
        of_case = [one for one in plan(case) if one.runtime == "onnxruntime" and not one.converted]
        for exporter in sorted({one.exporter for one in of_case}):
            highest = max(one.opset for one in of_case if one.exporter == exporter)
            by_check = {one.check: one for one in of_case if (one.exporter, one.opset) == (exporter, highest)}
            groups.setdefault((name, exporter), []).append((by_check["accuracy"], by_check.get("specials")))
    for variants in groups.values():
        chosen += sorted(rng.sample(variants, min(VARIANTS, len(variants))), key=lambda pair: pair[0].id)
    return chosen


@functools.cache
def study(quick: bool) -> Study:
    """Look at as many models at a time as there are cores."""
    chosen, jobs = cells(quick), os.cpu_count() or 1
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def of_model(number: int) -> Study:
        found, worker = Study(), idle.get()
        checks = [one for one in chosen[number] if one is not None]
        try:
            with tempfile.TemporaryDirectory() as folder:
                add_model(found, worker, Path(folder), checks, 5 if quick else EACH)
        finally:
            idle.put(worker)
        if not quick:
            print(f"{number + 1} of {len(chosen)}: {checks[0].label}", file=sys.stderr, flush=True)
        return found

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            idle.put(stack.enter_context(hasty_worker()))
        return joined(pool.map(of_model, range(len(chosen))))


def joined(parts: Iterable[Study]) -> Study:
    """Return the studies of single models as one, in their order."""
    found = Study()
    for part in parts:
        found.models += part.models
        found.mutants += part.mutants
        for tool in TOOLS:
            found.accused[tool] += part.accused[tool]
            found.unable[tool] |= part.unable[tool]
            found.asked[tool] += part.asked[tool]
    return found


def add_model(found: Study, worker: Worker, folder: Path, checks: list[Cell], count: int) -> None:
    """Adds a model's mutants to what was found, unless the model itself does not pass. ``folder`` is for its files.

    ``checks`` are its accuracy cell and, where there is one, its cell of specials.
    """
    cell, store = checks[0], folder / "sound" / "models"
    passing = [one for one in checks if record_of(worker, one, store).status == "passed"]
    if cell not in passing:
        return
    made = made_of(worker, cell, store, folder, count)
    found.models.append(cell.label)
    asked = []
    for tool in TOOLS:
        if tool == "assert_onnx_program" and cell.exporter != "dynamo":
            continue
        found.asked[tool] += 1
        answer = _asked(worker, tool, cell, store)
        if answer == "accepts":
            asked.append(tool)
        elif answer == "refuses":
            found.accused[tool].append(cell.label)
        else:
            found.unable[tool][cell.label] = answer
    for one in made:
        found.mutants.append(_look_at(worker, one, passing, store, asked))
        shutil.rmtree(one.store.parent, ignore_errors=True)


def _look_at(worker: Worker, made: MadeMutant, passing: list[Cell], sound: Path, asked: list[str]) -> Mutant:
    cell = passing[0]
    tools = {tool: _asked(worker, tool, cell, made.store) != "accepts" for tool in asked}
    fate = fate_of(exporting(worker, made), made, passing, sound)
    told = NOBODY
    if fate.record is not None:
        fields = fate.record.operator, fate.record.parts_at
        answer = worker.call(named, made, *fields, timeout=TIMEOUT)
        told = Named("open", answer.how) if isinstance(answer, Death) else answer
    return Mutant(cell.label, made, fate.differs, fate.record, tools, fate.judged, told)


def _asked(worker: Worker, tool: str, cell: Cell, store: Path) -> str:
    answer = worker.call(ask, tool, cell, store, timeout=TIMEOUT)
    return answer.how if isinstance(answer, Death) else answer
