"""The fields in which rows differ from those of the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.golden.file import Golden, Row

ABSENT = "nothing"


@dataclass(frozen=True)
class Difference:
    """A field that is not what the file has."""

    row: str
    field: str
    was: str
    now: str


@dataclass(frozen=True)
class Comparison:
    """The outcome for all rows that were asked for."""

    compared: int
    differences: Sequence[Difference]
    unfinished: Sequence[str]
    """Rows whose search ran out of time now."""
    elsewhere: Sequence[str]
    """Converted models, where the file was made on a processor with other instruction sets: their kernels differ."""


def compare(golden: Golden, rows: Iterable[Row], made_on: Mapping[str, Any]) -> Comparison:
    """Compare rows, which were made on ``made_on``, with those of the file, which has them all."""
    known = golden.by_key
    same_kind = golden.made_on.get("instructions") == made_on.get("instructions")
    count, differences = 0, list[Difference]()
    unfinished, elsewhere = list[str](), list[str]()
    for row in rows:
        name = f"{row.group}, {row.id}"
        if row.unfinished:
            unfinished.append(f"{name}: {', '.join(row.unfinished)}")
        elif not same_kind and known[row.key].fields.get("precision") != "fp32":
            elsewhere.append(name)
        else:
            count += 1
            differences += differing(known[row.key], row)
    return Comparison(count, differences, unfinished, elsewhere)


def differing(was: Row, now: Row) -> Iterator[Difference]:
    """Yield the fields in which a row differs from what it was."""
    for field in sorted({*was.fields, *now.fields}):
        before, after = was.fields.get(field), now.fields.get(field)
        if before != after:
            yield Difference(f"{now.group}, {now.id}", field, _said(before), _said(after))


def _said(value: Any) -> str:
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table(differences: Sequence[Difference]) -> str:
    """Return the differences with a line for the row, and below it the field, what it was and what it is."""
    lines: list[str] = []
    for number, one in enumerate(differences):
        if number == 0 or differences[number - 1].row != one.row:
            lines.append(one.row)
        lines += [f"  {one.field}", f"    was  {_one_line(one.was)}", f"    is   {_one_line(one.now)}"]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")
