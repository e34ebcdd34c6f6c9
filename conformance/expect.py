"""Holding a record against the failures that its case declares. Strict in both directions."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.case import Fails
from conformance.errors import display_path
from conformance.plan import Cell, expected, owed
from conformance.record import Record

MARGIN = 2.0
"""An expected wrong value has to be this many times what is allowed, or it may pass tomorrow."""


def settle(cell: Cell, record: Record) -> Record:
    """Turns passed/failed into the final status; entries about single draws have been settled before.

    A failure that a ``fails`` entry declares is expected wherever the entry matches; that it does not happen
    is held against the cells that owe it.
    """
    entries = [entry for entry in expected(cell) if not entry.when.only_some_draws]
    if not entries or record.status not in ("passed", "failed"):
        return record
    if record.status == "passed":
        entries = [entry for entry in entries if owed(entry, cell)]
        if not entries:
            return record
        record.status = "xpassed"
        record.fault = "case"
        record.reason = f"it works, but {_declared(cell, entries)}; take the entry out"
        return record
    for entry in entries:
        if agrees(entry, record.stage, record.error, record.reason):
            if _borderline(record):
                ratio = (record.worst or {})["ratio"]
                record.reason = (
                    f"the declared failure is borderline: {ratio:.2g} times what is allowed, less than {MARGIN:g}"
                )
                return record
            record.status = "xfailed"
            record.details.insert(0, f"found: {record.reason}")
            record.reason = entry.because
            record.fault = entry.fault or record.fault
            return record
    record.details.insert(0, f"declared otherwise: {_declared(cell, entries)}")
    return record


def agrees(entry: Fails, stage: str | None, error: str | None, reason: str | None) -> bool:
    """Whether what happened is what the entry declares: its stage, and its error by name or text."""
    if entry.stage != stage:
        return False
    return entry.error is None or entry.error == error or entry.error in (reason or "")


def _borderline(record: Record) -> bool:
    if record.stage != "compare" or record.error != "WrongValue":
        return False
    return float((record.worst or {}).get("ratio", MARGIN)) < MARGIN


def _declared(cell: Cell, entries: Sequence[Fails]) -> str:
    texts = []
    for entry in entries:
        line = cell.case.line_of(entry)
        what = f"stage {entry.stage}" + (f" with {entry.error}" if entry.error else "")
        texts.append(f"{display_path(cell.case.file)}:{line} declares that it fails at {what}")
    return " and ".join(texts)
