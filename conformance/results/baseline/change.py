"""A difference between two runs in one cell, and the kinds of difference that there are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from conformance.process.disk.foreign_files import parse_json, read_text
from conformance.process.errors import UserError, display_path
from conformance.results.records import record_types
from conformance.results.records.record import Record
from conformance.results.records.record_types import Header, Place
from conformance.results.records.run_file import CHANGES
from conformance.results.records.validation import check_of

Run: TypeAlias = tuple[Header, Sequence[Record]]
"""Header and records, as ``conformance.results.records.run_file.read_run`` and ``baseline_file.load`` give them."""

Selected: TypeAlias = Callable[[Record], bool] | Collection[str]
"""Which cells of the earlier run the later run was to run: a predicate over a record, or the ids that it planned."""


@dataclass(frozen=True)
class Kind:
    """``family`` names the fields that a change of this kind is about (``line.FAMILIES``)."""

    family: str
    regression: bool
    heading: str


KINDS: dict[str, Kind] = {
    "newly failing": Kind("status", True, "newly failing"),
    "failing otherwise": Kind("status", False, "failing in another way than before"),
    "xpassed": Kind("status", True, "passing though declared to fail"),
    "newly expected to fail": Kind("status", True, "passed before, declared to fail now"),
    "vanished": Kind("presence", True, "vanished: in the earlier run only"),
    "newly skipped": Kind("status", True, "newly skipped"),
    "accuracy worse": Kind("accuracy", True, "accuracy worse"),
    "slower": Kind("latency", True, "slower"),
    "examples fewer": Kind("examples", True, "fewer examples verified"),
    "acceptance pointless": Kind("none", False, "accepted, and works again: accept that too"),
    "expected failure changed": Kind("status", False, "another expected failure than before"),
    "graph changed": Kind("graph", False, "another graph than before"),
    "newly passing": Kind("status", False, "newly passing"),
    "accuracy better": Kind("accuracy", False, "accuracy better"),
    "faster": Kind("latency", False, "faster"),
    "newly added": Kind("presence", False, "newly added"),
}
"""In the order in which they are told. A cell that fails in another way is a regression where the failure that it had
before was accepted, since the acceptance was for that failure and for no other."""


@dataclass(frozen=True)
class Limits:
    """Set how large a difference has to be before it is told."""

    accuracy_factor: float = 2.0
    """An error that grew by this factor, relative to what is allowed."""
    accuracy_floor: float = 0.1
    """Errors below this share of what is allowed are never told.

    There, rounding decides: summing in another order, as another instruction set or thread count does, moves an error
    of one unit in the last place by factors, and a float32 tolerance is ten and more of those units.
    """
    decibels: float = 3.0
    """An SQNR that fell by this much: noise of twice the power."""
    slower_factor: float = 1.25
    """A median duration that grew by this factor."""
    examples_factor: float = 0.5
    """Fewer examples verified than this share of the earlier ones."""


@dataclass(frozen=True)
class Change:
    """One difference. ``before`` and ``after`` are plain values: a status, a number, a graph, or None.

    ``text`` says it in one line, without the id. ``source`` is the case's ``{file, line}``; the line is None where
    only a baseline knows the cell.
    """

    id: str
    kind: str
    regression: bool = False
    before: object = None
    after: object = None
    text: str = ""
    source: Place = field(default_factory=Place)
    accepted: bool = False
    cause: str = ""
    """What made it, as far as the records say: changes of one kind with one cause are shown together. Empty where
    the change is the cell's own, as another error is."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Change:
        """The inverse of ``as_dict``; what an earlier version does not say is missing."""
        known = {item.name: values[item.name] for item in fields(cls) if values.get(item.name) is not None}
        return cls(**known)


def blocking(changes: Iterable[Change]) -> list[Change]:
    """Return the regressions that nobody has accepted: a release waits until there are none."""
    return [change for change in changes if change.regression and not change.accepted]


def by_id(records: Iterable[Record], run_name: str) -> dict[str, Record]:
    """The records by their ids. Raises UserError, with the run's name, where a cell is there twice."""
    records_by_id: dict[str, Record] = {}
    for record in records:
        if record.id in records_by_id:
            raise UserError(f"{run_name} has {record.id} twice; run again, or merge its parts again")
        records_by_id[record.id] = record
    return records_by_id


def number(value: Any) -> float | None:
    """A number of a record as a float, also an infinity or NaN, which records write as text; None stays None."""
    return None if value is None else float(value)


def read_changes(folder: Path) -> list[Change]:
    """Return what the run's own ``--baseline`` found, as ``changes.json`` beside it says; empty where there is none.

    Raises UserError where that file is damaged.
    """
    file = folder / CHANGES
    if not file.exists():
        return []
    text = read_text(file)
    try:
        changes = parse_json(text)
        check_of(list[record_types.Change])(changes)
    except ValueError as error:
        raise UserError(f"{display_path(file)}: is damaged ({error}); delete it, or name the --baseline") from None
    return [Change.from_dict(change) for change in changes]
