"""A record in a small part of its memory, for the end of a run: until then a run has one of every cell at hand, while
the whole ones are in its file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from conformance.results.records import coverage_totals
from conformance.results.records.findings import RED, key_of
from conformance.results.records.matrix import SLOW_SECONDS
from conformance.results.records.sanitize import one_line
from conformance.results.records.spent import own_seconds

_ALWAYS = ("case", "exporter", "opset", "runtime", "precision", "check", "status", "examples")
_REASON = 240
"""Characters of a reason that are kept of a red cell."""
_OFTEN_NOTHING = ("ill_conditioned", "excused", "reused", "changed", "dropped_draws")


def brief(record: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a record that ``matrix``, ``findings``, ``coverage`` and ``text.dropped_draws`` read. They tell
    the same of it as of the whole record."""
    short: dict[str, Any] = {"id": record["id"], **{name: _shared(record[name]) for name in _ALWAYS}}
    short |= {name: record[name] for name in _OFTEN_NOTHING if record[name]}
    short["source"] = _source(**(record["source"] or {}))
    told = coverage_totals.known(record) or coverage_totals.unknown(record)
    if told is not None:
        short["coverage"] = told
    if own_seconds(record) > SLOW_SECONDS:
        short["seconds"] = record["seconds"]
    if record["status"] == "skipped":
        short["reason"] = _shared(record["reason"])
    if record["fidelity"] and record["worst"]:
        cost = {name: value for name, value in record["fidelity"].items() if name in ("sqnr", "changed")}
        short["fidelity"], short["worst"] = cost, {"ratio": record["worst"]["ratio"]}
    if record["status"] in RED:
        short |= {name: record[name] for name in ("stage", "error")}
        short["finding"] = [_shared(part) for part in key_of(record)]
        short["reason"] = one_line(record["reason"], _REASON)
    if record["latency"]:
        short["latency"] = {"budgets": record["latency"].get("budgets", ())}
    return short


@lru_cache(maxsize=1)  # cells of a case mostly follow one another
def _source(file: str | None = None, line: int | None = None) -> dict[str, Any]:
    return {"file": file, "line": line}


def _shared(value: Any) -> Any:
    """The value; of texts that are equal only one is kept, also where each record came from another process."""
    return sys.intern(value) if type(value) is str else value
