"""Running cells somewhere that may die: a crash, a hang or a memory flood becomes the record of its cell. Of cells
that fail alike one is explained, and whichever others give the same wrong values for its example."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import (
    declared,
    expectations,
    fails_as_declared,
    has_specials_by_default,
    on_host,
    shows,
)
from conformance.case.plan.settings import Settings
from conformance.cells.alone import Predecessors, believed, fail_replaced
from conformance.cells.load_limit import LoadLimit
from conformance.process.disk.whole_files import UNFINISHED
from conformance.process.errors import Details, Stopped, UserError, attempt, or_else
from conformance.process.worker.isolation import Death, OnWait, Worker
from conformance.process.worker.state.fence import Fence, of_process
from conformance.process.worker.state.setting import StateChange
from conformance.process.worker.warm import prepare_process
from conformance.results.records.causes import (
    cause_of_export,
    cause_of_smallest,
    explained,
    fails_alike,
    has_same_evidence,
    is_same_error,
)
from conformance.results.records.death import crashed, note_death
from conformance.results.records.explanation import fail, note_details, put_off, share
from conformance.results.records.record import Record
from conformance.results.records.settle import fail_as_declared, settle
from conformance.results.records.spent import START
from conformance.runtimes import registry

_NAMED = 3  # processes that a cell left running and its record names


class Ran(NamedTuple):
    """The answer of a worker: the record of a cell, and whether its process may run no other cell afterwards."""

    record: Record
    spoilt: bool


class Runner:
    """Turns cells into records, in a worker process or (for a debugger) in this one."""

    def __init__(
        self, settings: Settings, timeout: float, worker: Worker | None, shown: dict[str, str] | None = None, *,
        explaining: bool = True,
    ) -> None:  # fmt: skip
        """``worker`` has been entered; without one, ``timeout`` (seconds a cell) cannot be kept. Several runners may
        share ``shown``, the causes whose smallest function is known. What fails is explained at once if
        ``explaining``, and otherwise where ``explain`` is asked to."""
        self._settings, self._explaining = settings, explaining
        self._timeout = timeout
        self._worker = worker
        self._begun: Cell | None = None
        self._start = self._starting = 0.0
        """The time at which the current cell was begun, and the seconds until a process had it."""
        self._before = Predecessors()
        self._shown: dict[str, str] = {} if shown is None else shown
        if worker is None:
            prepare_process()
        elif worker.running:  # cells that another runner knows have run there
            worker.replace()

    def __call__(self, cell: Cell, on_wait: OnWait | None = None, then: Cell | None = None) -> Record:
        """The record of one cell, whatever happened.

        The worker goes on with the cell ``then`` at once, while the caller deals with this one's record. A failure
        after other cells in the same process has to come again in a fresh one.
        """
        if self._worker is None:
            return self._noted(self._run_with(self._settings_now(), cell, on_wait, explaining=self._explaining))
        before = self._before.told()
        start = self._start if self._begun is cell else time.perf_counter()
        record, doubtful = self._finish(cell, on_wait)
        if doubtful and self._may_wait(cell, record):
            record.after = before
        elif doubtful:
            alone = self._alone(cell, on_wait, self._settings_now(), explaining=self._explaining)
            record = believed(record, alone, before)
        record.seconds[START] = round(self._starting, 6)
        record.add_rest("process", time.perf_counter() - start)
        self._noted(record)
        if then is not None:
            attempt(partial(self._begin, then))  # what it raises comes again when the cell ``then`` is asked for
        return record

    def explain(self, cell: Cell, record: Record, on_wait: OnWait | None = None) -> Record:
        """Return the record of a failed cell with its explanation, for which the cell runs again, beginning with the
        example that failed. Where it does not fail alike, or its process dies of being asked, the record stays. One
        that failed after others has to fail alone too, or is found to fail only after them."""
        settings, before = self._settings_now(), record.after
        if before is None or self._worker is None:
            return explained(record, self._noted(self._run_with(settings, cell, on_wait, explaining=True)))
        again = self._noted(self._alone(cell, on_wait, settings, explaining=True))
        record.after = None
        return explained(record, again) if fails_alike(record, again) else believed(record, again, before)

    def answer(self, cell: Cell, draw: Mapping[str, object]) -> Record:
        """Return the record of a cell that ran one draw and nothing else. Nothing of it is kept for a later run."""
        settings = dataclasses.replace(self._settings_now(), only=draw, answers=None, failures=None)
        return self._run_with(settings, cell, None, explaining=False)

    def _run_with(self, settings: Settings, cell: Cell, on_wait: OnWait | None, *, explaining: bool) -> Record:
        if self._worker is not None:
            return self._finish(cell, on_wait, settings, explaining=explaining)[0]
        from conformance.process.worker.progress_note import Progress

        return _run_here(Progress(), cell, settings, explaining)

    def each(self, cells: Iterable[Cell], telling: Callable[[Cell], OnWait] | None = None) -> Iterator[Record]:
        """The records of cells, one after another; of those that this host cannot run, why not. ``telling`` gives
        what gets the notes of a cell while it runs."""
        for cell in cells:
            absent = registry.absence(cell.runtime)
            on_wait = None if telling is None else telling(cell)
            yield self(cell, on_wait) if absent is None else skipped(cell, absent)

    def renew(self) -> None:
        """Have the next cell run in a process that has loaded no case's Python, and have that process wait for it."""
        if self._worker is not None:
            self._replace()
            attempt(self._worker.ready)  # what it raises comes again when the next cell is asked for

    def _settings_now(self) -> Settings:
        return dataclasses.replace(self._settings, shown=dict(self._shown)) if self._shown else self._settings

    def _noted(self, record: Record) -> Record:
        """The record; other cells with its cause need not look for the smallest function again."""
        told = record.smallest or {}
        if "calls" not in told and "seconds" not in told:
            return record
        if record.stage in ("export", "check"):
            cause = cause_of_export(record.case, record.exporter, record.error, record.reason)
            self._shown.setdefault(cause, record.id)
        elif record.operator is not None:
            cause = cause_of_smallest(record.case, record.exporter, record.operator)
            self._shown.setdefault(cause, record.id)
        return record

    def _begin(self, cell: Cell, settings: Settings | None = None, *, explaining: bool | None = None) -> None:
        assert self._worker is not None
        self._start = time.perf_counter()
        if not self._before.allow(cell):
            self._replace()
        explaining = self._explaining if explaining is None else explaining
        self._worker.begin(_run, cell, settings or self._settings_now(), explaining)
        self._starting = time.perf_counter() - self._start
        self._begun = cell

    def _may_wait(self, cell: Cell, record: Record) -> bool:
        """Return whether a cell that failed after others is red in any case, so that it is run alone only when it is
        explained."""
        return record.unexplained and record.status == "failed" and not expectations(cell)

    def _alone(self, cell: Cell, on_wait: OnWait | None, settings: Settings, *, explaining: bool) -> Record:
        """Return the record of a cell in a fresh process, with nothing that an earlier one kept in the store."""
        assert self._worker is not None
        self._replace()
        with _empty_store(self._settings.store) as store:
            alone = dataclasses.replace(settings, store=Path(store), answers=None, outcomes=None)
            record = self._finish(cell, on_wait, alone, explaining=explaining)[0]
            self._replace()  # it knows the models of that store, which goes
        return record

    def _replace(self) -> None:
        assert self._worker is not None
        self._worker.replace()
        self._before.clear()

    def _note_place(self, cell: Cell, record: Record, settings: Settings, *, explaining: bool) -> None:
        """Write the operator at which an export ended its process into the record, if that is not as declared."""
        assert self._worker is not None
        if record.status != "failed" or (record.stage, record.fault) != ("export", "exporter") or not crashed(record):
            return
        if not explaining:
            put_off(record)
            return
        told = or_else(None, partial(self._worker.call, _crashed_export, cell, settings, timeout=self._timeout))
        note_details(record, {"operator": None if isinstance(told, Death) else told})
        self._replace()

    def _finish(
        self, cell: Cell, on_wait: OnWait | None, settings: Settings | None = None, *,
        explaining: bool | None = None,
    ) -> tuple[Record, bool]:  # fmt: skip
        """The record of a cell, and whether it is in doubt for the cells before it; ``settings`` of one that was not
        begun."""
        assert self._worker is not None
        begun, self._begun = self._begun, None
        explaining = self._explaining if explaining is None else explaining
        try:
            if begun is not cell:
                if begun is not None:
                    self._replace()  # the cell that was begun is not asked for after all
                self._begin(cell, settings, explaining=explaining)
            limit = LoadLimit.of(cell, settings or self._settings)
            answer = self._worker.finish(timeout=self._timeout, on_wait=on_wait, until=limit)
        except Exception as error:  # such as no process for a worker; the record says so
            self._replace()
            name = type(error).__name__
            text = " ".join(str(error).split())[:500]
            return broken(cell, name, f"the cell could not be run: {text}", error), False
        finally:
            self._begun = None
        if isinstance(answer, Death) and limit is not None and limit.reason is not None:
            self._replace()
            return skipped(cell, limit.reason), False
        if isinstance(answer, Death):
            record = died(cell, answer, self._settings.instructions)
        elif isinstance(answer, Ran) and answer.record.id == cell.id:
            record = answer.record
            if self._worker.left:  # which it has ended, and itself
                left = ", ".join(self._worker.left[:_NAMED])
                record.changed.append(StateChange("processes", "leftover", "running", "left", after=left).as_dict())
            if fail_replaced(record, self._worker.patched):
                record = settle(record, expectations(cell), self._settings.instructions)
        else:
            self._replace()
            what = answer.record.id if isinstance(answer, Ran) else type(answer).__name__
            return broken(cell, "BadAnswer", f"the worker answered with {what}"), False
        if record.changed:  # perhaps the working directory, to which the worker's paths are relative
            record.source = cell.record().source
        doubtful = self._before.doubtful(cell, record)
        if not len(self._before):
            self._before.note_alone(cell, record)
        if isinstance(answer, Death):
            self._replace()  # where the process goes on, nothing has put back what the cell changed
            self._note_place(cell, record, settings or self._settings_now(), explaining=explaining)
        elif not self._worker.running:
            self._before.clear()
        else:
            self._before.add(cell, record, spoilt=answer.spoilt or bool(self._worker.patched))
        return record, doubtful


def _empty_store(store: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a folder beside a store, or elsewhere where there can be none."""
    with contextlib.suppress(OSError):
        store.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=store.parent, prefix=UNFINISHED)
    return tempfile.TemporaryDirectory()


def _run(progress: object, cell: Cell, settings: Settings, explaining: bool) -> Ran:
    fence = of_process()
    return Ran(_run_here(progress, cell, settings, explaining, fence), fence.spoilt)


def _run_here(progress: Any, cell: Cell, settings: Settings, explaining: bool, fence: Fence | None = None) -> Record:
    # This runs in the worker: the process of the tests never imports torch.
    from conformance.cells.red import explain_cell
    from conformance.cells.run_cell import run_cell

    return (explain_cell if explaining else run_cell)(progress, cell, settings, fence)


def _crashed_export(progress: object, cell: Cell, settings: Settings) -> object:
    from conformance.cells.export import crashed_export  # which imports torch, as above

    return crashed_export(progress, cell, settings)


def skipped(cell: Cell, reason: str) -> Record:
    """The record of a cell that this host, or this kind of run, cannot run."""
    record = cell.record()
    record.status, record.stage, record.reason = "skipped", "load", reason
    return record


def broken(cell: Cell, error: str, reason: str, raised: BaseException | None = None) -> Record:
    """The record of a cell that this harness could not run. It is held against no declaration.

    ``error`` is the name of the error; ``raised`` is the exception, where that says more than ``reason``.
    """
    record = cell.record()
    details: Details = {}
    if isinstance(raised, UserError):  # the host lets no worker start, and says why
        fail(record, Stopped("declare", "OutOfMemory", reason))
        return record
    if raised is not None:
        lines = "".join(traceback.format_exception(raised)).rstrip().splitlines()
        details = {"hints": ["report"], "traceback": lines[-12:]}
    fail(record, Stopped("declare", error, reason, "harness", details))
    return record


def died(cell: Cell, death: Death, instructions: frozenset[str]) -> Record:
    """The record of a cell whose worker ended instead of answering."""
    record = cell.record()
    note_death(record, death, cell.case.folder)
    return (
        _without_verdict(cell, record, instructions)
        or _settle_draw(cell, record, instructions)
        or settle(record, expectations(cell), instructions)
    )


def _without_verdict(cell: Cell, record: Record, instructions: frozenset[str]) -> Record | None:
    """The record of a cell that died as PyTorch computed with NaN or infinities that the case does not ask for, and
    None for any other death."""
    if not (has_specials_by_default(cell) and crashed(record) and record.stage == "declare" and record.draw):
        return None
    if fails_as_declared(cell, instructions, record):
        return None
    text = f"the module itself ends its process for NaN or infinities: {record.signal}. specials: true would insist"
    undecided = skipped(cell, text)
    undecided.stage, undecided.undecided = record.stage, True
    return undecided


def _settle_draw(cell: Cell, record: Record, instructions: frozenset[str]) -> Record | None:
    """The record of a cell that died at a draw which is declared to end the process, and None for any other death.

    Such draws run last, so that all other draws of the cell have passed.
    """
    from conformance.case.draw.draw import Draw, about

    if record.draw is None:
        return None
    draw = Draw(**record.draw)
    for entry in on_host(declared(cell), instructions):
        if entry.when.only_some_draws and about(entry.when, draw) and shows(entry, record):
            fail_as_declared(record, entry.because, entry.fault, entry.when.host)
            return record
    return None


def explain_alike(
    runner: Runner, alike: Sequence[tuple[Cell, Record]], deadline: float, on_wait: OnWait | None = None
) -> Iterator[list[Record]]:
    """Yield the records of each cause with its explanation, the cell that was explained first, until time is up
    (``time.monotonic``). ``alike`` are cells that may have one cause (``results.records.causes.by_likeness``)."""
    left = [*alike]
    while left and time.monotonic() < deadline:
        (cell, record), *others = left
        explained = runner.explain(cell, record, on_wait)
        same = [] if explained.unexplained else _of_same_cause(runner, cell, explained, others)
        explained_too = {record.id for record in same}
        left = [other for other in others if other[1].id not in explained_too]
        share(explained, same)
        yield [explained, *same]


def _of_same_cause(
    runner: Runner, cell: Cell, explained: Record, others: Sequence[tuple[Cell, Record]]
) -> list[Record]:
    """Return the records of the cells that give the wrong values of the explained one for its example, by the same
    evidence, or that stopped with its words."""
    if explained.error == "OnlyAfter":
        return []
    if explained.stage != "compare":
        return [record for _, record in others]
    if explained.draw is None or not others:
        return []
    answer = runner.answer(cell, explained.draw)
    alike = [(other, record) for other, record in others if has_same_evidence(explained, record)]
    return [record for other, record in alike if is_same_error(answer, runner.answer(other, explained.draw))]
