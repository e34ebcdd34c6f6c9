"""The shipped cases: how many of their calls are seen, and what asking that costs."""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.common import ROOT, Timings, in_turn
from conformance.case.files.declaration import Case
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.extras.mutants.study import hasty_worker
from conformance.process.worker.isolation import Death, Worker

QUICK = "softmax"
SMALL = (
    "softmax", "layer_norm-size_last", "group_norm", "gelu", "resize_bilinear", "grid_sample", "attention_masked",
    "cumsum_axes", "max_pool", "conv_grouped", "roll_one", "mish_override",
)  # fmt: skip
"""The beginnings of names of cases whose modules are small; of each the first is taken."""
LARGE = ("classifier-name_resnet50",)
"""Networks of about 25 million parameters."""
TIMEOUT = 600.0


@dataclass(frozen=True)
class Share:
    """What a case's accuracy cell sees of its module."""

    cell: str
    seen: int
    of: int
    unknown: str = ""
    status: str = "passed"
    hollow: bool = False
    """Whether the case says that it is."""


@functools.cache
def cases() -> dict[str, Case]:
    from conformance.case.files.case_file import case_files, load

    return {case.name: case for file in case_files([ROOT / "cases"]) for case in load(file)}


@functools.cache
def shares(quick: bool) -> list[Share]:
    """Of the cell of each case that answers for what its comparison shows."""
    from conformance.case.plan.catalogue import plan
    from conformance.cells.coverage import answers
    from conformance.extras.mutants.study import record_of

    found = []
    with tempfile.TemporaryDirectory() as folder, hasty_worker() as worker:
        for name, case in cases().items():
            if quick and not name.startswith(QUICK):
                continue
            for cell in (one for one in plan(case) if one.check == "accuracy" and answers(one)):
                if not quick:
                    print(cell.label, file=sys.stderr, flush=True)
                record = record_of(worker, cell, Path(folder) / "models")
                known = record.coverage
                if known is None:
                    continue  # it is red before anything is asked
                why = str(known.get("unknown", ""))
                hollow = case.says.hollow is not None
                found.append(Share(cell.label, known["seen"], known["of"], why, record.status, hollow))
    return found


@functools.cache
def costs(quick: bool) -> list[tuple[str, bool, Timings]]:
    """Seconds of all cells of a case with and without asking what is seen, in turn, each with an empty store and in a
    fresh process: the case's name, whether it is a large one, the times."""
    named = {name: next((case for case in cases() if case.startswith(name)), None) for name in (*SMALL, *LARGE)}
    chosen = [(name, case) for name, case in named.items() if case is not None]
    found = []
    with tempfile.TemporaryDirectory() as folder, hasty_worker() as worker:
        for beginning, name in chosen[:1] if quick else chosen:
            cells = list(_cells(cases()[name]))
            if not quick:
                print(f"{name}: {len(cells)} cells", file=sys.stderr, flush=True)

            def measured(asks: bool, cells: Sequence[Cell] = cells) -> float:
                return _seconds(worker, cells, Path(folder) / "store" / "models", asks)

            sides = {"with": lambda run=measured: run(True), "without": lambda run=measured: run(False)}
            found.append((name, beginning in LARGE, in_turn(sides, 1 if quick else 3)))
    return found


def _cells(case: Case) -> Iterator[Cell]:
    from conformance.case.plan.catalogue import plan

    for cell in plan(case):
        if cell.runtime in (None, "onnxruntime") and not cell.converted and cell.check in ("export", "accuracy"):
            yield cell


def _seconds(worker: Worker, cells: Sequence[Cell], store: Path, asks: bool) -> float:
    shutil.rmtree(store.parent, ignore_errors=True)
    worker.replace()
    worker.ready()
    answer = worker.call(run_case, list(cells), Settings(store=store), asks, timeout=TIMEOUT)
    if isinstance(answer, Death):
        raise RuntimeError(f"{cells[0].case.name}: {answer.how}\n{answer.output}")
    return answer


def run_case(progress: Any, cells: Sequence[Cell], settings: Settings, asks: bool) -> float:
    """In a worker: the seconds that the cells of a case take, with or without asking what is seen of the module."""
    from conformance.cells import accuracy
    from conformance.cells.run_cell import run_cell

    def quiet(*arguments: Any) -> None:
        """Asks nothing."""

    start = time.perf_counter()
    with mock.patch.object(accuracy, "note_coverage", accuracy.note_coverage if asks else quiet):
        for cell in cells:
            run_cell(progress, cell, settings)
    return time.perf_counter() - start
