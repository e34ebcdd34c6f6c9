"""The durations of cells in an earlier run. They decide on no verdict, so that whatever is wrong with that run, there
is only less to know."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any

from conformance.process.disk.foreign_files import parse_json
from conformance.results.records.run_file import LINES, WHOLE
from conformance.results.records.spent import START

_LONGEST_LINE = 2**24
"""Bytes of a record, at most; what is longer is no record."""

_LONGEST = 10 * 24 * 3600.0
"""Seconds of a stage, at most."""

_ID = re.compile(rb'\{"id":"([^"\\]+)"')
"""A record begins with its id, so that those of other cells need not be parsed."""


def durations(place: Path, ids: Collection[str]) -> dict[str, float]:
    """Seconds of those cells in a run: its folder, its ``run.json`` or its ``records.jsonl``, which is what is read.
    What is damaged, or not there, is left out. Raises nothing."""
    file = place.with_name(LINES) if place.name == WHOLE else place
    known: dict[str, float] = {}
    try:
        file = file / LINES if file.is_dir() else file
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return {}
            while line := stream.readline(_LONGEST_LINE):
                match = _ID.match(line)
                id = "" if match is None else match[1].decode("utf-8", "replace")
                seconds = _seconds(line) if id in ids else None
                if seconds is not None:
                    known[id] = seconds
    except (OSError, ValueError):  # ValueError: a place that is no path, with a NUL in it
        pass
    return known


def _seconds(line: bytes) -> float | None:
    """All stages of a record together; None where they are not numbers."""
    try:
        stages: Any = parse_json(line.decode("utf-8"))["seconds"]
        values = [float(value) for name, value in stages.items() if name != START]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return sum(values) if all(0 <= value <= _LONGEST for value in values) else None
