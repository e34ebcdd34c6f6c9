"""The file of golden rows: a line that says on what they were made, then one line for each row, sorted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.results.records.environment import environment

FILE = Path(__file__).parent / "rows.jsonl"
COUNT = 60
"""Rows of the selection."""
SECONDS = 200.0
"""Of a core, for the selection, by the seconds in the file. Of five minutes that leaves a third for a slower host and
for the start of the processes."""


@dataclass(frozen=True)
class Row:
    """What the suite says of one failure."""

    group: str
    id: str
    fields: Mapping[str, Any]
    seconds: float
    """Of a core."""
    unfinished: Sequence[str] = ()
    """What ran out of time; such a row is neither kept nor compared."""
    selected: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.id

    @property
    def kind(self) -> tuple[str, ...]:
        """The kind of fault: who is named in which group, and on what grounds."""
        named = self.fields.get("fault") or f"nobody, {self.fields.get('status')}"
        return self.group, named, self.fields.get("conclusion") or ""

    @property
    def variety(self) -> tuple[str, ...]:
        """How the failures of one kind differ."""
        names = "stage", "error", "operator.how", "operator.stage", "operator.unable", "smallest.why_not"
        return tuple(str(self.fields.get(name)) for name in names)

    def line(self) -> str:
        told: dict[str, Any] = {"group": self.group, "id": self.id, "seconds": self.seconds, "fields": self.fields}
        if self.unfinished:
            told["unfinished"] = list(self.unfinished)
        if self.selected:
            told["selected"] = True
        return json.dumps(told, ensure_ascii=False, sort_keys=True)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Row:
        """The inverse of ``line``. Raises ValueError where a part is missing."""
        if not {"group", "id", "seconds", "fields"} <= {*told}:
            raise ValueError(f"no row: {told}")
        return cls(**{**told, "unfinished": tuple(told.get("unfinished", ()))})


@dataclass(frozen=True)
class Golden:
    """The content of the file."""

    made_on: Mapping[str, Any]
    """Versions, and the instruction sets of the processor."""
    rows: Sequence[Row]
    left_out: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """By the key of a row that is not here: what ran out of time when the file was made."""

    @property
    def by_key(self) -> dict[tuple[str, str], Row]:
        return {row.key: row for row in self.rows}


def here() -> dict[str, Any]:
    """Return what the explanations may depend on besides the code."""
    found = environment([])
    versions = {name: version for name, version in found["versions"].items() if version}
    return {"python": found["python"], "versions": versions, "instructions": found["cpu"]["instructions"]}


def read(file: Path = FILE) -> Golden:
    """Return what the file has. Raises OSError where there is none."""
    head, *lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    left_out = {(group, name): why for group, name, *why in head["left_out"]}
    return Golden(head["made_on"], [Row.of(line) for line in lines], left_out)


def write(golden: Golden, file: Path = FILE) -> None:
    """Write the rows, with the selection marked; of those that ran out of time only that."""
    rows = sorted((row for row in golden.rows if not row.unfinished), key=lambda row: row.key)
    chosen = select(rows)
    left_out = {**golden.left_out, **{row.key: row.unfinished for row in golden.rows if row.unfinished}}
    told = [[*key, *why] for key, why in sorted(left_out.items())]
    lines = [json.dumps({"made_on": golden.made_on, "left_out": told}, ensure_ascii=False, sort_keys=True)]
    lines += [dataclasses.replace(row, selected=row.key in chosen).line() for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def select(rows: Iterable[Row], count: int = COUNT) -> set[tuple[str, str]]:
    """Return the keys of at most so many rows, of every kind, that take ``SECONDS`` for each ``COUNT`` at most.

    Kinds take turns: first the cheapest row of each, then of each the cheapest that fails in another way, and so on.
    """
    turns: list[tuple[int, float, tuple[str, str]]] = []
    for kind in _grouped(rows, lambda row: row.kind):
        ways = [sorted(way, key=_cheapest) for way in _grouped(kind, lambda row: row.variety)]
        places = sorted((nth, row.seconds, row.key) for way in ways for nth, row in enumerate(way))
        turns += [(turn, spent, key) for turn, (_, spent, key) in enumerate(places)]
    chosen: set[tuple[str, str]] = set()
    left = SECONDS * count / COUNT
    for _, spent, key in sorted(turns):
        if len(chosen) < count and spent <= left:
            chosen.add(key)
            left -= spent
    return chosen


def _cheapest(row: Row) -> tuple[float, tuple[str, str]]:
    return row.seconds, row.key


def _grouped(rows: Iterable[Row], by: Callable[[Row], Hashable]) -> list[list[Row]]:
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return list(groups.values())
