"""What isolation costs: a cell in a worker against the same cell in this process, its start, a worker that dies."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Row, Spread, in_turn, interleaved, run_python
from benchmarks.examples import small_cell
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.worker.state import numeric_settings
from conformance.process.worker.state.fence import Fence
from conformance.process.worker.warm import MODULES, new_worker

FENCE_SECONDS = 5e-3
"""What looking at a process after a cell may take."""
START = """
import time
start = time.perf_counter()
from benchmarks.isolation import nothing
from conformance.process.worker.warm import new_worker
with new_worker() as worker:
    worker.call(nothing, timeout=60)
    print(time.perf_counter() - start)
"""
FRESH = """
import time
start = time.perf_counter()
import {modules}
print(time.perf_counter() - start)
"""


def rows(quick: bool) -> Iterator[Row]:
    yield _cell(3 if quick else 25)
    yield fence(3 if quick else 15)
    yield from _death(2 if quick else 15, quick)


def _cell(repeats: int) -> Row:
    """One accuracy cell from its stored model, 52 examples, in a worker and in this process: the same call of
    ``Runner``, after two to warm up, with the case's shapes drawn and its module built in both."""
    with tempfile.TemporaryDirectory() as folder:
        cell = small_cell(Path(folder), "{torchscript: [17]}")
        settings = Settings(store=Path(folder) / "store")
        with new_worker() as process:
            worker, here = Runner(settings, 600, process), Runner(settings, 600, None)
            sides = {"worker": lambda: worker(cell), "here": lambda: here(cell)}
            interleaved(sides, 2)
            found = interleaved(sides, repeats)
    return Row(
        "a cell in a worker process", f"{found['worker'] * 1000:.1f} ms",
        f"in the same process, {found['here'] * 1000:.1f} ms", f"{found.ratio('worker', 'here'):.2f}",
        repeats=repeats,
    )  # fmt: skip


def fence(repeats: int) -> Row:
    """What stands around a cell, in a worker after a cell that ran, and without a cell in it: for a case with Python
    of its own, where functions are looked at too, and for one without. Of the shipped cells not quite half are of
    cases with a module of their own. Each repeat is 200 times."""
    with tempfile.TemporaryDirectory() as folder, new_worker() as process:
        Runner(Settings(store=Path(folder) / "store"), 600, process)(small_cell(Path(folder), "{torchscript: [17]}"))
        found: Any = process.call(fenced, repeats, timeout=600)
    spread = Spread([(with_code + without) / 2 / FENCE_SECONDS for with_code, without in found])
    of_each = [statistics.median(values) * 1e3 for values in zip(*found, strict=True)]
    return Row(
        "looking at the process after a cell", f"{statistics.mean(of_each):.3f} ms of a processor",
        f"case with Python {of_each[0]:.3f} ms, without {of_each[1]:.3f} ms",
        target=f"at most {FENCE_SECONDS * 1e3:g} ms", met=spread.meets(1.0), repeats=repeats,
    )  # fmt: skip


def fenced(progress: Any, repeats: int) -> list[tuple[float, float]]:
    """Seconds of a processor for one cell of a case with Python of its own, and of one without, in each repeat."""
    fence = Fence()

    def around() -> float:
        start = time.thread_time()
        for _ in range(200):
            fence.begin()
            numeric_settings.seed(0)
            fence.end()
        return (time.thread_time() - start) / 200

    without = [around() for _ in range(repeats)]
    fence.note_code(Path("/nowhere"))
    return [(around(), plain) for plain in without]


def _death(repeats: int, quick: bool) -> Iterator[Row]:
    """A call that does nothing; a call that ends its process, then one that does nothing in the next worker;
    and the first worker, from an empty process. Against a new Python process that imports what a worker has
    imported, which is what isolation with a process for each cell would pay."""
    with new_worker() as worker:
        worker.call(nothing, timeout=60)
        idle = interleaved({"call": lambda: worker.call(nothing, timeout=60)}, 20 * repeats)

        def replace() -> None:
            worker.call(die, timeout=60)
            worker.call(nothing, timeout=60)

        death = interleaved({"death": replace}, repeats)
    yield Row("an empty call of a worker", f"{idle['call'] * 1000:.2f} ms", repeats=idle.repeats)
    if quick:
        yield Row("a worker dies and is replaced", f"{death['death'] * 1000:.0f} ms", repeats=death.repeats)
        return
    root = Path(__file__).parent.parent
    fresh = FRESH.format(modules=", ".join(MODULES))
    start = in_turn(
        {
            "worker": lambda: float(run_python(root, "-c", START)),
            "fresh": lambda: float(run_python(root, "-c", fresh)),
        },
        3,
    )
    yield Row(
        "a worker dies and is replaced", f"{death['death'] * 1000:.0f} ms",
        f"a new process that imports the same, {start['fresh']:.1f} s",
        f"{start['fresh'] / death['death']:.0f} × faster", repeats=death.repeats,
    )  # fmt: skip
    yield Row(
        "the first worker, from an empty process", f"{start['worker']:.1f} s",
        f"importing the same, {start['fresh']:.1f} s", f"{start.ratio('worker', 'fresh'):.2f}", repeats=start.repeats,
    )  # fmt: skip


def nothing(progress: Any) -> None:
    """A call that does nothing."""


def die(progress: Any) -> None:
    os._exit(3)
