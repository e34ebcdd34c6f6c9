"""The seconds that the cases of a folder usually take, in a file beside them: for a run without an earlier one.

The file decides on no verdict, so that whatever is wrong with the file, there is only less to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from conformance.disk.foreign_files import parse_json, read_text

FILE = "durations.json"
LONGEST = 10 * 24 * 3600.0
"""Seconds of a case, at most."""


def read_usual(places: Iterable[Path]) -> dict[str, float]:
    """Return seconds by case, by the files in these folders, or beside these case files. Raises nothing."""
    known: dict[str, float] = {}
    for place in places:
        file = (place if place.is_dir() else place.parent) / FILE
        try:
            told: Any = parse_json(read_text(file))
            seconds = {str(name): float(value) for name, value in told["seconds"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
        known |= {name: value for name, value in seconds.items() if 0 <= value <= LONGEST}
    return known
