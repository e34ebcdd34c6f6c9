"""Read what records of earlier versions say in words, and those of this version in fields of their own.

This module alone takes a sentence apart that this package has written.
"""

from __future__ import annotations

import re

from conformance.results.records.record import Record
from conformance.results.records.record_types import OperatorFields, Worst

_COUNTED = re.compile(r"(\d+) of (\d+) values")
_LACKED = re.compile(r"with (.+), which it lacks")


def details(record: Record) -> list[str]:
    """Return the lines that explain the status of a record, as the first versions kept them."""
    return list((record.unknown or {}).get("details") or ())


def differ(reason: str | None, worst: Worst) -> tuple[int, int] | None:
    """Return how many of how many values are wrong; up to 0.2 the reason alone says so."""
    if "differ" in worst:
        return worst["differ"]
    counted = _COUNTED.search(reason or "")
    return None if counted is None else (int(counted[1]), int(counted[2]))


def lacks(operator: OperatorFields) -> str | None:
    """Return what a change adds to a node; up to 0.2 the words for the change alone say so."""
    added = _LACKED.fullmatch(operator.get("change") or "")
    return operator.get("lacks") or (None if added is None else added[1])
