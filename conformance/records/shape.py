"""Which values the fields of a run file may have. A run is held to them once, where it is read, so that what computes
from records may rely on their types, whoever wrote the file."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, get_args

from conformance.errors import UserError
from conformance.records.record import Record, Status

Check = Callable[[Any], None]
"""Raises ``Misfit`` for a value that it does not allow."""

DEEPEST = 20
"""How deeply the plain data of a field may be nested."""
LONGEST_ID = 20_000
"""Characters of an id, which is taken apart by a regular expression."""
_LARGEST = 2**63
"""Above all integers of a record; larger ones do not fit what computes with them."""


class Misfit(Exception):
    """A value that its field cannot have; ``str`` names the field and says why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []

    def inside(self, name: object) -> Misfit:
        """The same misfit, seen from what has the value under ``name``."""
        self.path.insert(0, str(name)[:80])
        return self

    def __str__(self) -> str:
        return f"'{'.'.join(self.path)}' {self.why}" if self.path else self.why


# ---- single values -------------------------------------------------------------------------------------------


def _of(words: str, *kinds: type) -> Check:
    """Allows values of exactly these types: to JSON ``true`` is no number."""

    def check(value: Any) -> None:
        if type(value) not in kinds:
            raise Misfit(f"is {_kind(value)}, not {words}")

    return check


def _kind(value: Any) -> str:
    names = {
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


TEXT = _of("text", str)
TEXT_OR_NULL = _of("text or null", str, type(None))
_FLAG = _of("true or false", bool)
_LIST = _of("a list", list)
_OBJECT = _of("an object", dict)
_INTEGER = _of("a whole number", int)


def integer(value: Any) -> None:
    _INTEGER(value)
    if not -_LARGEST < value < _LARGEST:
        raise Misfit("is larger than any such number")


def number(value: Any) -> None:
    """A finite number."""
    if type(value) is int:
        integer(value)
    elif type(value) is not float:
        raise Misfit(f"is {_kind(value)}, not a number")
    elif not math.isfinite(value):
        raise Misfit("is larger than any such number")


def measure(value: Any) -> None:
    """A number, also NaN or an infinity, which records write as text."""
    if value not in ("nan", "inf", "-inf"):
        number(value)


def plain(value: Any, depth: int = DEEPEST) -> None:
    """Any value of JSON whose numbers are finite, nested at most so deeply."""
    if depth < 0:
        raise Misfit("is nested too deeply")
    kind = type(value)
    if kind is dict:
        for item in value.values():
            plain(item, depth - 1)
    elif kind is list:
        for item in value:
            plain(item, depth - 1)
    elif kind is int or kind is float:
        number(value)


def scalar(value: Any) -> None:
    """Text, a number, true, false or null."""
    if type(value) in (list, dict):
        raise Misfit(f"is {_kind(value)}, not a single value")
    plain(value)


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


# ---- values made of others -----------------------------------------------------------------------------------


def or_null(check: Check) -> Check:
    def checked(value: Any) -> None:
        if value is not None:
            check(value)

    return checked


def list_of(check: Check) -> Check:
    def checked(value: Any) -> None:
        _LIST(value)
        for number, item in enumerate(value):
            try:
                check(item)
            except Misfit as misfit:
                raise misfit.inside(number) from None

    return checked


def map_of(check: Check) -> Check:
    def checked(value: Any) -> None:
        _OBJECT(value)
        for name, item in value.items():
            try:
                check(item)
            except Misfit as misfit:
                raise misfit.inside(name) from None

    return checked


def form(needs: tuple[str, ...] = (), /, **fields: Check) -> Check:
    """An object with these fields. It may lack those that it does not need, and have others of plain data."""

    def checked(value: Any) -> None:
        _OBJECT(value)
        for name in needs:
            if name not in value:
                raise Misfit("is not there").inside(name)
        for name, item in value.items():
            try:
                fields.get(name, plain)(item)
            except Misfit as misfit:
                raise misfit.inside(name) from None

    return checked


def _interval(value: Any) -> None:
    _NUMBERS(value)
    if len(value) != 2:
        raise Misfit(f"has {len(value)} ends, not 2")


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
_NAMES = or_null(form(has=or_null(_TEXTS), lacks=or_null(_TEXTS)))

FIELDS: dict[str, Check] = {
    "id": _id, **dict.fromkeys(("case", "exporter", "check", "precision"), TEXT), "opset": integer, "status": _status,
    **dict.fromkeys(
        ("runtime", "stage", "error", "reason", "observed", "conclusion", "no_bundle", "signal", "fault", "command",
         "bundle", "fingerprint"),
        TEXT_OR_NULL,
    ),
    **dict.fromkeys(
        ("own_code", "outputs", "findings", "hints", "output", "traceback", "details", "bundle_libraries"), _TEXTS
    ),
    **dict.fromkeys(("examples", "ill_conditioned", "nothing", "dropped_draws"), integer),
    **dict.fromkeys(("arithmetic", "conversion", "engine"), or_null(form())),
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
        blind=list_of(form(("module", "op"), module=TEXT, at=TEXT_OR_NULL, op=TEXT, count=integer)),
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
    "reused": _FLAG,
    "accepted": _nothing,
}  # fmt: skip
"""The fields of a record, and ``details`` of earlier versions."""

NEEDED = ("id", "case", "exporter", "opset", "check", "status")
"""What the records of every version have."""

_RECORD = form(**FIELDS)

_PROCESSOR = or_null(_of("an object, text or null", dict, str))
_PROCESSOR_FORM = form(name=TEXT_OR_NULL, instructions=or_null(_TEXTS))


def _processor(value: Any) -> None:
    _PROCESSOR(value)
    if isinstance(value, dict):
        _PROCESSOR_FORM(value)


ENVIRONMENT = form(
    **dict.fromkeys(("conformance", "python", "platform"), TEXT_OR_NULL), cores=_COUNTS, cpu=_processor,
    gpu=_processor, versions=or_null(map_of(TEXT_OR_NULL)), flags=or_null(_TEXTS),
)  # fmt: skip
_HEADER = form(
    started=TEXT_OR_NULL, seconds=number, environment=or_null(ENVIRONMENT), unfinished=or_null(_TEXTS),
    shards=or_null(list_of(form(("flags",), flags=_TEXTS))),
    process=form(pid=integer, host=TEXT, command=TEXT),
)  # fmt: skip
_CHANGES = list_of(form(
    ("id", "kind"), id=_id, kind=TEXT, regression=_FLAG, accepted=_FLAG, text=TEXT_OR_NULL,
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
        raise UserError(f"is {_kind(value)}, not a record")
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
