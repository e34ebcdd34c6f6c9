"""Runs rows one after another, and appends each to a work file at once, so that the next call can go on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from conformance.process.worker import children
from conformance.process.worker.isolation import Worker
from evidence.golden.fields import fields_of
from evidence.golden.file import Row
from evidence.golden.limits import NOTES, out_of_time, watched_worker
from evidence.golden.rows import Explained, Failure

TICKS = os.sysconf("SC_CLK_TCK")


class Work:
    """The rows of calls that have not come to their end, in a file, for one state of the code."""

    def __init__(self, file: Path, state: str) -> None:
        """``state`` says what the rows depend on; rows of another state are dropped."""
        self._file, self._state = file, state
        self.rows: dict[tuple[str, str], Row] = {}
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        if not lines or lines[0] != json.dumps({"state": state}):
            return
        try:
            for line in lines[1:]:
                row = Row.of(json.loads(line))
                self.rows[row.key] = row
        except ValueError:  # at the last line, of a call that was killed
            self._write()

    def add(self, row: Row) -> None:
        """Keep a row at once."""
        self.rows[row.key] = row
        if not self._file.exists() or len(self.rows) == 1:
            self._write()
            return
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{row.line()}\n")

    def drop(self, keys: Sequence[tuple[str, str]]) -> None:
        """Forget rows that are no longer needed."""
        self.rows = {key: row for key, row in self.rows.items() if key not in set(keys)}
        if self.rows:
            self._write()
        else:
            self._file.unlink(missing_ok=True)

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"state": self._state}), *(row.line() for row in self.rows.values())]
        self._file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def collect(failures: Sequence[Failure], work: Work) -> Iterator[Row]:
    """Yield the row of each failure, in order; those that the work file has are not run."""
    left = {one.key for one in failures} - {*work.rows}
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-golden-"))).resolve()
        stack.enter_context(mock.patch.dict(os.environ, {NOTES: str(place / "notes")}))
        worker = stack.enter_context(watched_worker()) if left else None
        for number, failure in enumerate(failures):
            if failure.key in left and worker is not None:
                print(f"{number + 1} of {len(failures)}: {failure.group}, {failure.id}", file=sys.stderr, flush=True)
                work.add(_finished(worker, failure, place))
            yield work.rows[failure.key]


def _finished(worker: Worker, failure: Failure, place: Path) -> Row:
    """Run a failure, and once more where it ran out of time, which it may have for a busy moment of the host."""
    row = _run(worker, failure, place)
    return _run(worker, failure, place) if row.unfinished else row


def _run(worker: Worker, failure: Failure, place: Path) -> Row:
    """Run a failure in a fresh process, as its explanation may not depend on the rows before it."""
    notes, folder = place / "notes", place / "row"
    notes.unlink(missing_ok=True)
    worker.replace()
    worker.ready()
    start = _processor_seconds()
    told = failure.run(worker, folder)
    worker.replace()
    seconds = round(_processor_seconds() - start, 1)
    if isinstance(told, Explained):
        unfinished = out_of_time(told.record, notes, hangs=failure.hangs)
        row = Row(*failure.key, fields_of(told.record, folder, told.more), seconds, tuple(unfinished))
    else:
        row = Row(*failure.key, {}, seconds, (f"the process: {told.how}",))
    shutil.rmtree(folder, ignore_errors=True)
    return row


def _processor_seconds() -> float:
    """Return the seconds that the processes below this one, and those of theirs that have ended, took of a core."""
    total = 0
    for pid in children.below(os.getpid()):
        with contextlib.suppress(OSError):
            after = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2]
            total += sum(map(int, after.split()[11:15]))
    return total / TICKS
