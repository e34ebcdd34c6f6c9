"""Whether a failure is a cell's own: which cells ran before it in its process, and what it does in a fresh one."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any

from conformance.case.declaration import Case
from conformance.plan.cell import Cell
from conformance.records.record import Record
from conformance.worker.state.fence import Fit

_ONCE_FOR_ALL = ("declare", "export", "check", "convert")
"""Stages at which a cell fails before its own work begins, as all cells do that need the same model."""
NAMED = 5
"""Cases that ran before a failing cell and are named in its record, the last ones."""


class Predecessors:
    """The cells that have run in the process which is running now."""

    def __init__(self) -> None:
        self._count = 0
        self._last: Case | None = None
        self._cases: dict[str, None] = {}
        """Names of the cases whose cells have run, the latest one last."""
        self._changes: dict[str, list[str]] = {}
        self._fit: Fit = "any"
        self._alone: set[Hashable] = set()

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        """The process has ended."""
        self._count, self._last, self._cases, self._changes, self._fit = 0, None, {}, {}, "any"

    def add(self, cell: Cell, record: Record, fit: Fit) -> None:
        """A cell has run in the process, which is now ``fit`` for certain other cells."""
        self._count, self._last = self._count + 1, cell.case
        self._cases.pop(cell.case.name, None)
        self._cases[cell.case.name] = None
        if record.changed:
            told = self._changes.setdefault(cell.case.name, [])
            told += [change["what"] for change in record.changed if change["what"] not in told]
        self._fit = fit

    def allow(self, cell: Cell) -> bool:
        """Whether the process may run this cell."""
        return self._fit == "any" or (self._fit == "case" and self._last == cell.case)

    def doubtful(self, cell: Cell, record: Record) -> bool:
        """Whether the failure of a cell that ran after these has to come again in a fresh process to be believed."""
        if record.status not in ("failed", "xpassed") or not self._count:
            return False
        if record.error == "Timeout" or record.stage == "latency":  # measured twice already
            return False
        return _kind(cell, record) not in self._alone

    def note_alone(self, cell: Cell, record: Record) -> None:
        """Notes what a cell did in a fresh process: what fails like it does not fail because of others."""
        if record.status == "failed" and record.stage in _ONCE_FOR_ALL:
            self._alone.add(_kind(cell, record))

    def told(self) -> dict[str, Any]:
        """For the record of a cell that fails only after these."""
        last = list(itertools.islice(reversed(self._cases), NAMED))
        changed = {name: list(what) for name, what in self._changes.items()}
        return {"cells": self._count, "cases": last, "others": len(self._cases) - len(last), "changed": changed}


def believed(record: Record, alone: Record, before: dict[str, Any]) -> Record:
    """The record of a cell that failed after others and then ran alone: the latter's where it fails too.

    A cell that does not fail alone has not passed: it may fail at times by itself, and nobody knows what the others
    did to it.
    """
    if alone.status in ("failed", "xpassed"):
        return alone
    record.after = {**before, "stage": record.stage, "error": record.error, "alone": alone.status}
    record.reason = f"{record.error} only after other cells in the same process: {record.reason}"
    record.status, record.error, record.fault = "failed", "OnlyAfter", None
    record.witnesses, record.conclusion, record.own_code, record.cause = [], None, [], None
    record.parts_at = record.operator = None
    return record


def _kind(cell: Cell, record: Record) -> Hashable:
    return cell.case.file, cell.case.name, cell.exporter, cell.opset, record.stage, record.error, record.reason
