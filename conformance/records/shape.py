"""Which values the fields of a run file may have. A run is held to them once, where it is read, so that what computes
from records may rely on their types, whoever wrote the file."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args

from conformance.errors import UserError
from conformance.records.json_checks import (
    FLAG,
    TEXT,
    TEXT_OR_NULL,
    Check,
    Misfit,
    form,
    integer,
    kind_of,
    list_of,
    map_of,
    measure,
    number,
    of_type,
    or_null,
    scalar,
)
from conformance.records.record import Record, Status

LONGEST_ID = 20_000
"""Characters of an id, which is taken apart by a regular expression."""


def _status(value: Any) -> None:
    TEXT(value)
    if value not in get_args(Status):
        raise Misfit(f"is '{value[:40]}'; known are {', '.join(get_args(Status))}")


def _id(value: Any) -> None:
    TEXT(value)
    if not 0 < len(value) <= LONGEST_ID:
        raise Misfit(f"has {len(value)} characters, not 1 to {LONGEST_ID}")


def _nothing(value: Any) -> None:
    if value:
        raise Misfit("is a field of baselines, which no run has")


def _interval(value: Any) -> None:
    _NUMBERS(value)
    if len(value) != 2:
        raise Misfit(f"has {len(value)} ends, not 2")


def _two(value: Any) -> None:
    list_of(integer)(value)
    if len(value) != 2:
        raise Misfit(f"has {len(value)} members, not 2")


_TEXTS = list_of(TEXT)
_NUMBERS = list_of(number)
_MEASURE = or_null(measure)
_COUNTS = or_null(integer)
_SIDE = form(name=TEXT_OR_NULL, median=or_null(number), interval=or_null(_interval), samples=or_null(_NUMBERS))
_BUDGET = form(
    text=TEXT, verdict=TEXT,
    **dict.fromkeys(
        ("ratio", "seconds", "percentile", "low", "high", "limit", "confidence", "floor"), or_null(number)
    ),
)  # fmt: skip
_NAMES = or_null(form(has=or_null(_TEXTS), lacks=or_null(_TEXTS), versions=or_null(_TEXTS)))

_OPERATOR: dict[str, Check] = {
    **dict.fromkeys(
        ("operator", "line", "source", "module", "within", "stage", "how", "node", "type", "tensor", "dtype",
         "rules", "unable", "detail", "inside", "change", "breaks", "place"), TEXT_OR_NULL,
    ),
    **dict.fromkeys(("untied", "passes", "among", "others"), _TEXTS),
    "other_inputs": FLAG, "index": list_of(integer), "differ": _two, "call": _two, "arguments": list_of(scalar),
}  # fmt: skip

FIELDS: dict[str, Check] = {
    "id": _id, **dict.fromkeys(("case", "exporter", "check", "precision"), TEXT), "opset": integer, "status": _status,
    **dict.fromkeys(
        ("runtime", "stage", "error", "reason", "observed", "conclusion", "no_bundle", "signal", "fault", "command",
         "bundle", "fingerprint", "shipped"),
        TEXT_OR_NULL,
    ),
    **dict.fromkeys(
        ("own_code", "outputs", "findings", "again",
         "hints", "left_open", "output", "traceback", "details", "bundle_libraries"), _TEXTS
    ),
    **dict.fromkeys(("examples", "ill_conditioned", "nothing", "excused", "dropped_draws"), integer),
    **dict.fromkeys(("arithmetic", "conversion", "engine"), or_null(form())),
    "place": or_null(form(file=TEXT_OR_NULL, line=_COUNTS, own=FLAG)),
    "source": form(file=TEXT_OR_NULL, line=_COUNTS),
    "declared": list_of(form(
        ("outcome",), outcome=TEXT, dims=form(),
        **dict.fromkeys(("place", "stage", "error", "at", "because", "line"), scalar),
    )),
    "witnesses": list_of(form(
        ("runtime", "answer"), runtime=TEXT, answer=TEXT, config=or_null(map_of(TEXT)),
        **dict.fromkeys(("error", "reason", "model"), TEXT_OR_NULL),
    )),
    "parts_at": or_null(form(
        ("operator", "how"), **dict.fromkeys(("operator", "how"), TEXT),
        **dict.fromkeys(("node", "line", "by", "why"), TEXT_OR_NULL),
    )),
    "optimizer": or_null(form(
        ("of", "passes"), of=TEXT, level=TEXT_OR_NULL, changed=_COUNTS, more=_COUNTS, alone=FLAG, together=FLAG,
        unfinished=FLAG,
        **dict.fromkeys(("passes", "helpers", "removed", "added"), _TEXTS),
    )),
    "operator": or_null(form(**_OPERATOR, second=or_null(form(**_OPERATOR)))),
    "smallest": or_null(form(
        seconds=or_null(number), unfinished=FLAG,
        **dict.fromkeys(("operators", "passes", "own_code", "differs"), _TEXTS),
        **dict.fromkeys(("nodes", "calls", "of", "tried"), _COUNTS),
        **dict.fromkeys(("bundle", "repro", "issue", "why_not", "detail", "as"), TEXT_OR_NULL),
    )),
    "warnings": list_of(form(("name",), name=TEXT, agree=_TEXTS, **dict.fromkeys(("error", "text"), TEXT_OR_NULL))),
    "inputs": map_of(TEXT),
    "worst": or_null(form(
        ("ratio",), ratio=measure, looked_up=or_null(form(("in", "got", "wanted"), got=scalar, wanted=scalar)),
         index=or_null(list_of(scalar)), rounding=_MEASURE, dims=or_null(form()),
        **dict.fromkeys(("output", "got", "wanted", "error"), scalar),
    )),
    "draw": or_null(form(("dims", "regime", "seed"), dims=map_of(scalar), regime=TEXT, seed=scalar, index=scalar)),
    "histogram": or_null(map_of(_NUMBERS)),
    "graph": or_null(form(opset=_COUNTS, nodes=or_null(map_of(integer)), sha=TEXT_OR_NULL)),
    "seconds": map_of(number),
    "cause": or_null(form(("name", "lacks", "shown_by"), name=TEXT, lacks=_TEXTS, shown_by=map_of(scalar))),
    "declared_for": _NAMES,
    "changed": list_of(form(
        ("what", "kind", "when", "outcome"),
        **dict.fromkeys(("what", "kind", "when", "outcome", "before", "after"), TEXT),
    )),
    "after": or_null(form(
        ("cells", "cases", "others", "changed", "alone"), cells=integer, cases=_TEXTS, others=integer,
        changed=map_of(_TEXTS), alone=TEXT, **dict.fromkeys(("stage", "error"), TEXT_OR_NULL),
    )),
    "depends": or_null(form(
        **dict.fromkeys(
            ("files", "folders", "modules", "packages", "lowerings", "variables", "host"), map_of(TEXT)
        ),
        parts=map_of(map_of(TEXT)), missing=_TEXTS, fleeting=_TEXTS, says=TEXT, conditions=TEXT,
    )),
    "rows": or_null(map_of(integer)),
    "conditioning": or_null(form(
        ("sizes",), float64=or_null(scalar), own=_MEASURE,
        sizes=list_of(form(
            ("dims", "verified", "ill_conditioned"), dims=form(), worst=_MEASURE,
            **dict.fromkeys(("verified", "ill_conditioned"), integer),
        )),
    )),
    "vacuous": or_null(form(
        ("output", "passes"), output=integer, passes=_TEXTS, fact=or_null(form(("name",), name=TEXT, value=scalar)),
    )),
    "coverage": or_null(form(
        ("seen", "of", "blind"), unknown=TEXT_OR_NULL, why=TEXT_OR_NULL,
        **dict.fromkeys(
            ("blind", "beyond"),
            list_of(form(("module", "op"), module=TEXT, at=TEXT_OR_NULL, op=TEXT, count=integer)),
        ),
        hidden=list_of(form(("module",), module=TEXT, tensor=TEXT_OR_NULL, why=TEXT_OR_NULL)),
        **dict.fromkeys(("seen", "of", "calls", "places"), integer),
    )),
    "remedy": or_null(form(
        ("kind",), kind=TEXT, parameters=or_null(_TEXTS), **dict.fromkeys(("yaml", "python", "file"), TEXT_OR_NULL),
    )),
    "fidelity": or_null(form(sqnr=_MEASURE, changed=or_null(number))),
    "loss": or_null(map_of(scalar)),
    "beyond": list_of(form(
        ("regime",), regime=TEXT, output=or_null(integer), of=or_null(list_of(scalar)),
        vanished=or_null(form(was=scalar, **dict.fromkeys(("constant", "node", "operator"), TEXT_OR_NULL))),
        **dict.fromkeys(("node", "operator", "gives"), TEXT_OR_NULL),
    )),
    "latency": or_null(form(budgets=or_null(list_of(_BUDGET)), own=or_null(_SIDE), other=or_null(_SIDE))),
    "reused": FLAG,
    "worker": or_null(form(
        ("name", "host"), name=TEXT, host=TEXT, cpu=or_null(form(name=TEXT_OR_NULL, instructions=or_null(_TEXTS))),
    )),
    "accepted": _nothing,
}  # fmt: skip
"""The fields of a record, and ``details`` of earlier versions."""

NEEDED = ("id", "case", "exporter", "opset", "check", "status")
"""What the records of every version have."""

_RECORD = form(**FIELDS)

_PROCESSOR = or_null(of_type("an object, text or null", dict, str))
_PROCESSOR_FORM = form(name=TEXT_OR_NULL, instructions=or_null(_TEXTS))


def _processor(value: Any) -> None:
    _PROCESSOR(value)
    if isinstance(value, dict):
        _PROCESSOR_FORM(value)


ENVIRONMENT = form(
    **dict.fromkeys(("conformance", "code", "python", "platform"), TEXT_OR_NULL), cores=_COUNTS, cpu=_processor,
    gpu=_processor, versions=or_null(map_of(TEXT_OR_NULL)), flags=or_null(_TEXTS), workers=or_null(map_of(TEXT)),
)  # fmt: skip
_HEADER = form(
    started=TEXT_OR_NULL, seconds=number, environment=or_null(ENVIRONMENT), unfinished=or_null(_TEXTS),
    shards=or_null(list_of(form(("flags",), flags=_TEXTS))),
    shard=or_null(form(("count", "cells", "cut"), count=integer, cells=integer, cut=TEXT, files=TEXT)),
    process=form(pid=integer, host=TEXT, command=TEXT), conditions=or_null(map_of(TEXT)),
)  # fmt: skip
_CHANGES = list_of(form(
    ("id", "kind"), id=_id, kind=TEXT, regression=FLAG, accepted=FLAG, text=TEXT_OR_NULL,
    source=or_null(form(file=TEXT_OR_NULL, line=_COUNTS)),
))  # fmt: skip


# ---- records and headers -------------------------------------------------------------------------------------


def _default(item: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    """What makes the default of a field; None where it has none."""
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory
    return None if item.default is dataclasses.MISSING else lambda: item.default


_DEFAULTS: dict[str, Callable[[], Any]] = {
    "runtime": lambda: None,
    "precision": lambda: "fp32",
    "source": dict,
    **{item.name: default for item in dataclasses.fields(Record) if (default := _default(item)) is not None},
}


def record_of(value: Any) -> dict[str, Any]:
    """The record with all fields: one that the file lacks, or in which it has null, has its default.

    Raises UserError with what is wrong where it is no record.
    """
    if not isinstance(value, dict):
        raise UserError(f"is {kind_of(value)}, not a record")
    lacking = [name for name in NEEDED if value.get(name) is None]
    if lacking:
        raise UserError(f"lacks {', '.join(lacking)}")
    given = {name: item for name, item in value.items() if item is not None}
    try:
        _RECORD(given)
    except Misfit as misfit:
        raise UserError(str(misfit)) from None
    # The names are the same texts in all records: each line of a file brings texts of its own.
    record = {sys.intern(name): item for name, item in value.items()}
    record |= {name: default() for name, default in _DEFAULTS.items() if value.get(name) is None}
    record["source"] = {"file": None, "line": None, **record["source"]}
    return record


def check_header(value: Mapping[str, Any]) -> None:
    """Raises UserError with what is wrong where it is not the header of a run."""
    try:
        _HEADER(value)
    except Misfit as misfit:
        raise UserError(str(misfit)) from None


def check_changes(value: Any) -> None:
    """Raises UserError with what is wrong where it is not what changed between two runs."""
    try:
        _CHANGES(value)
    except Misfit as misfit:
        raise UserError(str(misfit)) from None
