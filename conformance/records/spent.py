"""How long the parts of a cell take, each second in one of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

START = "start"
"""What starting a process for a cell took, which others may need none for."""


def own_seconds(record: Mapping[str, Any]) -> float:
    """How long a cell took, whoever started its process."""
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
