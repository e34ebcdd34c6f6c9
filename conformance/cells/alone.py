"""Check that a verdict is a cell's own: remember the cells that ran before it in its process, and run it in a fresh
one. A case whose Python replaced functions on which its own verdict rests has failed, whatever that verdict is."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable

from conformance.case.files.declaration import Case
from conformance.case.plan.cell import Cell
from conformance.models.kept.inventory import named
from conformance.models.replaced import replaced_function
from conformance.results.records import record_types
from conformance.results.records.explanation import Shows, fail, note, take_back
from conformance.results.records.record import Record

_ONCE_FOR_ALL = ("declare", "export", "check", "convert")
"""Stages at which a cell fails before its own work begins, as all cells do that need the same model."""
NAMED = 5
"""Cases that ran before a failing cell and are named in its record, the last ones."""


class Predecessors:
    """The cells that have run in the process which is running now, all of cases with the same Python."""

    def __init__(self) -> None:
        self._count = 0
        self._python: Hashable = None
        self._cases: dict[str, None] = {}
        """Names of the cases whose cells have run, the latest one last."""
        self._changes: dict[str, list[str]] = {}
        self._spoilt = False
        self._alone: set[Hashable] = set()

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        """The process has ended."""
        self._count, self._python, self._cases, self._changes, self._spoilt = 0, None, {}, {}, False

    def add(self, cell: Cell, record: Record, *, spoilt: bool) -> None:
        """A cell has run in the process, and has ``spoilt`` it where it changed something as it ran."""
        self._count, self._python, self._spoilt = self._count + 1, python_of(cell.case), spoilt
        self._cases.pop(cell.case.name, None)
        self._cases[cell.case.name] = None
        if record.changed:
            told = self._changes.setdefault(cell.case.name, [])
            told += [change["what"] for change in record.changed if change["what"] not in told]

    def allow(self, cell: Cell) -> bool:
        """Return whether the process may run this cell: of a case with the Python that has run there, in a process
        that no cell spoilt."""
        return self._python is None or (not self._spoilt and self._python == python_of(cell.case))

    def doubtful(self, cell: Cell, record: Record) -> bool:
        """Return whether the failure of a cell that ran after these has to come again in a fresh process to be
        believed."""
        if not _is_red(record) or not self._count:
            return False
        if record.error == "Timeout" or record.stage == "latency":  # measured twice already
            return False
        return _kind(cell, record) not in self._alone

    def note_alone(self, cell: Cell, record: Record) -> None:
        """Note what a cell did in a fresh process: what fails like it does not fail because of others."""
        if record.status == "failed" and record.stage in _ONCE_FOR_ALL:
            self._alone.add(_kind(cell, record))

    def told(self) -> record_types.After:
        """For the record of a cell that fails only after these."""
        last = list(itertools.islice(reversed(self._cases), NAMED))
        changed = {name: list(what) for name, what in self._changes.items()}
        return {"cells": self._count, "cases": last, "others": len(self._cases) - len(last), "changed": changed}


def python_of(case: Case) -> Hashable:
    """Return what tells the Python of cases apart: their folder, and the modules that they name there and elsewhere.

    What code does as it is imported, cases that name the same modules share. ONNX files without any share it too.
    """
    modules = {mention.text.partition(".")[0] for mention in named(case) if not mention.pattern}
    own = frozenset(modules - {"torch", "torchvision"})
    return None if case.says.onnx is not None and not own else (case.folder, own)


def believed(record: Record, alone: Record, before: record_types.After) -> Record:
    """Return the record of a cell that failed after others and then ran alone: the latter's where it fails too.

    A cell that does not fail alone has not passed: it may fail at times by itself, and nobody knows what the others
    did to it. A cell that passes after others needs no second run: where these changed anything, it did not come
    after them in their process.
    """
    if _is_red(alone):
        return alone
    if alone.doubted is not None and alone.doubted == record.error:
        return record  # alone it differs too, and nobody knows who is wrong
    record.after = {**before, "stage": record.stage, "error": record.error, "alone": alone.status}
    record.reason = f"{record.error} only after other cells in the same process: {record.reason}"
    record.status, record.error = "failed", "OnlyAfter"
    note(record, Shows("after others"))
    take_back(record)
    return record


def _is_red(record: Record) -> bool:
    return record.status in ("failed", "xpassed")


def _kind(cell: Cell, record: Record) -> Hashable:
    return cell.case.file, cell.case.name, cell.exporter, cell.opset, record.stage, record.error, record.reason


def fail_replaced(record: Record, names: Iterable[str]) -> bool:
    """Fail the record of a cell that replaced functions, if its verdict rests on one. Return whether it does."""
    stop = replaced_function(names)
    if stop is None or record.status == "skipped":
        return False
    fail(record, stop)
    take_back(record)
    record.draw = record.worst = record.bundle = None
    record.inputs = {}
    return True
