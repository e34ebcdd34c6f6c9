"""Records as reports want them: every field there, whichever version of this package wrote the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from conformance.errors import UserError
from conformance.records.record import Status

Row = dict[str, Any]
"""A record as plain data, with all the fields of ``_DEFAULTS``."""

STATUSES: tuple[str, ...] = ("failed", "xpassed", "xfailed", "passed", "skipped")
"""In the order in which people want to see them."""
assert set(STATUSES) == set(get_args(Status))

WORDS = {
    "failed": "failed", "xpassed": "passed though declared to fail", "xfailed": "failed as declared",
    "passed": "passed", "skipped": "skipped",
}  # fmt: skip

_REQUIRED = ("id", "case", "exporter", "opset", "check", "status")
_LISTS = ("details",)
_DICTS = ("source", "seconds")
_COUNTS = ("examples", "ill_conditioned", "nothing")
_OPTIONAL = (
    "runtime", "stage", "error", "reason", "worst", "draw", "signal", "graph", "arithmetic", "fault", "cause",
    "declared_for", "fidelity",
    "conversion", "loss", "engine", "latency", "histogram", "command", "bundle", "fingerprint",
)  # fmt: skip


def complete(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The records with the fields that they lack. Raises UserError for what is no record."""
    return [_complete(number, record) for number, record in enumerate(records, 1)]


def _complete(number: int, record: Mapping[str, Any]) -> Row:
    if not isinstance(record, Mapping):
        raise UserError(f"record {number} is {type(record).__name__}, not a mapping; make the run again")
    lacking = [name for name in _REQUIRED if record.get(name) is None]
    if lacking:
        raise UserError(f"record {number} lacks {', '.join(lacking)}; make the run again")
    if record["status"] not in STATUSES:
        raise UserError(f"record {number} has the status {record['status']!r}; one is {', '.join(STATUSES)}")
    row = {**dict.fromkeys(_OPTIONAL), **record}
    row |= {name: record.get(name) or [] for name in _LISTS}
    row |= {name: record.get(name) or {} for name in _DICTS}
    row |= {name: record.get(name) or 0 for name in _COUNTS}
    row["precision"] = record.get("precision") or "fp32"
    row["reused"] = bool(record.get("reused"))
    row["source"] = {"file": None, "line": None, **row["source"]}
    return row


def failures(rows: Sequence[Row]) -> list[Row]:
    """What makes a run red, in the order in which it was found."""
    return [row for row in rows if row["status"] in ("failed", "xpassed")]


def blocking(changes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the changes since a baseline those that nobody has accepted and that a release waits for."""
    return [one for one in changes if one.get("regression") and not one.get("accepted")]


def finished(header: Mapping[str, Any]) -> bool:
    """A run that was killed, or still runs, has not said how long it took."""
    return isinstance(header.get("seconds"), (int, float))


def place(row: Row) -> str:
    """``cases/a.yaml:12``; empty where the record does not say."""
    file, line = row["source"]["file"], row["source"]["line"]
    return "" if not file else f"{file}:{line}" if line else f"{file}"


def ratio(row: Row) -> float | str | None:
    """Error over what is allowed of the worst example; infinities as text, as records have them."""
    found = (row["worst"] or {}).get("ratio")
    return found if isinstance(found, (int, float)) or found in ("inf", "-inf", "nan") else None


def by_reason(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows with the same reason together, the most frequent reason first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["reason"] or "no reason given"), []).append(row)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))
