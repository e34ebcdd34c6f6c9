"""Values as a block about a finding shows them, in a few characters."""

from __future__ import annotations

import re
from typing import Any

from conformance.results.records.sanitize import one_line

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)")


def times_allowed(ratio: Any) -> str:
    """Return how many times what is allowed an error is; of a record of another version anything may stand there."""
    try:
        value = float(ratio)
    except (TypeError, ValueError):
        return f"{ratio} x tolerance"
    if value in (float("inf"), float("-inf")):
        return "not a matter of tolerance"
    return f"{value:,.0f} x tolerance" if value >= 100 else f"{value:.2g} x tolerance"


def short_value(value: object) -> str:
    """Return a number with six digits, and anything else as it is."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def short_array(text: str) -> str:
    """Shorten the text of an array: ``zeros``, or its values as far as they fit."""
    dtype, _, values = text.partition(" ")
    numbers = _NUMBER.findall(values)
    if numbers and len(numbers) > 1 and all(float(number) == 0 for number in numbers):
        return f"{dtype} zeros"
    return text if len(text) <= _MOST_OF_ARRAY else f"{one_line(text, _MOST_OF_ARRAY)}]"


_MOST_OF_ARRAY = 72
"""Characters of an array in a block."""
