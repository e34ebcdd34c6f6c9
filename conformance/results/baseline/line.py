"""One line of a baseline: the fields of a record that comparing needs, and no others."""
# ruff: noqa: UP013 (a table is easier to take in than classes are)

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from typing_extensions import Required, TypedDict

from conformance.process.errors import UserError, did_you_mean
from conformance.results.baseline.change import KINDS, number
from conformance.results.baseline.timing import timing
from conformance.results.records.record import Record, Status, empty_fields
from conformance.results.records.record_types import Id, Latency
from conformance.results.records.validation import Measure, Misfit, checks_of
from conformance.results.records.words import Exporter

Line = dict[str, Any]
"""A line as JSON has it, with the fields of ``DEFAULTS``."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "status": ("status", "stage", "error", "fault"),
    "accuracy": ("ratio", "sqnr"),
    "examples": ("examples",),
    "latency": ("latency",),
    "graph": ("graph",),
    "presence": (),
    "none": (),
}
"""Fields of a line by what a change can be about (``change.Kind.family``)."""

MEASURED = ("accuracy", "examples", "latency")
"""Families whose fields only a cell that passed has; where its status is replaced, they are too."""

DEFAULTS: Line = {
    "id": None, "case": None, "exporter": None, "opset": None, "runtime": None, "precision": None, "check": None,
    "file": None, "status": "passed", "stage": None, "error": None, "fault": None, "examples": 0, "ratio": None,
    "sqnr": None, "graph": None, "latency": None, "accepted": [],
}  # fmt: skip
"""All fields in their order. A line leaves out a field that has its default, or the value that the id names."""

_Graph = TypedDict("_Graph", {"opset": int | None, "nodes": dict[str, int] | None, "sha": str | None})
Accepted = TypedDict("Accepted", {
    "kind": Required[str], "because": Required[str], "was": Required[Line | None],
}, total=False)  # fmt: skip
_Fields = TypedDict("_Fields", {
    "id": Id, "case": str, "exporter": str, "opset": int, "runtime": str | None, "precision": str, "check": str,
    "file": str, "status": Status, "stage": str | None, "error": str | None, "fault": str | None, "examples": int,
    "ratio": Measure | None, "sqnr": Measure | None, "graph": _Graph, "latency": Latency,
    "accepted": list[Accepted],
})  # fmt: skip


@dataclass(slots=True)
class BaselineRecord(Record):
    """What a baseline keeps of a cell, with what was accepted of it."""

    accepted: list[Accepted] = field(default_factory=list)


MODEL_CHECKS = ("export", "fidelity")
"""The checks whose lines keep the model's graph. Cells of other checks run the same model, and would only repeat a
change of it."""


def compact(record: Record) -> Line:
    """The line of a record; ratios with two significant digits and dB with one decimal, as another run gives the same
    digits."""
    passed = record.status == "passed"
    line: Line = {
        **{name: getattr(record, name) for name in _SAME},
        "file": record.source.get("file") or "",
        **{name: getattr(record, name) for name in FAMILIES["status"]},
        "examples": record.examples if passed else 0,
        "ratio": _rounded(record.worst["ratio"], 2) if passed and record.worst else None,
        "sqnr": _decibels(record.fidelity.get("sqnr")) if passed and record.fidelity else None,
        "graph": _graph(record) if record.check in MODEL_CHECKS else None,
        "latency": _latency(record) if passed else None,
        "accepted": accepted_of(record),
    }
    return tidy(line)


_SAME = ("id", "case", "exporter", "opset", "runtime", "precision", "check")


def accepted_of(record: Record | None) -> list[Accepted]:
    """Return what was accepted of a cell, which only a baseline says."""
    return list(record.accepted) if isinstance(record, BaselineRecord) else []


def tidy(line: Line) -> Line:
    """The fields in their order, without those that have their default."""
    defaults = _defaults(line)
    return {name: line[name] for name in DEFAULTS if name in line and line[name] != defaults[name]}


def expand(line: Line) -> BaselineRecord:
    """A record with the fields that the line has."""
    full = {**_defaults(line), **line}
    ratio, sqnr = full["ratio"], full["sqnr"]
    return BaselineRecord(
        **_EMPTY,
        **{name: full[name] for name in (*_SAME, *FAMILIES["status"], "examples", "graph", "latency")},
        source={"file": full["file"], "line": None},
        worst=None if ratio is None else {"ratio": ratio},
        fidelity=None if sqnr is None else {"sqnr": sqnr},
        accepted=full["accepted"],
    )


_EMPTY = empty_fields()
"""One list for all lines in each field of lists that a baseline does not keep."""


def case_of_line(line: Line) -> str:
    """Return the case that a line is about."""
    return str(_defaults(line)["case"] if "case" not in line else line["case"])


def _defaults(line: Line) -> Line:
    return {**DEFAULTS, **fields_of(line["id"])}


def replaced(line: Line, family: str, fields: Line) -> Line:
    """The line with the fields of one family as in ``fields``; a field that ``fields`` lacks gets its default."""
    kept = {name: value for name, value in line.items() if name not in FAMILIES[family]}
    return tidy({**kept, **part(fields, family)})


def part(line: Line, family: str) -> Line:
    """The fields of one family."""
    return {name: line[name] for name in FAMILIES[family] if name in line}


def dump(line: Mapping[str, object]) -> str:
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Half of a surrogate pair, as a file's name may have, is no UTF-8.
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def check(line: object) -> Line:
    """``line`` itself. Raises UserError with what is wrong where it is not the line of a cell."""
    if not isinstance(line, dict):
        raise UserError("is no JSON object")
    if "id" not in line or "file" not in line:
        raise UserError("has no 'id', or no 'file'")
    for name, value in line.items():
        if name not in DEFAULTS:
            raise UserError(f"has an unknown field '{name}'{did_you_mean(name, DEFAULTS)}")
        try:
            checks_of(_Fields)[name](value)
        except Misfit as misfit:
            raise misfit.inside(name) from None
    needed = () if fields_of(line["id"]) else ("case", "exporter", "opset", "check", "precision")
    for name in needed:
        if name not in line:
            raise UserError(f"'{line['id']}' is not the id of a cell, such as export[asinh-torchscript-op17]")
    if "latency" in line and timing(line["latency"]) is None:
        raise UserError("'latency' has no median above 0 with the interval that it lies in")
    for entry in line.get("accepted", []):
        _check_accepted(line, entry)
    return line


def _check_accepted(line: Line, entry: Accepted) -> None:
    if entry["kind"] not in KINDS:
        kind = entry["kind"][:80]
        raise UserError(f"there is no kind '{kind}' to accept{did_you_mean(kind, KINDS)}")
    if not entry["because"].strip():
        raise UserError(f"'{entry['kind']}' is accepted without a 'because'")
    if entry["was"]:
        try:
            check({"id": line["id"], "file": line["file"], **_place(line), **entry["was"]})
        except UserError as error:
            raise UserError(f"'was' of '{entry['kind']}': {error}") from None


def _place(line: Line) -> Line:
    """The fields that say which cell the line is about, as far as the line has them: where its id does not say."""
    return {name: line[name] for name in ("case", "exporter", "opset", "check", "precision") if name in line}


def _graph(record: Record) -> Line | None:
    graph = record.graph
    return None if graph is None else {name: graph.get(name) for name in ("opset", "nodes", "sha")}


def _latency(record: Record) -> Latency | None:
    measured = timing(record.latency)
    return None if measured is None else measured.as_dict()


def _rounded(value: object, digits: int) -> float | str | None:
    exact = number(value)
    if exact is None:
        return None
    return float(f"{exact:.{digits - 1}e}") if math.isfinite(exact) else str(exact)


def _decibels(value: object) -> float | str | None:
    exact = number(value)
    if exact is None:
        return None
    return round(exact, 1) if math.isfinite(exact) else str(exact)


_ID = re.compile(
    rf"(?P<check>\w+)\[(?P<case>.+)-(?P<exporter>{'|'.join(get_args(Exporter))})-op(?P<opset>\d{{1,9}})"
    r"(?:-(?P<runtime>[a-z]+(?:-[a-z]+)*?))??(?:-(?P<precision>(?:fp32|fp16|int8)(?:-.+)?))?\]"
)


def fields_of(name: str) -> dict[str, object]:
    """check, case, exporter, opset, runtime and precision, as in the record of the cell ``name``.

    Empty where ``name`` is not the id of a cell.
    """
    match = _ID.fullmatch(name)
    if match is None:
        return {}
    return {**match.groupdict(), "opset": int(match["opset"]), "precision": match["precision"] or "fp32"}


def case_of(name: str) -> str:
    """The case in a cell's id: ``asinh`` of ``accuracy[asinh-torchscript-op17-onnxruntime-fp32]``."""
    fields = fields_of(name)
    if not fields:
        raise UserError(f"'{name}' is not the id of a cell, such as export[asinh-torchscript-op17]")
    return str(fields["case"])
