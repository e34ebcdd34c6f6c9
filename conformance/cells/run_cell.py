"""run_cell: one cell from its declaration to its record, in whatever process it is called.

Each check is a sequence of stages. A stage either gives data to the next or raises ``Stopped``. ``Stages`` turns
everything that a module, an exporter or a runtime raises into that, and ``CellRun.opened`` writes it into the record,
so that ``run_cell`` never raises for what a cell did. Who is at fault is asked afterwards (``cells.red``); of a
failure that the case declares no more than that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import expectations
from conformance.case.plan.settings import Settings
from conformance.cells.accuracy import check_accuracy
from conformance.cells.alone import fail_replaced
from conformance.cells.check_recorded import check_recorded
from conformance.cells.compilation import check_build, check_parse
from conformance.cells.engine import check_engine
from conformance.cells.export import check_export
from conformance.cells.fidelity import check_fidelity
from conformance.cells.latency import check_latency
from conformance.cells.own_metric import check_metric
from conformance.cells.preparation import check_preprocess
from conformance.cells.registration import check_registration
from conformance.cells.steps import check_steps
from conformance.diagnose.explain_failure import blamed
from conformance.diagnose.refused import describe_export
from conformance.judge.red_cell import RedCell, RedExport
from conformance.models.cell_run import CellRun
from conformance.models.kept.gathering import keep_in, note_named, observe
from conformance.models.kept.results import depends_of, note_last
from conformance.process.errors import Stopped, Unavailable
from conformance.process.worker import uses
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.state import numeric_settings
from conformance.process.worker.state.fence import Fence
from conformance.results.records.explanation import put_off, unexplained
from conformance.results.records.record import Record
from conformance.results.records.settle import settle

Check = Callable[[CellRun], RedCell | None]
"""Returns a failure that somebody can be asked about, and raises Stopped for one that speaks for itself."""

CHECKS: dict[str, Check] = {
    "export": check_export,
    "registration": check_registration,
    "accuracy": check_accuracy,
    "specials": check_accuracy,
    "fidelity": check_fidelity,
    "engine": check_engine,
    "parse": check_parse,
    "build": check_build,
    "meaning": check_accuracy,
    "latency": check_latency,
    "recorded": check_recorded,
    "metric": check_metric,
    "preprocess": check_preprocess,
    "steps": check_steps,
}


Explain = Callable[[RedCell | RedExport], Stopped]
"""Finds out all about a failure that is not declared, and returns it."""


def run_cell(
    progress: Progress, cell: Cell, settings: Settings, fence: Fence | None = None, explain: Explain | None = None
) -> Record:
    """Run one cell and say what happened: its verdict, and what ``explain`` finds out where it fails undeclared.
    Raises nothing but KeyboardInterrupt.

    ``fence``: that of this process, where only cells run in it; another process is looked at anew for each cell.
    """
    start = time.perf_counter()
    record = cell.record()
    if settings.observe:
        uses.begin()
        keep_in(settings.store.parent / "contents")
    fence = Fence() if fence is None else fence
    fence.begin()
    with uses.of_case((cell.case.file, cell.case.name)):
        if settings.observe:
            note_named(cell.case)
        with (
            contextlib.suppress(Stopped, Unavailable),
            CellRun.opened(cell, settings, record, progress) as run,
        ):
            numeric_settings.seed(cell.case.says.seed)
            red = failure(run, CHECKS[cell.check])
            if red is not None:
                raise _with_blame(red, explain)
        record.changed = [change.as_dict() for change in fence.end()]
        if settings.observe:
            known = observe(cell.case, cell.exporter, settings.own_folders())
            if known is not None:
                record.depends = depends_of(cell, known, settings.suite)
            note_last(settings.index, cell, record.depends)
    fail_replaced(record, (change["what"] for change in record.changed if change["kind"] == "function"))
    settled = settle(record, expectations(cell), settings.instructions)
    settled.add_rest("rest", time.perf_counter() - start)
    settled.seconds = {name: round(seconds, 6) for name, seconds in settled.seconds.items()}
    return settled


def failure(run: CellRun, check: Check) -> RedCell | RedExport | None:
    """Return how a check fails, where somebody can be asked about it. Raises Stopped where nobody can."""
    try:
        return check(run)
    except Stopped as stop:
        if stop is not run.new_failure:
            raise
        red = RedExport(run, stop)
        describe_export(red)
        return red


def _with_blame(red: RedCell | RedExport, explain: Explain | None) -> Stopped:
    """Return a failure with who is at fault, or as one about which nobody was asked yet."""
    run, stop = (red.of.run, red.stop) if isinstance(red, RedCell) else (red.run, red.stop)
    if run.outcomes.is_declared(stop):
        return blamed(red).stop if isinstance(red, RedCell) else stop
    if explain is not None:
        return explain(red)
    put_off(run.record)
    return unexplained(red.stop) if isinstance(red, RedCell) and red.example is not None else stop
