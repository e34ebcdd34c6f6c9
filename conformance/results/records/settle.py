"""Holding a record against the failures that are declared of its cell. Strict in both directions; on plain data."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.process.errors import Stopped
from conformance.results.records.details import declaration
from conformance.results.records.explanation import Shows, note
from conformance.results.records.host_conditions import Host, is_about
from conformance.results.records.record import Record

LEAST = 8
"""Characters that a declared part of an error's text has at least."""
_NAME = re.compile(r"[A-Za-z_]\w*|exit \d+|signal \d+")
_OWN_TEXTS = ("compare", "latency")
"""Stages at which this package writes all of the text, so that a part of it tells no error from another."""
_FIXED = (
    ", caused by ", " cannot be called: ", " does not import: ", "at the inputs of ", "exporting changed ",
    "onnx.checker refuses the model: ", "the graph ", "the model ", "the process ", "the runtime ",
)  # fmt: skip
"""Pieces of text that this package puts around the texts of others."""
MARGIN = 2.0
"""A declared wrong value has to be off by this many times what is allowed; a smaller error may pass tomorrow."""


@dataclass(frozen=True)
class Expectation:
    """A declared failure of a whole cell."""

    stage: str
    error: str | None
    because: str
    fault: str | None
    place: str
    """File and line of the declaration."""
    owed: bool
    """Whether the failure has to show in this cell; if not, it only may."""
    margin: bool = True
    """Whether a wrong value has to be off by ``MARGIN``; not where only some of the cell's examples are run."""
    host: Host | None = None
    """The hosts that the declaration is about; None for all."""

    def as_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Expectation:
        return cls(**{"host" if name == "cpu" else name: value for name, value in values.items()})  # before 0.3

    def holds(self, instructions: Collection[str]) -> bool:
        """Return whether the declaration is about this environment, on a processor with these instruction sets."""
        return is_about(self.host, instructions)

    @property
    def text(self) -> str:
        return declaration(self.place, self.stage, self.error)


def settle(record: Record, declared: Sequence[Expectation], instructions: Collection[str]) -> Record:
    """Turn passed/failed into the final status; entries about single draws have been settled before.

    A declared failure is allowed wherever the declaration matches; its absence is held against the cells in which
    it has to show. What is declared of another kind of host than one with these ``instructions`` is left aside.
    """
    declared = [expectation for expectation in declared if expectation.holds(instructions)]
    if not declared or record.status not in ("passed", "failed"):
        return record
    if record.status == "passed":
        owed = [expectation for expectation in declared if expectation.owed]
        if not owed:
            return record
        record.status = "xpassed"
        note(record, Shows("works"))
        record.reason = f"it works, but {_declared(owed)}; take the entry out"
        record.declared += [
            {"outcome": "works", "place": expectation.place, "stage": expectation.stage, "error": expectation.error,
             "because": expectation.because}
            for expectation in owed
        ]  # fmt: skip
        return record
    for expectation in declared:
        if agrees(expectation.stage, expectation.error, record):
            ratio = _ratio(record)
            if expectation.margin and ratio < MARGIN:
                record.reason = (
                    f"the declared failure is borderline: {ratio:.2g} times what is allowed, less than {MARGIN:g}"
                )
                return record
            fail_as_declared(record, expectation.because, expectation.fault, expectation.host)
            return record
    record.declared += [
        {"outcome": "otherwise", "place": expectation.place, "stage": expectation.stage, "error": expectation.error}
        for expectation in declared
    ]
    return record


def fail_as_declared(record: Record, because: str, fault: str | None, host: Host | None) -> None:
    """Make a failed record one that fails as declared; what it failed with stays readable in ``observed``."""
    record.status = "xfailed"
    record.observed, record.reason = record.reason, because
    note(record, Shows("declared", fault))
    record.declared_for = None if host is None else {name: list(words) for name, words in host.items()}


def agrees(declared_stage: str, declared_error: str | None, failure: Stopped | Record) -> bool:
    """Return whether a failure is the declared one: its stage, and its error by whole name or part of its text."""
    if declared_stage != failure.stage:
        return False
    if declared_error is None or declared_error in (failure.error, failure.caused_by):
        return True
    if _NAME.fullmatch(declared_error) or why_too_wide(declared_stage, declared_error) is not None:
        return False
    return declared_error in (failure.reason or "")


def why_too_wide(stage: str, declared_error: str) -> str | None:
    """Return why a declared error would match others as well; None where it does not.

    The name of an error is compared whole. A part of a text has at least ``LEAST`` characters, and is not one that
    this package writes around every text of that stage.
    """
    if _NAME.fullmatch(declared_error):
        return None
    text = declared_error.strip()
    if len(text) < LEAST:
        return f"give the whole name of the error, or a part of its text of at least {LEAST} characters"
    if stage in _OWN_TEXTS:
        return f"errors at {stage} have names, such as those of docs/errors.md; a part of the text would match others"
    if any(text in fixed or not text.replace(fixed.strip(), "").strip() for fixed in _FIXED):
        return "every error may have that in its text; give the name of the error, or another part of the text"
    return None


def _ratio(record: Record) -> float:
    """Return how many times what is allowed a wrong value is off; infinity of anything else."""
    if record.stage != "compare" or record.error != "WrongValue" or record.worst is None:
        return math.inf
    return float(record.worst["ratio"])


def _declared(declared: Sequence[Expectation]) -> str:
    return " and ".join(expectation.text for expectation in declared)
