"""The loop: run what is due, tell it, wait for a change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.case.plan.cell import Cell
from conformance.cells.runner import Runner, skipped
from conformance.front.commands.screen import Screen
from conformance.front.commands.watch.file_watcher import Changed, WatchedFiles, forget_bytecode
from conformance.front.commands.watch.watched_cells import Catalogue, Plan
from conformance.process.disk.stores import make, tidy
from conformance.process.errors import display_path
from conformance.results.records import matrix, text
from conformance.results.records.findings import RED, Key, key_of
from conformance.results.records.record import Record
from conformance.results.records.sanitize import block
from conformance.runtimes import registry

NAMED = 4
"""Files in a heading, and failing cells of earlier rounds, that are named."""
_COLOURS = {"failed": "red", "xpassed": "red", "skipped": "yellow", "passed": "green", "xfailed": "green"}


class _Superseded(BaseException):
    """Raised where what the running cell depends on has changed.

    As with Ctrl-C, nobody asks for its verdict any more.
    """


class WatchLoop:
    """Keeps the last verdict of each cell, and runs cells for which that is no longer true."""

    def __init__(
        self, catalogue: Catalogue, plan: Plan, runner: Runner, screen: Screen, home: Path, limit: float,
        command_of: Callable[[str], str], watched: WatchedFiles | None = None,
    ) -> None:  # fmt: skip
        """``plan`` is what the catalogue gave; ``home`` is the store, which is kept below ``limit`` bytes;
        ``command_of`` gives what runs a cell alone; ``watched`` notices changes."""
        self._catalogue, self._plan, self._runner, self._screen = catalogue, plan, runner, screen
        self._home, self._limit, self._command_of = home, limit, command_of
        self._watched = WatchedFiles() if watched is None else watched
        self._verdicts: dict[str, tuple[str, Record]] = {}
        self._absences: dict[str | None, str | None] = {}
        self._problems: Sequence[str] = ()
        self._used = self._stale = False
        """Whether the process has run a cell; whether files have changed since."""
        self._python: set[Path] = set()
        """Python files that changed since the process began."""

    def run(self) -> int:
        """Until Ctrl-C; 0, or 1 where a cell fails by its last verdict."""
        try:
            self._watched.expect(self._plan.signs)
            self._begin()
            while True:
                self._round()
                self._fresh()
                self._tidy()
                self._note(self._watched.wait())
        except KeyboardInterrupt:
            self._screen.clear()
        self._end()
        return 1 if any(record.status in RED for record in self._records()) else 0

    # ---- running -------------------------------------------------------------------------------------------

    def _due(self) -> list[Cell]:
        """The cells to run: those that failed first."""
        plan, verdicts = self._plan, self._verdicts
        ready = [cell for cell in plan.cells if cell.id not in plan.held]
        due = [cell for cell in ready if cell.id not in verdicts or verdicts[cell.id][0] != plan.prints[cell.id]]
        return sorted(due, key=lambda cell: self._status(cell) not in RED)

    def _status(self, cell: Cell) -> str | None:
        return self._verdicts[cell.id][1].status if cell.id in self._verdicts else None

    def _round(self) -> None:
        """Run cells until none is due, with those for which that comes to be so meanwhile."""
        self._began = time.time()
        start, causes = time.monotonic(), dict[Key, str]()
        done: dict[str, Record] = {}
        with contextlib.suppress(OSError):  # another process removed the store; cells do without where they have to
            make(self._home)
        while due := self._due():
            cell, fingerprint = due[0], self._plan.prints[due[0].id]
            try:
                record = self._record(cell)
            except _Superseded:
                continue
            self._verdicts[cell.id] = fingerprint, record
            done[cell.id] = record
            self._tell(record, causes)
            self._look()
        self._tell_round(list(done.values()), time.monotonic() - start)

    def _record(self, cell: Cell) -> Record:
        if cell.runtime not in self._absences:
            self._absences[cell.runtime] = registry.absence(cell.runtime)
        absent = self._absences[cell.runtime]
        if absent is not None:
            return skipped(cell, absent)
        if self._stale:
            self._fresh()
        for file in self._python:
            forget_bytecode(file)
        self._python.clear()
        self._used = True
        start = time.monotonic()

        def on_wait(note: dict[str, object]) -> None:
            self._screen.doing(cell.id, note, start)
            self._look(cell)

        record = self._runner(cell, on_wait)
        record.command = self._command_of(cell.id)
        return record

    def _fresh(self) -> None:
        """Keep a spare process ready that has not yet imported the watched files."""
        self._runner.renew()
        self._used = self._stale = False

    def _tidy(self) -> None:
        """Keep the store below its limit: each save of a network may leave another large model in it."""
        with contextlib.suppress(OSError):
            tidy(self._home, self._limit, self._began)

    # ---- changes -------------------------------------------------------------------------------------------

    def _look(self, running: Cell | None = None) -> None:
        """Take note of what has changed by now; _Superseded where the running cell depends on it."""
        changed = self._watched.look()
        if changed is not None:
            before = None if running is None else self._plan.prints[running.id]
            self._note(changed)
            if running is not None and (running.id in self._plan.held or self._plan.prints.get(running.id) != before):
                raise _Superseded

    def _note(self, changed: Changed) -> None:
        """Read again what has changed, and say what that comes to."""
        before, self._plan = self._plan, self._catalogue.read(changed.all)
        self._watched.expect(self._plan.signs)
        self._stale = self._used
        self._python |= {path for path in changed.all if path.suffix == ".py"}
        concerned = before.files | self._plan.files
        written = [path for path in changed.written if path in concerned]
        gone = [path for path in changed.gone if path in concerned]
        new = sorted(path for path in self._plan.files - before.files if path not in before.signs)
        parts = [*_name_paths(written, "changed"), *_name_paths(new, "new"), *_name_paths(gone, "gone")]
        due, prints = self._due(), self._plan.prints
        lost = len(before.prints.keys() - prints.keys())
        # a folder changes where Python makes its folder of bytecode, too
        if parts or any(before.prints.get(cell.id) != prints[cell.id] for cell in due):
            count = f"{len(due)} of {_cells(len(prints))} to run" if due else "no cell to run"
            self._screen.heading(f"{'; '.join(parts) or 'a folder changed'}: {count}")
        self._tell_problems()
        if lost:
            self._screen.line(f"{_cells(lost)} no longer there", "yellow")
        self._tell_empty()

    # ---- telling -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        selected = f"{len(self._plan.cells)} of " if self._catalogue.selects else ""
        imports = any(cell.case.says.onnx is None for cell in self._plan.cells)
        waits = "; PyTorch is being imported" if imports else ""
        self._screen.heading(f"{selected}{_cells(self._plan.considered)}{waits}")
        self._tell_problems()
        self._tell_empty()

    def _tell_problems(self) -> None:
        """Tell what is wrong with files and was not said before."""
        for problem in self._plan.problems:
            if problem not in self._problems:
                self._screen.line(block(problem), "red")
        if self._plan.held and self._problems != self._plan.problems:
            self._screen.line(f"{_cells(len(self._plan.held))} wait until that can be read")
        self._problems = self._plan.problems

    def _tell_empty(self) -> None:
        if not self._plan.cells:
            self._screen.line(f"{self._catalogue.asked}: no cell is selected so far", "yellow")

    def _tell(self, record: Record, causes: dict[Key, str]) -> None:
        if record.status == "skipped":
            return
        self._screen.line(f"  {text.verdict(record)}", _COLOURS[record.status])
        if record.status in RED:
            first = first_of(record, causes)
            self._screen.lines(text.failure(record) if first is None else text.repetition(record, first), "      ")

    def _tell_round(self, records: Sequence[Record], seconds: float) -> None:
        for runtime, (count, reasons) in matrix.not_run(records).items():
            self._screen.line(text.not_run(runtime, count, reasons), "yellow")
        if records:
            self._screen.line(f"{matrix.counts(records)}; {seconds:.1f} s")
        told, every = {record.id for record in records}, self._records()
        if len(records) < len(every):
            what = "with those that have not changed" if records else "the verdicts stand"
            self._screen.line(f"{what}, {matrix.counts(every)}")
        self._tell_failing([record for record in every if record.id not in told])
        count = len(self._plan.files)
        self._screen.line(f"watching {count} {'file' if count == 1 else 'files'}; Ctrl-C ends")

    def _tell_failing(self, records: Sequence[Record]) -> None:
        failing = [record.id for record in records if record.status in RED]
        more = f" and {len(failing) - NAMED} more" if len(failing) > NAMED else ""
        if failing:
            self._screen.line(f"failing: {', '.join(failing[:NAMED])}{more}", "red")

    def _end(self) -> None:
        records = self._records()
        self._screen.line("")
        self._screen.line(matrix.counts(records))
        self._tell_failing(records)
        left = len(self._plan.cells) - len(records)
        if left:
            self._screen.line(f"{_cells(left)} without a verdict on the files as they are", "yellow")

    def _records(self) -> list[Record]:
        """The verdicts that hold for the files as they are."""
        known = [(cell, *self._verdicts[cell.id]) for cell in self._plan.cells if cell.id in self._verdicts]
        return [record for cell, fingerprint, record in known if fingerprint == self._plan.prints[cell.id]]


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _name_paths(paths: Sequence[Path], what: str) -> list[str]:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return [f"{', '.join(map(display_path, paths[:NAMED]))}{more} {what}"] if paths else []


def first_of(record: Record, told: dict[Key, str]) -> str | None:
    """Return the id of the earlier cell that failed for the same cause, by those that were ``told`` in full, which
    gets this one; None for the first, and for what failed at an example of its own."""
    at_an_example = record.stage in ("run", "compare") or (record.draw is not None and record.stage != "declare")
    if record.status != "failed" or at_an_example:
        return None
    first = told.setdefault(key_of(record), record.id)
    return None if first == record.id else first
