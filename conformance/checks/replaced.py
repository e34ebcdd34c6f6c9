"""A case whose Python replaced functions on which its own verdict rests has failed, whatever that verdict is."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.errors import Stopped
from conformance.records.explanation import fail, take_back
from conformance.records.record import Record
from conformance.worker.state.judging import is_of_the_judges


def replaced_function(names: Iterable[str]) -> Stopped | None:
    """The failure of a case that replaced these functions, if its verdict rests on one of them."""
    judging = [name for name in names if is_of_the_judges(name)]
    if not judging:
        return None
    text = f"the case's Python replaced {', '.join(judging[:4])}, on which the comparison rests"
    return Stopped("declare", "ReplacedFunction", text, "case")


def fail_replaced(record: Record, names: Iterable[str]) -> bool:
    """Fail the record of a cell that replaced functions, if its verdict rests on one. Return whether it does."""
    stop = replaced_function(names)
    if stop is None or record.status == "skipped":
        return False
    fail(record, stop)
    take_back(record)
    record.draw = record.worst = record.bundle = None
    record.inputs = {}
    return True
