"""Advice about an export that fails for a reason that many modules share, by the names of hints."""

from __future__ import annotations

import re

from conformance.errors import Stopped
from conformance.records.findings import ON_DATA

_NO_SYMBOLIC = re.compile(r"UnsupportedOperator|Unsupported: ONNX export of operator|export of operator \S+ is not")
_NO_TRANSLATION = re.compile(r"No ONNX function found|No decompositions registered")


def advice(stop: Stopped) -> list[str]:
    """Return the hints for an export that has stopped; ``records.text`` has the words for them."""
    said = f"{stop.error}: {stop.reason}"
    known = {"branch": ON_DATA, "symbolic": _NO_SYMBOLIC, "translation": _NO_TRANSLATION}
    return [hint for hint, pattern in known.items() if pattern.search(said)]
