"""The findings of a run as SARIF 2.1.0, which code hosts and editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from conformance.records.findings import Finding, Key, findings
from conformance.records.location import places_of
from conformance.records.sanitize import one_line, visible
from conformance.report.record_rows import complete, failures
from conformance.report.verdict_words import verdict

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LONG = 4000
"""Characters of a message; a longer text belongs into the report."""


def sarif(records: Sequence[Mapping[str, Any]], version: str) -> dict[str, Any]:
    """Return a log with one result for each finding, at the line of Python that is wrong where one is known.

    ``version`` is that of the package that made the run. Raises UserError where a record lacks what every record has.
    """
    found = findings(failures(complete(records)))
    rules = {_rule(finding.key): finding.key for finding in found}
    driver = {
        "name": "conformance",
        "version": version,
        "rules": [_described(name, rules[name]) for name in sorted(rules)],
    }
    results = [_result(finding) for finding in found]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding) -> dict[str, Any]:
    first = dict(finding.cells[0])
    text = visible(verdict(first))
    others = [str(cell["id"]) for cell in finding.cells[1:]]
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
        "properties": {"cells": [str(cell["id"]) for cell in finding.cells]},
    }


def _rule(key: Key) -> str:
    return "/".join(re.sub(r"[^\w.-]+", "-", part) for part in (key.component, key.kind))


def _described(name: str, key: Key) -> dict[str, Any]:
    return {"id": name, "shortDescription": {"text": one_line(f"{key.component}: {key.kind}", 250)}}


def _location(file: str, line: int) -> dict[str, Any]:
    uri = quote(visible(file).replace("\\", "/"))
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": max(line, 1)}}}
