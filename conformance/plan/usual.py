"""The seconds that the cases of a folder usually take, in a file beside them: for a run without an earlier one.

The file decides on no verdict, so that whatever is wrong with the file, there is only less to know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.disk.foreign_files import parse_json, read_text
from conformance.records.spent import own_seconds

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


def write_usual(folder: Path, records: Iterable[Mapping[str, Any]], measured: str) -> None:
    """Write the file of a folder, by the records of a run of all of its cells; ``measured`` says where and when."""
    spent: dict[str, float] = {}
    for record in records:
        spent[record["case"]] = spent.get(record["case"], 0.0) + own_seconds(record)
    seconds = {name: round(value, 1) for name, value in sorted(spent.items())}
    text = json.dumps({"measured": measured, "seconds": seconds}, indent=1)
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")
