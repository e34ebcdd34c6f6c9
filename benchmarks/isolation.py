"""What isolation costs: a cell in a worker against the same cell in this process, and a worker that dies."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Row, interleaved
from benchmarks.examples import CASE
from conformance.casefile import load
from conformance.isolation import Worker
from conformance.plan import plan
from conformance.runner import Runner
from conformance.settings import Settings


def rows(quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.yaml"
        file.write_text(CASE)
        cell = next(one for one in plan(load(file)[0]) if one.check == "accuracy")
        settings = Settings(store=Path(folder) / "store")
        with Runner(settings, timeout=600) as worker, Runner(settings, timeout=600, isolated=False) as here:
            sides = {"worker": lambda: worker(cell), "here": lambda: here(cell)}
            interleaved(sides, 2)
            seconds = interleaved(sides, 3 if quick else 25)
    ratio = seconds["worker"] / seconds["here"]
    yield Row(
        "a cell in a worker process", f"{seconds['worker'] * 1000:.1f} ms",
        f"in the same process, {seconds['here'] * 1000:.1f} ms", f"{ratio:.2f} ×",
    )  # fmt: skip
    with Worker() as dying:
        dying.call(_nothing, timeout=60)
        start = time.perf_counter()
        for _ in range(5):
            dying.call(_die, timeout=60)
            dying.call(_nothing, timeout=60)
        spent = (time.perf_counter() - start) / 5
    yield Row("a worker dies and is replaced", f"{spent * 1000:.0f} ms", "", "")


def _nothing(progress: Any) -> None:
    """A call that does nothing."""


def _die(progress: Any) -> None:
    os._exit(3)
