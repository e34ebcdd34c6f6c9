"""Models that are right: what is compared of them operator by operator, and whether anything parts."""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from conformance.case.plan.cell import Cell


@dataclass(frozen=True)
class Sound:
    """What became of a model that is right."""

    label: str
    compared: int = 0
    """Values of operators that were compared."""
    untied: int = 0
    """Values whose tensor is not known."""
    parted: int = 0
    """Values that differ by more than two kernels may. None of them makes the outputs wrong."""
    named: str = ""
    """The operator that was named; empty where none was, as it should be."""
    unable: str = ""
    """Why operators could not be looked at."""
    seconds: float = 0.0


@functools.cache
def study(quick: bool) -> list[Sound]:
    from conformance.case.plan.settings import Settings
    from conformance.cells.run_cell import run_cell
    from conformance.process.worker.progress_note import Progress
    from conformance.process.worker.warm import prepare_process
    from evidence.mutants.run import cells

    prepare_process()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for cell, _ in cells(quick):
            if run_cell(Progress(), cell, Settings(store=Path(folder))).status != "passed":
                continue  # one that is declared to fail is not sound
            found.append(look_at(cell, Path(folder)))
            if not quick:
                print(found[-1], file=sys.stderr, flush=True)
    return found


def look_at(cell: Cell, store: Path) -> Sound:
    """A cell at its first draw, to the end of the program."""
    from conformance.case.plan.settings import Settings
    from conformance.diagnose.locate import question
    from conformance.diagnose.operators.captured_program import Unable
    from conformance.diagnose.operators.first_operator import Search
    from conformance.judge.draws import Draws
    from conformance.judge.verify import Verifier
    from conformance.models.cell_run import CellRun
    from conformance.process.errors import Stopped, Unavailable

    settings = Settings(store=store)
    try:
        with CellRun.opened(cell, settings) as run:
            stored = run.model()
            verify = Verifier(run.of_cell(stored))
            draws = Draws(cell, settings, run.prepared, run.dims(), run.prepared.trace())
            example = verify.example(draws.first())
            verify.judge_of(example.wanted)
            run.reference.restore()
            start = time.perf_counter()
            try:
                search = Search(question(run, verify, stored, example), whole=True)
            except Unable as reason:
                return Sound(cell.label, unable=f"{reason.why} {reason}".strip())
            named, unable = "", ""
            try:
                named = str(search.found().get("operator"))
            except Unable as reason:
                unable = "" if reason.why == "vanished" else f"{reason.why} {reason}".strip()
            compared = [step for step in search.steps if step.tensor is not None]
            return Sound(
                cell.label, len(compared), len(search.steps) - len(compared),
                sum(step.parting is not None for step in compared), named, unable, time.perf_counter() - start,
            )  # fmt: skip
    except (Stopped, Unavailable) as stop:
        return Sound(cell.label, unable=f"the case stops: {stop}"[:200])
