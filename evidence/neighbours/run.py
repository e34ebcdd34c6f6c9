"""Cells before and after a case that changes its process, and what each of them says alone in a fresh process."""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Worker
from conformance.process.worker.warm import new_worker
from conformance.results.records.record import Record
from tests.plants.neighbours import HEAD, WAYS, Way
from tests.plants.planted import part_of

CASE = """
{name}:
  about: a neighbour
  module: {python}.Case
  inputs: {{x: "float32[n, 3]"}}
  dims: {{n: 1..3}}
  runtimes: onnxruntime
  specials: false
  export: {export}
"""
MODULE = """
import torch, torch.nn.functional as F
class Case(torch.nn.Module):
    def forward(self, x):
        {before}
        return {result}
"""
SOUND, UNSUPPORTED = "torch.sin(x) + F.relu(x)", "torch.special.i1(x)"
WRONG = "torch.sin(x) + (x.shape[0] - (2 if torch.onnx.is_in_onnx_export() else 1)) * F.relu(x)"
NEIGHBOURS = {"sound": SOUND, "without a symbolic": UNSUPPORTED, "wrong": WRONG}
"""What runs after the case: a cell that passes, one that cannot be exported and one that is exported wrongly."""
TIMEOUT = 120.0
Verdict = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a way."""

    way: Way
    verdicts: int
    told: tuple[str, ...]
    """What the records say that the case changed."""
    differ: tuple[str, ...]
    """Each verdict that is another one than in a fresh process."""


@functools.cache
def study(quick: bool) -> list[Outcome]:
    found = []
    with tempfile.TemporaryDirectory() as name, new_worker(dynamo=True) as worker, new_worker(dynamo=True) as other:
        alone = Alone(other, Path(name))
        for number, way in enumerate(part_of(list(WAYS), quick, 12)):
            print(f"{number + 1} of {len(WAYS)}: {way.name}", file=sys.stderr, flush=True)
            found.append(outcome_of(way, worker, alone, Path(name) / str(number)))
            print("\n".join(found[-1].differ), file=sys.stderr, flush=True)
    return found


class Alone:
    """The verdicts of cells alone, each in a fresh process with an empty store."""

    def __init__(self, worker: Worker, folder: Path) -> None:
        self._worker, self._folder = worker, folder
        self._known: dict[str, Verdict] = {}

    def verdict(self, cell: Cell) -> Verdict:
        key = f"{cell.case.file} {cell.id}"
        if key not in self._known:
            with tempfile.TemporaryDirectory(dir=self._folder) as store:
                self._known[key] = verdict(Runner(settings(Path(store)), TIMEOUT, self._worker)(cell))
        return self._known[key]


def settings(folder: Path) -> Settings:
    return Settings(store=folder / "models", examples=1, smallest=False)


def verdict(record: Record) -> Verdict:
    return record.status, record.stage, record.error, record.fault, (record.graph or {}).get("sha")


def outcome_of(way: Way, worker: Worker, alone: Alone, folder: Path) -> Outcome:
    """Run a neighbour, the case, and more neighbours, one after another as a run does."""
    near = folder.parent / way.exporter  # for all ways, since dynamo writes the paths of sources into its models
    before = _neighbour(near / "before", way, SOUND, "sound")
    case = _cells(folder / "case", way, _planted(way))
    after = {name: _neighbour(near / name, way, result, name) for name, result in NEIGHBOURS.items()}
    row = [
        *(("sound, before", cell) for cell in before),
        *(("the case itself", cell) for cell in case),
        *((f"{name}, after", cell) for name in after for cell in after[name]),
    ]
    run = Runner(settings(folder / "store"), TIMEOUT, worker)
    told, differ = dict[str, None](), []
    following: Sequence[Cell | None] = [*(cell for _, cell in row[1:]), None]
    for (who, cell), then in zip(row, following, strict=True):
        record = run(cell, then=then)
        told |= {change["what"]: None for change in record.changed if who == "the case itself"}
        here, there = verdict(record), alone.verdict(cell)
        if here != there:
            differ.append(f"{who}, {cell.check}: {_short(here)}, alone {_short(there)}")
    return Outcome(way, len(row), tuple(told), tuple(differ))


def _short(found: Verdict) -> str:
    return " ".join(str(part)[:20] for part in found if part is not None)


def _planted(way: Way) -> str:
    loaded, run = (way.code, "pass") if way.when == "loaded" else ("pass", way.code)
    return HEAD + f"{loaded}\n" + MODULE.format(before=run, result=SOUND)


def _neighbour(folder: Path, way: Way, result: str, name: str) -> list[Cell]:
    """The cells of a neighbour. Where it has a verdict by its values, the comparison alone counts."""
    cells = _cells(folder, way, MODULE.format(before="pass", result=result))
    return [cell for cell in cells if name != "wrong" or cell.check == "accuracy"]


def _cells(folder: Path, way: Way, python: str) -> list[Cell]:
    folder.mkdir(parents=True, exist_ok=True)
    name = folder.name.replace(" ", "_")
    export = {"torchscript": "{torchscript: [17]}", "dynamo": "{dynamo: [20]}"}[way.exporter]
    (folder / "case.yaml").write_text(CASE.format(name=name, python="beside", export=export), encoding="utf-8")
    (folder / "beside.py").write_text(python, encoding="utf-8")
    return [*_checked(folder / "case.yaml")]


def _checked(file: Path) -> Iterator[Cell]:
    (case,) = load(file)
    yield from (cell for cell in plan(case) if cell.check in ("export", "accuracy"))
