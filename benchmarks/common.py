"""Rows of the table, and how they are measured: both sides in one run, in turn, medians of the repeats."""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conformance.results.records.death import ENDED
from conformance.results.records.environment import environment

ROOT = Path(__file__).parents[1]
"""The checkout."""


@dataclass(frozen=True)
class Row:
    """One line of the table. ``repeats`` is of each side; ``met`` is None where there is no target, and "unclear"
    where some repeats meet it and others do not: then neither verdict would stand in the next run."""

    what: str
    measured: str
    compared_with: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | Literal["unclear"] | None = None
    repeats: int = 1

    def line(self) -> str:
        verdict = {True: "met", False: "not met", "unclear": "unclear", None: ""}[self.met]
        cells = (self.what, self.measured, self.compared_with, self.ratio, str(self.repeats), self.target, verdict)
        return f"| {' | '.join(cells)} |"


HEAD = "| what | measured | compared with | ratio | repeats | target | |\n|---|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Spread:
    """A ratio of every repeat: the median decides, and the range says how far to trust it."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def meets(self, limit: float, *, at_least: bool = False) -> bool | Literal["unclear"]:
        """Whether every repeat meets a target, or none does."""
        each = {value >= limit if at_least else value <= limit for value in self.values}
        return each.pop() if len(each) == 1 else "unclear"

    def __format__(self, spec: str) -> str:
        if len(self.values) == 1:
            return f"{self.median:{spec}} ×"
        return f"{self.median:{spec}} × ({min(self.values):{spec}} to {max(self.values):{spec}})"


@dataclass(frozen=True)
class Timings:
    """What each side took in each repeat, in seconds or, where a benchmark says so, in examples a second."""

    values: Mapping[str, Sequence[float]]

    @property
    def repeats(self) -> int:
        return min(len(values) for values in self.values.values())

    def __getitem__(self, side: str) -> float:
        """The median of a side."""
        return statistics.median(self.values[side])

    def ratio(self, side: str, other: str) -> Spread:
        """How many times the other it is: the two of one repeat, which ran right after one another."""
        return Spread([a / b for a, b in zip(self.values[side], self.values[other], strict=True)])


def seconds_of(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def adopt_orphans() -> None:
    """Make this process the parent of what its children leave behind, such as fork servers (prctl(2))."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def core_seconds() -> float:
    """Return the core-seconds of all processes that were below this one and have ended.

    Processes that others left behind count where ``adopt_orphans`` was called before; 30 seconds are given to them.
    """
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.1)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def core_seconds_of(run: Callable[[], object]) -> float:
    """Run what starts processes, and return the core-seconds that these took, and those below them."""
    adopt_orphans()
    start = core_seconds()
    run()
    return core_seconds() - start


def in_turn(sides: Mapping[str, Callable[[], float]], repeats: int) -> Timings:
    """What each side says it measured. The sides take turns, so that a slow minute of the host hits all."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, measure in sides.items():
            values[name].append(measure())
    return Timings(values)


def interleaved(sides: Mapping[str, Callable[[], object]], repeats: int) -> Timings:
    """Seconds that each side took, in turn."""

    def timed(run: Callable[[], object]) -> Callable[[], float]:
        return lambda: seconds_of(run)

    return in_turn({name: timed(run) for name, run in sides.items()}, repeats)


def process_ended(reason: str | None) -> bool:
    """Return whether the reason of a record is that its process ended or ran out of time.

    Pages count such records and do not name them: an input that ends or hangs other people's software is for its
    makers alone.
    """
    return ENDED in (reason or "")


def table(rows: Iterable[Row]) -> str:
    return "\n".join([HEAD, *(row.line() for row in rows)])


def run_python(folder: Path, *arguments: str, allowed: Sequence[int] = (0,)) -> str:
    """Runs this Python in ``folder``, and gives what it printed; an exit code that is not allowed is an error.

    As users have it: with bytecode files. One OpenMP thread for every side.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if result.returncode not in allowed:
        raise RuntimeError(f"{command} gave {result.returncode}:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def where() -> str:
    """Return the host and the versions that a page is about, as a sentence."""
    import polygraphy

    found = environment([])
    packages = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    return (
        f"Python {found['python']}, {found['cpu']['name']}, {found['cores']} cores. {packages}, "
        f"polygraphy {polygraphy.__version__}."
    )
