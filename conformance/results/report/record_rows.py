"""Records as reports want them: every field there, whichever version of this package wrote the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from conformance.process.errors import UserError
from conformance.results.records.record import Status
from conformance.results.records.run_file import with_defaults

Row = dict[str, Any]
"""A record as plain data, with every field of a record; one that the run file lacks is None, 0 or empty."""

STATUSES: tuple[str, ...] = ("failed", "xpassed", "xfailed", "passed", "skipped")
"""The statuses of a cell, in the order in which people want to see them."""
assert set(STATUSES) == set(get_args(Status))

WORDS = {
    "failed": "failed", "xpassed": "passed though declared to fail", "xfailed": "failed as declared",
    "passed": "passed", "skipped": "skipped",
}  # fmt: skip


def complete(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The records with all fields. Raises UserError where one lacks what every record has."""
    return [_complete(number, record) for number, record in enumerate(records, 1)]


def _complete(number: int, record: Mapping[str, Any]) -> Row:
    try:
        row = with_defaults(record)
    except UserError as error:
        raise UserError(f"record {number} {error}; make the run again") from None
    if row["status"] not in STATUSES:
        raise UserError(f"record {number} has the status {row['status']!r}; known are {', '.join(STATUSES)}")
    return {**row, "details": row.get("details") or []}


def failures(rows: Sequence[Row]) -> list[Row]:
    """The rows that make a run fail, in the order of the run."""
    return [row for row in rows if row["status"] in ("failed", "xpassed")]


def blocking(changes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the changes since a baseline, the regressions that nobody has accepted: a release waits for them."""
    return [change for change in changes if change.get("regression") and not change.get("accepted")]


def finished(header: Mapping[str, Any]) -> bool:
    """Return whether the run came to its end.

    The header of a run that was killed, or still runs, has no duration.
    """
    return isinstance(header.get("seconds"), (int, float))


def place(row: Row) -> str:
    """Return where the case is declared, as ``cases/a.yaml:12``.

    Empty where the record does not say.
    """
    file, line = row["source"]["file"], row["source"]["line"]
    return "" if not file else f"{file}:{line}" if line else f"{file}"


def ratio(row: Row) -> float | str | None:
    """The worst example's error over what is allowed; an infinity or NaN as text, as records have them."""
    value = (row["worst"] or {}).get("ratio")
    return value if isinstance(value, (int, float)) or value in ("inf", "-inf", "nan") else None


def by_reason(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows by their reason, the most frequent reason first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row["reason"] or "no reason given"), []).append(row)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))
