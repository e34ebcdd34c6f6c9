"""A record in a small part of its memory, for the end of a run: until then a run has one of every cell at hand, while
the whole ones are in its file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from conformance.results.records.record import Record
from conformance.results.records.record_types import Coverage, Fidelity, Latency, LeftOut, Place, Worst
from conformance.results.records.spent import own_seconds

SLOW_SECONDS = 20.0
"""A cell that takes longer is named at the end: it may want fewer examples, smaller dims or another runtime."""


@dataclass(frozen=True, slots=True)
class Brief:
    """The fields of a record that ``matrix``, ``coverage_totals`` and ``text.draws_not_run`` read. They tell the same
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
    left_out: LeftOut | None
    reused: bool
    reason: str | None
    """Of a skipped cell."""
    changed: list[Any]
    coverage: Coverage | None
    """Without the calls that are not seen."""
    fidelity: Fidelity | None
    worst: Worst | None
    """Where there is a ``fidelity``."""
    latency: Latency | None
    """Its budgets."""
    seconds: dict[str, float]
    """Of a slow cell."""


Told = Record | Brief
"""What the end of a run is told of."""


def brief(record: Record) -> Brief:
    """Return the parts of a record that the end of a run tells of. Of texts that are equal only one is kept, also
    where each record came from another process."""
    skipped = record.status == "skipped"
    return Brief(
        id=record.id,
        case=sys.intern(record.case),
        exporter=sys.intern(record.exporter),
        opset=record.opset,
        runtime=record.runtime and sys.intern(record.runtime),
        precision=sys.intern(record.precision),
        check=sys.intern(record.check),
        status=sys.intern(record.status),
        source=_source(record.source.get("file"), record.source.get("line")),
        examples=record.examples,
        ill_conditioned=record.ill_conditioned,
        excused=record.excused,
        dropped_draws=record.dropped_draws,
        left_out=record.left_out,
        reused=record.reused,
        reason=sys.intern(record.reason) if skipped and record.reason else None,
        changed=record.changed or _NOTHING,
        coverage=None if record.coverage is None else {**record.coverage, "blind": [], "hidden": []},
        fidelity=record.fidelity,
        worst=record.worst if record.fidelity else None,
        latency=None if record.latency is None else {"budgets": record.latency.get("budgets")},
        seconds=record.seconds if own_seconds(record) > SLOW_SECONDS else _NO_SECONDS,
    )


_NOTHING: list[object] = []
_NO_SECONDS: dict[str, float] = {}


@lru_cache(maxsize=1)  # cells of a case mostly follow one another
def _source(file: str | None, line: int | None) -> Place:
    return {"file": file, "line": line}
