"""Records as one compact JSON text inside a page.

Ten thousand records repeat themselves: columns instead of rows leave out the names, and a column whose values repeat
is a list of different values with a number for each row.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def columns(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """``{name: {values}}``, or ``{name: {values, rows}}`` where ``values[rows[i]]`` is the value of row ``i``."""
    return {name: column([row.get(name) for row in rows]) for name in names}


def column(values: Sequence[Any]) -> dict[str, list[Any]]:
    """One column; with ``rows`` where at most half of the values differ from one another."""
    numbers: dict[str, int] = {}
    different: list[Any] = []
    rows: list[int] = []
    for value in values:
        key = _KEY(value)  # 1, 1.0, True and "1" are not the same
        if key not in numbers:
            numbers[key] = len(different)
            different.append(value)
        rows.append(numbers[key])
    if 2 * len(different) > len(values):
        return {"values": list(values)}
    return {"values": different, "rows": rows}


_KEY = json.JSONEncoder(sort_keys=True).encode


def script_text(data: Any) -> str:
    """JSON that may stand in a ``<script>``: no character of it can end the element, a string or a line.

    All but ASCII is escaped, which covers U+2028 and U+2029; of ASCII ``<``, ``>`` and ``&``. Raises ValueError for
    NaN and infinities.
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def source_hash(text: str) -> str:
    """Return ``'sha256-...'`` of an inline script or style for its policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
