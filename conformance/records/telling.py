"""Tell each cause once in a run: cells that stop for one cause before their own work begins refer to the first of
them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_VARYING = re.compile(
    r"0x[0-9a-f]+|/tmp/[^\s'\"]+|\b(?:opset|version)\W{0,3}(?:version\W{0,3})?\d+|\d{4}-\d\d-\d\d[T_ ][\d:_.-]+", re.I
)
"""What differs in the texts of one cause: addresses, temporary files, opsets, dates."""


class Telling:
    """The failures that were told in full, in the order in which they came to the terminal."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], str] = {}

    def first(self, record: Mapping[str, Any]) -> str | None:
        """The id of the earlier cell that failed for the same cause; None for the first, and for what failed at an
        example of its own."""
        about = _SHARED.get(str(record["stage"]))
        at_an_example = record["draw"] is not None and record["stage"] != "declare"
        if record["status"] != "failed" or about is None or at_an_example:
            return None
        cause = _VARYING.sub("", str(record["reason"]))
        kind = (record["case"], record["stage"], record["error"], cause, *(record[name] for name in about))
        first = self._first.setdefault(kind, str(record["id"]))
        return None if first == record["id"] else first


_SHARED = {
    "declare": (),
    "export": ("exporter",),
    "check": ("exporter",),
    "convert": ("exporter", "precision"),
    "load": ("exporter", "runtime"),
}
"""The stages that cells of a case share, with what else they have in common where one cause stops them."""
