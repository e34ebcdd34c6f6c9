"""What reports ask of records, changes and headers: what is red, what blocks, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from conformance.results.records.findings import RED
from conformance.results.records.record import Record, Status
from conformance.results.records.record_types import Header
from conformance.results.records.validation import Measure

NamedRun = tuple[str, Header, Sequence[Record]]
"""What to call the run, its header, its records."""

STATUSES: tuple[str, ...] = ("failed", "xpassed", "xfailed", "passed", "skipped")
"""The statuses of a cell, in the order in which people want to see them."""
assert set(STATUSES) == set(get_args(Status))

WORDS = {
    "failed": "failed", "xpassed": "passed though declared to fail", "xfailed": "failed as declared",
    "passed": "passed", "skipped": "skipped",
}  # fmt: skip


def failures(rows: Sequence[Record]) -> list[Record]:
    """The rows that make a run fail, in the order of the run."""
    return [row for row in rows if row.status in RED]


def finished(header: Header) -> bool:
    """Return whether the run came to its end.

    The header of a run that was killed, or still runs, has no duration.
    """
    return isinstance(header.get("seconds"), (int, float))


def place(row: Record) -> str:
    """Return where the case is declared, as ``cases/a.yaml:12``.

    Empty where the record does not say.
    """
    file, line = row.source.get("file"), row.source.get("line")
    return "" if not file else f"{file}:{line}" if line else f"{file}"


def ratio(row: Record) -> Measure | None:
    """The worst example's error over what is allowed; an infinity or NaN as text, as records have them."""
    return None if row.worst is None else row.worst["ratio"]


def by_reason(rows: Iterable[Record]) -> dict[str, list[Record]]:
    """The rows by their reason, the most frequent reason first."""
    groups: dict[str, list[Record]] = {}
    for row in rows:
        groups.setdefault(str(row.reason or "no reason given"), []).append(row)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
