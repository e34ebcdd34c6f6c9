"""Seconds of a cell, each counted in one of its parts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

START = "start"
"""The part in which a process is started for a cell; other cells may need none."""


def own_seconds(record: Mapping[str, Any]) -> float:
    """Return the seconds of a cell, without those in which its process was started."""
    return sum(float(seconds) for name, seconds in (record.get("seconds") or {}).items() if name != START)


@contextlib.contextmanager
def spending(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Count the time inside the block as ``what`` in ``seconds``, but for what is counted there meanwhile."""
    start, counted = time.perf_counter(), sum(seconds.values())
    try:
        yield
    finally:
        inside = sum(seconds.values()) - counted
        seconds[what] = seconds.get(what, 0.0) + max(time.perf_counter() - start - inside, 0.0)
