"""Rows of the table, and how they are measured: both sides in one run, in turn, medians of the repeats."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of ``docs/benchmarks.md``. ``met`` is None where there is no target."""

    what: str
    measured: str
    compared_with: str
    ratio: str
    target: str = ""
    met: bool | None = None

    def line(self) -> str:
        verdict = {True: "met", False: "not met", None: ""}[self.met]
        return f"| {self.what} | {self.measured} | {self.compared_with} | {self.ratio} | {self.target} | {verdict} |"


HEAD = "| what | measured | compared with | ratio | target | |\n|---|---|---|---|---|---|"


def interleaved(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each side. The sides take turns, so that a slow minute of the host hits all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) if values else 0.0 for name, values in seconds.items()}
