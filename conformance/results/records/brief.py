"""A record in a small part of its memory, for the end of a run: until then a run has one of every cell at hand, while
the whole ones are in its file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from conformance.results.records.record import Record
from conformance.results.records.record_types import Coverage, Fidelity, Latency, Place, Worst
from conformance.results.records.spent import own_seconds

SLOW_SECONDS = 20.0
"""A cell that takes longer is named at the end: it may want fewer examples, smaller dims or another runtime."""
_Text = TypeVar("_Text", str, str | None)


@dataclass(frozen=True, slots=True)
class Brief:
    """The fields of a record that ``matrix``, ``coverage_totals`` and ``text.dropped_draws`` read. They tell the same
    of it as of the whole record."""

    id: str
    case: str
    exporter: str
    opset: int
    runtime: str | None
    precision: str
    check: str
    status: str
    source: Place
    examples: int
    ill_conditioned: int
    excused: int
    dropped_draws: int
    reused: bool
    reason: str | None
    """Of a skipped cell."""
    changed: list[Any]
    coverage: Coverage | None
    fidelity: Fidelity | None
    worst: Worst | None
    """Its ratio, where there is a ``fidelity``."""
    latency: Latency | None
    """Its budgets."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of a slow cell."""


Told = Record | Brief
"""What the end of a run is told of."""


def brief(record: Record) -> Brief:
    """Return the parts of a record that the end of a run tells of."""
    costs = record.fidelity is not None and record.worst is not None
    return Brief(
        id=record.id,
        case=_shared(record.case),
        exporter=_shared(record.exporter),
        opset=record.opset,
        runtime=_shared(record.runtime),
        precision=_shared(record.precision),
        check=_shared(record.check),
        status=_shared(record.status),
        source=_source(record.source.get("file"), record.source.get("line")),
        examples=record.examples,
        ill_conditioned=record.ill_conditioned,
        excused=record.excused,
        dropped_draws=record.dropped_draws,
        reused=record.reused,
        reason=_shared(record.reason) if record.status == "skipped" else None,
        changed=record.changed or _NONE,
        coverage=_coverage(record.coverage),
        fidelity=_cost(record.fidelity) if costs else None,
        worst={"ratio": record.worst["ratio"]} if costs and record.worst is not None else None,
        latency=None if record.latency is None else {"budgets": record.latency.get("budgets")},
        seconds=record.seconds if own_seconds(record) > SLOW_SECONDS else _NO_SECONDS,
    )


_NONE: list[Any] = []
_NO_SECONDS: dict[str, float] = {}


def _coverage(told: Coverage | None) -> Coverage | None:
    """Return what ``coverage_totals`` reads."""
    if told is None:
        return None
    short: Coverage = {"seen": told["seen"], "of": told["of"], "blind": []}
    if told.get("beyond"):
        short["beyond"] = told["beyond"]
    if "unknown" in told:
        short |= {"unknown": told["unknown"], "why": told.get("why")}
    return short


def _cost(told: Fidelity | None) -> Fidelity:
    told = told or {}
    return {"changed": told["changed"]} if "changed" in told else {"sqnr": told.get("sqnr")}


@lru_cache(maxsize=1)  # cells of a case mostly follow one another
def _source(file: str | None, line: int | None) -> Place:
    return {"file": file, "line": line}


def _shared(text: _Text) -> _Text:
    """The text; of those that are equal only one is kept, also where each record came from another process."""
    return text if text is None else sys.intern(text)
