"""Red cells with one cause, as one finding: by the component at fault, what of it, and the kind of difference.

All of it is read off records. Cells are put together where a record names what is wrong: a pass, an operator, the
case's own code. Where it names nothing, only cells of one case and one exporter or runtime are, so that a finding is
rather split than made of two causes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from conformance.results.records.library_messages import OF_INPUTS, ON_DATA, operator_in, said, without_numbers
from conformance.results.records.record import Record
from conformance.results.records.record_types import Environment

RED = ("failed", "xpassed")
"""The statuses that make a run fail."""
VALUES = ("WrongValue", "WrongNaN", "WrongInf", "WrongIndex", "LowFidelity")
"""Errors that are one kind of difference: other values, which special values may make a NaN of."""


class Key(NamedTuple):
    """The fields by which findings differ."""

    component: str
    """exporter, runtime, optimizer, precision, reference, case, preparation, harness, declaration, or open."""
    which: str
    """The name of the component: a runtime, an exporter, a precision; of the case's own code its folder; empty where
    it has none."""
    by: str
    """What ``of`` is: pass, code, operator, error, entry, or case."""
    of: str
    kind: str
    """``values``, ``stops``, or the name of an error."""


@dataclass
class Finding:
    """Cells that are red for one cause."""

    key: Key
    cells: list[Record] = field(default_factory=list)
    """Their records, in the order of the run."""
    environment: Environment | None = None
    """Where they ran, as the header of their run has it; None of a run here."""

    @property
    def id(self) -> str:
        """Eight hexadecimal digits of a hash of the key: the same in every run, as long as a case that is named by
        its line stands there."""
        return hashlib.sha256("\x1f".join(self.key).encode("utf-8", "surrogatepass")).hexdigest()[:8]

    def named(self, field: str) -> list[object]:
        """The values of a field of the cells, each once, sorted."""
        return sorted({getattr(cell, field) for cell in self.cells} - {None})

    def as_dict(self, since: str | None = None) -> dict[str, object]:
        """Plain data; ``since`` is the earliest run of those that are known since which it is red."""
        names = ("case", "exporter", "opset", "runtime", "precision", "check")
        return {
            "id": self.id, **self.key._asdict(), "since": since, "cells": [cell.id for cell in self.cells],
            **{f"{name}s" if name != "precision" else "precisions": self.named(name) for name in names},
        }  # fmt: skip


def findings(records: Iterable[Record], environment: Environment | None = None) -> list[Finding]:
    """The findings of a run, those with most cells first. Cells of a case and an exporter that fail alike are one
    finding until somebody is asked about them. ``environment`` is that of the run's header, None of a run here."""
    by_key: dict[Key, Finding] = {}
    unexplained: dict[object, list[tuple[Key, Record]]] = {}
    for record in records:
        if record.status in RED:
            key = key_of(record)
            if record.unexplained:
                alike = (record.case, record.exporter, record.stage, key.kind)
                unexplained.setdefault(alike, []).append((key, record))
            else:
                by_key.setdefault(key, Finding(key, [], environment)).cells.append(record)
    for group in unexplained.values():
        key = min((key for key, _ in group), key=lambda key: key.component == "open")
        by_key.setdefault(key, Finding(key, [], environment)).cells += [record for _, record in group]
    for graphs in [one for one in by_key.values() if one.key.kind == _OTHER_GRAPH]:
        of = _captured_in(by_key.values(), graphs)
        if of is not None:
            of.cells += by_key.pop(graphs.key).cells
    for refused in [*by_key.values()]:
        of = _also_computed(by_key.values(), refused)
        if of is not None:
            of.cells += by_key.pop(refused.key).cells
    return sorted(by_key.values(), key=lambda finding: -len(finding.cells))


_OTHER_GRAPH = "ShapeBakedIn"
"""The error of an export that keeps a size, which shows in its graph at other sizes."""


def _captured_in(found: Iterable[Finding], graphs: Finding) -> Finding | None:
    """Return the finding of a number or a branch that the export of the same cases keeps, or None."""
    cases = {(cell.case, cell.exporter) for cell in graphs.cells}
    of = (one for one in found if one.key.by in ("line", "branch") and one.key.component == "exporter")
    return next((one for one in of if cases <= {(cell.case, cell.exporter) for cell in one.cells}), None)


def _also_computed(found: Iterable[Finding], refused: Finding) -> Finding | None:
    """Return the finding of the wrong outputs for which a file that is compared with another is refused too."""
    cells = refused.cells
    if any(not cell.shipped or (cell.check, cell.stage) != ("export", "check") for cell in cells):
        return None
    of = [one for one in found if one.key.by == "operator" and {each.case for each in one.cells} == {cells[0].case}]
    return of[0] if len(of) == 1 else None


def shows_less(record: Record) -> tuple[bool, bool]:
    """Order red cells by how much of their cause they show, most first: ordinary values more than NaN, ONNX Runtime
    more than others, which have no smaller model made."""
    return record.check == "specials", record.runtime not in ("onnxruntime", None)


def since(finding: Finding, runs: Sequence[tuple[str, Mapping[str, Record]]]) -> str | None:
    """The name of the earliest run of an unbroken row up to now in which one of the cells was red at the same stage
    with the same error; None where it was not so in the last of them. ``runs`` are names with the records by id,
    oldest first."""
    known = None
    for name, by_id in reversed(runs):
        earlier = ((cell, by_id.get(cell.id)) for cell in finding.cells)
        if not any(was is not None and was.status in RED and _alike(was, cell) for cell, was in earlier):
            break
        known = name
    return known


def _alike(was: Record, cell: Record) -> bool:
    return (was.stage, was.error) == (cell.stage, cell.error)


def key_of(record: Record) -> Key:
    """The finding that a red record belongs to."""
    error = str(record.error)
    kind = "values" if error in VALUES else error
    component, which = _component(record)
    by, of = _subject(record, component)
    if by == "operator" and component == "exporter" and record.stage in ("load", "run"):
        kind = "stops"  # each runtime with an error of its own
    captured = _captured(record) if by == "operator" else None
    if captured is not None:
        return captured
    at_line = _at_line(record, component) if by == "case" else None
    if at_line is not None:
        return at_line
    if by == "code":  # other folders may have code of that name
        which = _folder(record)
    if component == "exporter" and by == "case":  # the other exporter may be wrong for another reason
        which = record.exporter
    return Key(component, which, by, of, kind)


def _component(record: Record) -> tuple[str, str]:
    fault, runtime = record.fault, record.runtime or ""
    if record.status == "xpassed":
        return "declaration", ""
    if fault == "runtime":
        return ("optimizer" if record.conclusion == "optimizer" else "runtime"), runtime
    if fault == "precision":
        return "precision", record.precision.partition("-")[0]
    return (fault, "") if fault else ("open", "" if record.conclusion == "unsaid" else runtime)


def _subject(record: Record, component: str) -> tuple[str, str]:
    """Return what of a component is wrong, by the first thing that the record names."""
    if component == "optimizer" and record.optimizer is not None and record.optimizer["passes"]:
        return "pass", " and ".join(sorted(record.optimizer["passes"]))
    if component in ("exporter", "case") and record.own_code:
        return "code", ", ".join(record.own_code)
    located, node = (record.operator or {}).get("operator"), record.parts_at
    lacked = None if record.remedy is None else record.remedy.get("lacks")
    if lacked:
        return "operator", lacked
    if component in ("exporter", "open", "reference") and located:
        return "operator", located
    if component in ("runtime", "exporter", "open") and node and node["operator"] and node["how"] != "open":
        return "operator", node["operator"]
    if component in ("runtime", "exporter", "open") and record.stage != "compare":
        named = operator_in(record.reason or "")
        if named:
            return "operator", named
    if component == "harness":
        return "error", without_numbers(record.reason or "")
    source = record.source
    place_of_case = f"{source['file']}:{source['line']}" if source.get("line") else record.case
    if component == "declaration":  # which names the entries; a case may have several
        return "entry", record.reason or place_of_case
    return "case", place_of_case


def _folder(record: Record) -> str:
    """The folder of the case's own code that is at fault, or of the case."""
    place = record.place or {}
    file = place.get("file") if place.get("own") else record.source.get("file")
    return (file or "").rpartition("/")[0]


KEPT = ("constant", "path", "number or path")
"""The ways in which a capture goes wrong that records tensors only, and keeps Python's numbers and branches."""


def _captured(record: Record) -> Key | None:
    """The finding of a branch or a number that a capture froze, by its line, whichever operator shows it first."""
    told = record.operator or {}
    if not told.get("line") or told.get("how") not in KEPT:
        return None
    at = beside(record, str(told["line"]))
    return Key("exporter", "", *(("branch", at, _BRANCH) if told["how"] == "path" else ("line", at, "values")))


def _at_line(record: Record, component: str) -> Key | None:
    """The finding of what raised or crashed at a line of Python, whichever cell came there; None where no line is
    known, or one to which many causes come, such as that which runs a model."""
    place, error = record.place or {}, str(record.error)
    if not place.get("line") or record.stage == "compare":
        return None
    at, text = f"{place['file']}:{place['line']}", said(record.reason or "", error)
    if not place.get("own"):
        shared = component in ("exporter", "precision") and not OF_INPUTS.search(text)
        return Key(component, "", "line", at, text) if shared else None
    at = beside(record, at)
    if record.signal:  # whose fault it seems to be hangs on the stage at which it came
        return Key("case", "", "line", at, error)
    if ON_DATA.search(text):
        return Key("exporter", "", "branch", at, _BRANCH)
    return Key(component, "", "line", at, text)


_BRANCH = "control flow on data"


def beside(record: Record, place: str) -> str:
    """``cases/modules.py:12`` of a file that lies beside the case, whether its folder is known or not."""
    folder = (record.source.get("file") or "").rpartition("/")[0]
    return f"{folder}/{place.rpartition('/')[2]}" if folder else place.rpartition("/")[2]
