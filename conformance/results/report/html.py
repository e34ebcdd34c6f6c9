"""One HTML page about a run, with earlier runs as its history. It opens from disk and asks nothing of a network.

Ten thousand records repeat themselves: in its JSON, columns instead of rows leave out the names, and a column whose
values repeat is a list of different values with a number for each row.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from conformance.process.errors import UserError
from conformance.results.baseline.change import Change, blocking
from conformance.results.records import finding_block, matrix, text
from conformance.results.records.findings import Finding, findings, since
from conformance.results.records.record import FIELDS, Record
from conformance.results.records.record_types import Header
from conformance.results.records.sanitize import cleaned, literal, visible
from conformance.results.report.record_rows import STATUSES, WORDS, NamedRun, by_reason, failures, finished, ratio
from conformance.results.report.verdict_words import details, verdict


def grid(rows: Sequence[Record]) -> dict[str, object]:
    """``{groups, cases, cells, missing}`` of plain values.

    ``groups`` are ``{exporter, part, precision, opsets}``. ``cells`` has a list over all columns for each case; each
    item is null or ``[sign, number, ...]`` with the numbers of the cell's rows, the row that decides the sign first.
    ``missing`` are lines about runtimes of which nothing was run.
    """
    missing = matrix.not_run(rows)
    shown = [(number, row) for number, row in enumerate(rows) if row.runtime not in missing]
    own, beside = matrix.by_key(shown)
    groups = matrix.groups(column for _, column in [*own, *beside])
    columns = [column for group in groups for column in group]
    cases = matrix.cases_of(row for _, row in shown)

    def cell(key: matrix.Key) -> list[object] | None:
        return _cell(rows, own.get(key, []), beside.get(key, []))

    return {
        "groups": [_hover(group) for group in groups],
        "cases": cases,
        "cells": [[cell((case, column)) for column in columns] for case in cases],
        "missing": [
            f"{name} was not run: {count} cells skipped: {'; '.join(reasons)}"
            for name, (count, reasons) in missing.items()
        ],
    }


def _hover(group: list[matrix.Column]) -> dict[str, object]:
    exporter, part, precision, _ = group[0]
    opsets = [column[3] for column in group]
    return {"exporter": exporter, "part": part, "precision": precision, "opsets": opsets}


def _cell(rows: Sequence[Record], own: list[int], beside: list[int]) -> list[object] | None:
    if not own and not beside:
        return None

    mine, further = matrix.worst(rows, own), matrix.worst(rows, beside)
    first, second = (None if number is None else rows[number].status for number in (mine, further))
    sign = matrix.sign(first, second)
    decides = further if first is None or sign != matrix.sign(first, None) else mine
    return [sign, decides, *(number for number in [*own, *beside] if number != decides)]


def column(values: Sequence[object]) -> dict[str, list[object]]:
    """One column: ``{values}``, or ``{values, rows}`` where at most half of the values differ from one another, and
    ``values[rows[i]]`` is the value of row ``i``."""
    numbers: dict[str, int] = {}
    different: list[Any] = []
    rows: list[int] = []
    for value in values:
        key = _KEY(value)  # 1, 1.0, True and "1" are not the same
        if key not in numbers:
            numbers[key] = len(different)
            different.append(value)
        rows.append(numbers[key])
    if 2 * len(different) > len(values):
        return {"values": list(values)}
    return {"values": different, "rows": rows}


_KEY = json.JSONEncoder(sort_keys=True).encode


def script_text(data: object) -> str:
    """JSON that may stand in a ``<script>``: no character of it can end the element, a string or a line.

    All but ASCII is escaped, which covers U+2028 and U+2029; of ASCII ``<``, ``>`` and ``&``. Raises ValueError for
    NaN and infinities.
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def source_hash(text: str) -> str:
    """Return ``'sha256-...'`` of an inline script or style for its policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


_LEFT_OUT = ("fingerprint", "depends", "again")
"""The fields of a record that the page lacks: what it is not to be run again for, which ``conformance explain``
reads."""

MOST_SAMPLES = 400
"""Dots of a latency that are drawn; nobody could tell more of them apart."""
MOST_CHANGES = 100
"""Changes of a kind that are listed; the others are in the list of cells."""
MOST_CELLS = 8
"""Cells of a finding that the page links to."""
MOST_FIRST = 20
"""Findings that are shown at the top, those with most cells first."""

_HERE = Path(__file__).parent
_SCRIPTS = ("data.js", "charts.js", "cell.js", "matrix.js", "list.js", "page.js")
_RELATION = re.compile(r"\s*[\d.e+-]+\s*[x×*]", re.IGNORECASE)
"""The beginning of a budget that is a multiple of another duration, as in ``1.2 x pytorch``; any other budget is a
time."""


def page(runs: Sequence[NamedRun], changes: Sequence[Change] = ()) -> str:
    """The page about the last of ``runs``; the earlier ones, oldest first, are its history.

    ``changes`` are those since a baseline. Raises UserError where there is no run.
    """
    if not runs:
        raise UserError("there is no run to report")
    *earlier, (name, header, records) = runs
    name, header, rows = visible(name), cleaned(header), [_cleaned(record) for record in records]
    history = [*(_past(*run, rows) for run in earlier), _past(name, header, rows, rows)]
    changed = _changes(changes, rows)
    found = findings(rows, header.get("environment"))
    past = [(run, {visible(row.id): row for row in records}) for run, _, records in earlier]
    skipped = [row for row in rows if row.status == "skipped"]
    script = '"use strict";\n(() => {\n' + "\n".join(map(_read, _SCRIPTS)) + "\n})();\n"
    style = _read("page.css")
    data = _data(rows, history, changed)
    signs = {cell[0] if cell else "·" for line in data["matrix"]["cells"] for cell in line}
    return _template().render(
        policy=_policy(script, style),
        style=Markup(style),  # ours, and hashed as it stands
        script=Markup(script),
        data=Markup(script_text(data)),
        title=_title(rows, len(blocking(changes))),
        name=name,
        started=header.get("started"),
        finished=finished(header),
        duration=_duration(header),
        about=list(_list_environment(header)),
        statuses=[(status, WORDS[status], sum(row.status == status for row in rows)) for status in STATUSES],
        counts=matrix.counts(rows),
        verified=matrix.counts(rows).partition("; ")[2],
        first=[_headline(finding, past) for finding in found[:MOST_FIRST]],
        findings=text.found(len(found), len(failures(rows))),
        red=len(failures(rows)),
        faults=Counter(text.at_fault(row) or "not known" for row in failures(rows)).most_common(),
        skipped=[(reason, len(same)) for reason, same in by_reason(skipped).items()],
        changes=_by_kind(changed),
        compared=len(changed),
        most_changes=MOST_CHANGES,
        legend={sign: matrix.MEANINGS[sign] for sign in matrix.MEANINGS if sign in signs},
    )


def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """The page may load and run nothing but its own script and style, nor turn text into markup (trusted types)."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {source_hash(script)}",
            f"style-src {source_hash(style)}",
            "img-src data:",  # the empty icon, or browsers ask the server for one
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def _title(rows: Sequence[Record], regressions: int) -> str:
    red = len(failures(rows))
    cells = "1 cell" if len(rows) == 1 else f"{len(rows)} cells"
    if red:
        return f"{red} of {cells} failed"
    if regressions:
        return f"{cells}, none failed, {regressions} regression{'' if regressions == 1 else 's'}"
    return f"{cells}, none failed" if any(row.status != "skipped" for row in rows) else f"{cells}, nothing verified"


def _headline(finding: Finding, past: Sequence[tuple[str, Mapping[str, Record]]]) -> dict[str, object]:
    """A finding as a block, with links to its cells."""
    block = finding_block.describe(finding, since(finding, past))
    return {
        "id": block.id, "who": block.who, "what": block.what, "rows": block.rows,
        "cells": [cell.id for cell in finding.cells[:MOST_CELLS]], "more": max(len(finding.cells) - MOST_CELLS, 0),
    }  # fmt: skip


def _duration(header: Header) -> str:
    if not finished(header):
        return ""
    seconds = header["seconds"]
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def _list_environment(header: Header) -> Any:
    """List what the environment says, as pairs of text."""
    environment = header.get("environment") or {}
    for name, value in environment.items():
        if name == "versions" and isinstance(value, dict):
            yield from ((package, version or "not installed") for package, version in value.items())
        elif isinstance(value, dict):
            yield name, "; ".join(f"{key}: {_plain(item)}" for key, item in value.items())
        else:
            yield name, _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "none" if value is None else str(value)


# ---- the data of the script ----------------------------------------------------------------------------


def _data(rows: list[Record], history: list[dict[str, object]], changes: list[dict[str, object]]) -> dict[str, Any]:
    told = {
        **{name: [getattr(row, name) for row in rows] for name in FIELDS if name not in _LEFT_OUT},
        "latency": [_latency(row.latency) for row in rows],
        "command": [row.command and literal(row.command) for row in rows],
        "details": [details(row) for row in rows],
        "replay": [text.replay_of(row) for row in rows],
        "who": [text.at_fault(row) for row in rows],
        "words": [verdict(row) for row in rows],
    }
    return {
        "count": len(rows),
        "columns": {name: column(values) for name, values in told.items()},
        "matrix": grid(rows),
        "history": history,
        "changes": [change for change in changes if change["row"] is not None],
    }


def _past(name: str, header: Header, records: Sequence[Record], rows: Sequence[Record]) -> dict[str, object]:
    """A run as history: for each of ``rows`` the status that the same cell had there (null: none) and its ratio."""
    by_id = {visible(row.id): row for row in records}
    there = [by_id.get(row.id) for row in rows]
    return {
        "name": visible(name),
        "started": cleaned(header.get("started")),
        "finished": finished(header),
        "status": column([row and row.status for row in there]),
        "ratio": column([row and cleaned(ratio(row)) for row in there]),
    }


def _latency(latency: object) -> object:
    """The latency with no more samples than are drawn, and with each budget's kind; statistics are of all samples."""
    if not isinstance(latency, dict):
        return latency
    drawn = dict(latency)
    for side in ("own", "other"):
        if isinstance(drawn.get(side), dict) and isinstance(drawn[side].get("samples"), list):
            samples = drawn[side]["samples"]
            step = -(-len(samples) // MOST_SAMPLES)
            thinned = samples[:: step or 1]
            drawn[side] = {**drawn[side], "samples": [_short(sample) for sample in thinned], "measured": len(samples)}
    if isinstance(drawn.get("budgets"), list):
        drawn["budgets"] = [
            {**budget, "relation": bool(_RELATION.match(str(budget.get("text"))))}
            for budget in drawn["budgets"]
            if isinstance(budget, dict)
        ]
    return drawn


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


# ---- changes ---------------------------------------------------------------------------------------------


def _cleaned(record: Record) -> Record:
    """Return a record in which no text does anything."""
    fields = {name: cleaned(getattr(record, name)) for name in FIELDS}
    return Record(**fields, unknown=cleaned(record.unknown))


def _changes(changes: Sequence[Change], rows: Sequence[Record]) -> list[dict[str, object]]:
    """The changes as the page tells them, with the number of their row; null where the cell is gone."""
    numbers = {row.id: number for number, row in enumerate(rows)}
    return [
        {
            "id": visible(change.id),
            "kind": visible(change.kind or "changed"),
            "regression": change.regression,
            "accepted": change.accepted,
            "text": visible(change.text),
            "row": numbers.get(visible(change.id)),
        }
        for change in changes
    ]


def _by_kind(changes: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Kinds of change: what blocks a release first, then what was accepted, then the rest."""

    def rank(change: dict[str, Any]) -> tuple[int, str]:
        return (0 if not change["accepted"] else 1) if change["regression"] else 2, change["kind"]

    kinds = []
    for (order, kind), same in groupby(sorted(changes, key=rank), key=rank):
        weight = ("regression", "accepted regression", "change")[order]
        kinds.append({"kind": kind, "weight": weight, "blocks": order == 0, "changes": list(same)})
    return kinds
