"""Failures and regressions as GitHub's workflow commands, which put them beside the case's line in a pull request;
and the findings of a run as SARIF 2.1.0, which code hosts and editors read.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands#setting-an-error-message
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from conformance.results.baseline.change import Change, blocking
from conformance.results.records.findings import Finding, Key, findings
from conformance.results.records.location import places_of
from conformance.results.records.record import Record
from conformance.results.records.record_types import Place
from conformance.results.records.sanitize import one_line, visible
from conformance.results.report.record_rows import failures
from conformance.results.report.verdict_words import verdict

MOST = 10
"""How many errors of a step GitHub shows, and how many warnings; it drops the rest without a word."""
_LONG = 4000
"""Characters of a message; a longer text belongs into the report."""
_NAMED = 5
"""Further cells with the same failure that are named."""


@dataclass(frozen=True)
class _Command:
    source: Place
    title: str
    message: str


def github(records: Sequence[Record], changes: Sequence[Change] = ()) -> Iterator[str]:
    """One line for each failure, for each regression that is no failure (``changes`` are those since a baseline), and
    for each reason for which cells were skipped; each at a case's line.

    Cells that are red for one cause share a line. Of more than ten errors or warnings the last that
    GitHub shows says how many are left out.
    """
    red = failures(records)
    errors = [_error(finding.cells) for finding in findings(red)]
    told = {row.id for row in red}
    worse: dict[tuple[object, ...], list[Change]] = {}
    for change in blocking(changes):
        if change.id not in told:
            place = change.source.get("file"), change.source.get("line")
            worse.setdefault((*place, change.kind), []).append(change)
    yield from _commands("error", [*errors, *map(_worse, worse.values())], "failures")
    skipped: dict[str | None, list[Record]] = {}
    for row in records:
        if row.status == "skipped":
            skipped.setdefault(row.reason, []).append(row)
    yield from _commands("warning", [_warning(group) for group in skipped.values()], "reasons")


def _error(group: Sequence[Record]) -> _Command:
    message = verdict(group[0])
    if len(message) > _LONG:
        message = f"{message[: _LONG - 1]}…"
    first = group[0]
    file, line = next(places_of(first), (first.source.get("file"), first.source.get("line")))
    return _Command({"file": file, "line": line}, first.id, f"{message}{_others(group)}")


def _worse(group: Sequence[Change]) -> _Command:
    first = group[0]
    message = f"{first.kind} since the baseline: {one_line(first.text, _LONG)}"
    return _Command(first.source, first.id, f"{message}{_others(group)}")


def _others(group: Sequence[Record | Change]) -> str:
    ids = [row.id for row in group[1:]]
    if not ids:
        return ""
    named = ", ".join(one_line(cell, 200) for cell in ids[:_NAMED])
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"\nthe same in {named}{more}"


def _warning(group: Sequence[Record]) -> _Command:
    cells = "cell was" if len(group) == 1 else "cells were"
    message = f"{len(group)} {cells} skipped: {one_line(group[0].reason or 'no reason given', _LONG)}"
    return _Command(group[0].source, f"{len(group)} skipped", message)


def _commands(kind: str, commands: Sequence[_Command], what: str) -> Iterator[str]:
    for number, command in enumerate(commands[:MOST], 1):
        message = command.message
        if number == MOST and len(commands) > MOST:
            message += f"\n{len(commands) - MOST} more {what} are not shown here: GitHub takes {MOST} of a step"
        yield _command(kind, command.source, one_line(command.title, 250), message)


def _command(kind: str, source: Place, title: str, message: str) -> str:
    file = source.get("file")
    properties = {"file": file, "line": source.get("line") if file else None, "title": title}
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value not in (None, ""))
    return f"::{kind} {said}::{_data(message)}"


def _data(text: str) -> str:
    """A message, escaped as GitHub reads it."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _data(str(value)).replace(":", "%3A").replace(",", "%2C")


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(records: Sequence[Record], version: str) -> dict[str, object]:
    """Return a log with one result for each finding, at the line of Python that is wrong where one is known.

    ``version`` is that of the package that made the run.
    """
    found = findings(failures(records))
    rules = {_rule(finding.key): finding.key for finding in found}
    driver = {
        "name": "conformance",
        "version": version,
        "rules": [_described(name, rules[name]) for name in sorted(rules)],
    }
    results = [_result(finding) for finding in found]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding) -> dict[str, object]:
    first = finding.cells[0]
    text = visible(verdict(first))
    others = [cell.id for cell in finding.cells[1:]]
    message = text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
    if others:
        message += f"\nthe same in {len(others)} other cell{'' if len(others) == 1 else 's'}"
    places = list(dict.fromkeys(place for cell in finding.cells for place in places_of(cell)))
    located = list(places_of(first))[:1]
    return {
        "ruleId": _rule(finding.key),
        "level": "error",
        "message": {"text": message},
        "locations": [_location(*place) for place in located],
        "relatedLocations": [_location(*place) for place in places if place not in located],
        "partialFingerprints": {"conformanceFinding/v1": finding.id},
        "properties": {"cells": [cell.id for cell in finding.cells]},
    }


def _rule(key: Key) -> str:
    return "/".join(re.sub(r"[^\w.-]+", "-", part) for part in (key.component, key.kind))


def _described(name: str, key: Key) -> dict[str, object]:
    return {"id": name, "shortDescription": {"text": one_line(f"{key.component}: {key.kind}", 250)}}


def _location(file: str, line: int) -> dict[str, object]:
    uri = quote(visible(file).replace("\\", "/"))
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": max(line, 1)}}}
