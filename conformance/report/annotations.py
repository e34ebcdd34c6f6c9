"""Failures and regressions as GitHub's workflow commands, which put them beside the case's line in a pull request.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands#setting-an-error-message
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.records.findings import findings
from conformance.records.location import places_of
from conformance.records.sanitize import one_line, visible
from conformance.report.record_rows import Row, blocking, complete, failures
from conformance.report.verdict_words import verdict

MOST = 10
"""How many errors of a step GitHub shows, and how many warnings; it drops the rest without a word."""
_LONG = 4000
"""Characters of a message; a longer text belongs into the report."""
_NAMED = 5
"""Further cells with the same failure that are named."""


@dataclass(frozen=True)
class _Command:
    source: Mapping[str, Any]
    title: str
    message: str


def github(records: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]] = ()) -> Iterator[str]:
    """One line for each failure, for each regression that is no failure (``changes`` are those since a baseline), and
    for each reason for which cells were skipped; each at a case's line.

    Cells that are red for one cause share a line. Of more than ten errors or warnings the last that
    GitHub shows says how many are left out. Raises UserError where a record lacks what every record has.
    """
    rows = complete(records)
    red = failures(rows)
    errors = [_error([dict(cell) for cell in finding.cells]) for finding in findings(red)]
    told = {row["id"] for row in red}
    worse = [_changed(change) for change in blocking(changes) if change.get("id") not in told]
    errors += [_worse(group) for group in _same(worse, ("kind",), by_case=True)]
    yield from _commands("error", errors, "failures")
    skipped = _same([row for row in rows if row["status"] == "skipped"], ("reason",), by_case=False)
    yield from _commands("warning", [_warning(group) for group in skipped], "reasons")


def _changed(change: Mapping[str, Any]) -> dict[str, Any]:
    """A change with the fields that grouping and its line need."""
    source = change.get("source") or {}
    return {**change, "source": {"file": source.get("file"), "line": source.get("line")}}


def _same(rows: Sequence[Row], fields: Sequence[str], by_case: bool) -> list[list[Row]]:
    """Groups of rows with equal ``fields``, in the order of each group's first row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        where = (row["source"]["file"], row["source"]["line"]) if by_case else ()
        groups.setdefault((*where, *(str(row[field]) for field in fields)), []).append(row)
    return list(groups.values())


def _error(group: Sequence[Row]) -> _Command:
    message = verdict(group[0])
    if len(message) > _LONG:
        message = f"{message[: _LONG - 1]}…"
    file, line = next(places_of(group[0]), (group[0]["source"]["file"], group[0]["source"]["line"]))
    return _Command({"file": file, "line": line}, str(group[0]["id"]), f"{message}{_others(group)}")


def _worse(group: Sequence[Row]) -> _Command:
    first = group[0]
    message = f"{first.get('kind')} since the baseline: {one_line(first.get('text'), _LONG)}"
    return _Command(first["source"], str(first.get("id")), f"{message}{_others(group)}")


def _others(group: Sequence[Row]) -> str:
    ids = [row["id"] for row in group[1:]]
    if not ids:
        return ""
    named = ", ".join(one_line(cell, 200) for cell in ids[:_NAMED])
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"\nthe same in {named}{more}"


def _warning(group: Sequence[Row]) -> _Command:
    cells = "cell was" if len(group) == 1 else "cells were"
    message = f"{len(group)} {cells} skipped: {one_line(group[0]['reason'] or 'no reason given', _LONG)}"
    return _Command(group[0]["source"], f"{len(group)} skipped", message)


def _commands(kind: str, commands: Sequence[_Command], what: str) -> Iterator[str]:
    for number, command in enumerate(commands[:MOST], 1):
        message = command.message
        if number == MOST and len(commands) > MOST:
            message += f"\n{len(commands) - MOST} more {what} are not shown here: GitHub takes {MOST} of a step"
        yield _command(kind, command.source, one_line(command.title, 250), message)


def _command(kind: str, source: Mapping[str, Any], title: str, message: str) -> str:
    properties = {"file": source["file"], "line": source["line"] if source["file"] else None, "title": title}
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value not in (None, ""))
    return f"::{kind} {said}::{_data(message)}"


def _data(text: str) -> str:
    """A message, escaped as GitHub reads it."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _data(str(value)).replace(":", "%3A").replace(",", "%2C")
