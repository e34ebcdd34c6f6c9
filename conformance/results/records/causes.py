"""Red cells that fail for one cause, as far as their records tell before anybody is asked, and the explanation that
they share.

A verdict says that a cell fails. What explains it takes longer, so that all cells have their verdicts first, and one
cell of a cause is explained for all.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from conformance.results.records.findings import VALUES, shows_less
from conformance.results.records.library_messages import said
from conformance.results.records.record import Host, Identity, Record, own_fields

CLOSE = 0.1
"""Two wrong values are one error where they differ by less than this part of it: an error of the model gives all
runtimes the same wrong values, but for rounding."""

_COUNTED = (
    "examples", "ill_conditioned", "nothing", "excused", "left_open", "dropped_draws", "left_out", "rows",
    "histogram", "after", "arithmetic",
)  # fmt: skip
_KEPT = (*_COUNTED, *(item.name for group in (Identity, Host) for item in own_fields(group)))
"""The fields that the run of all examples filled, and that of one example would not."""


def cause_of_smallest(case: str, exporter: str, operator: Mapping[str, object]) -> str:
    """Return what cells of which one shows the smallest function have in common: the case, the exporter, and where
    and how the operator parts, as the record's ``operator`` has it."""
    return " ".join(str(part) for part in (case, exporter, *map(operator.get, ("operator", "line", "module", "how"))))


def cause_of_export(case: str, exporter: str, error: str | None, reason: str | None) -> str:
    """Return what cells with an export that fails alike have in common: all of it but the numbers, such as opsets."""
    return " ".join((case, exporter, f"{error}", re.sub(r"[0-9]+", "", f"{reason}")))


def by_likeness(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records that nobody explained yet, those together which may have one cause: they are of one case and
    exporter, and stop with the same words or have wrong values. Those come first that take the least to explain, and
    of these the largest; in each the records that show most of their cause."""
    alike: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record.unexplained and record.status == "failed":
            alike.setdefault(_likeness(record), []).append(record)
    for group in alike.values():
        group.sort(key=shows_less)
    return sorted(alike.values(), key=lambda group: (_own_seconds(group[0]), -len(group)))


def _own_seconds(record: Record) -> float:
    """Return how long a cell itself took. It runs again to be explained, and what is asked runs its models."""
    return sum(seconds for name, seconds in record.seconds.items() if name != "explain")


def seconds_left(records: Iterable[Record]) -> float | None:
    """Return about how long explaining the causes takes that are left, by what it took of others in this run; None
    where none was explained, or none is left."""
    every = [*records]
    done = [record for record in every if not record.unexplained and "explain" in record.seconds]
    own, took = (sum(map(measure, done)) for measure in (_own_seconds, lambda record: record.seconds["explain"]))
    left = sum(_own_seconds(alike[0]) for alike in by_likeness(every))
    return left * took / own if own and left else None


def _likeness(record: Record) -> tuple[object, ...]:
    key = (record.case, record.exporter, record.stage, record.precision.partition("-")[0])
    if record.stage != "compare":
        return (*key, record.error, record.runtime, record.signal, said(record.reason or "", record.error or ""))
    # an example of one check can be asked about in the other, and kinds of wrong values are one error on one example
    values = record.check in ("accuracy", "specials") and record.error in VALUES
    return (*key, *(() if values else (record.check, record.error)))


def is_same_error(one: Record, two: Record) -> bool:
    """Return whether two cells that ran the same draw have the same worst element, with nearly the same value there;
    those that stopped with the same words have had one error before anybody asks."""
    if one.stage != "compare":
        return True
    if (one.status, one.stage, one.error) != (two.status, two.stage, two.error) or not (one.worst and two.worst):
        return False
    if any(one.worst.get(name) != two.worst.get(name) for name in ("output", "index")):
        return False
    got, also, wanted = (_number(value) for value in (one.worst["got"], two.worst["got"], one.worst["wanted"]))
    if not (math.isfinite(got) and math.isfinite(also)):
        return str(got) == str(also)
    return abs(got - also) <= CLOSE * max(abs(got - wanted), abs(also - wanted))


def has_same_evidence(explained: Record, other: Record) -> bool:
    """Return whether what shows who is at fault in one cell was seen of the other one too: their models are made of
    the same operators, and a runtime that is at fault is the other's as well. Another opset may have one operator for
    many, which others compute rightly."""
    if explained.stage != "compare":
        return True
    return _operators(explained) == _operators(other) and (
        explained.fault != "runtime" or explained.runtime == other.runtime
    )


def _operators(record: Record) -> dict[str, int]:
    """Return how many nodes of each operator a model has, but for constants, which opsets write in several ways."""
    nodes = (record.graph or {}).get("nodes") or {}
    return {name: count for name, count in nodes.items() if name != "Constant"}


def _number(value: Any) -> float:
    """Return a value of a record as a number, of a complex one its size; NaN for what is none."""
    try:
        return abs(value) if isinstance(value, complex) else float(value)
    except (TypeError, ValueError):
        return math.nan


def fails_alike(record: Record, again: Record) -> bool:
    """Return whether two runs of a cell ended in the same way."""
    return (again.status, again.stage, again.error) == (record.status, record.stage, record.error)


def explained(record: Record, again: Record) -> Record:
    """Return the record with what explaining it again has found; as it was where it does not fail alike again."""
    if not fails_alike(record, again):
        return record
    kept = {name: getattr(record, name) for name in _KEPT}
    seconds = {**record.seconds, "explain": round(sum(again.seconds.values()), 6)}
    return dataclasses.replace(again, **kept, seconds=seconds, unexplained=False)
