"""What observing costs, beside runs that do not observe, and what an edited lowering concerns."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.common import ROOT, Row, Timings, core_seconds_of, in_turn, seconds_of
from tests.plants.depends.lowerings import edit_installed, overlay
from tests.plants.depends.way import case_text

BLIND = "--no-observe"
COST = 1.03
OPERATORS = (
    "abs", "asinh", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "neg", "relu", "sigmoid", "sign", "sin",
    "sinh", "tanh",
)  # fmt: skip
"""Of which each has a lowering of its own in one file of torchlib."""


def rows(quick: bool) -> Iterator[Row]:
    """Yield what observing costs, and how soon it is known what an edited lowering concerns."""
    if not quick:
        yield from observing()
    yield from selecting(OPERATORS[:3] if quick else OPERATORS)


def observing(repeats: int = 5) -> Iterator[Row]:
    """Compare runs of ``cases/graph`` that observe with runs that do not, in turn: first runs, each from an empty
    store, and a second run after each."""
    with tempfile.TemporaryDirectory() as name:
        numbers = itertools.count()
        last: dict[str, Path] = {}

        def first(*options: str) -> None:
            last["".join(options)] = folder = Path(name) / f"run {next(numbers)}"
            folder.mkdir()
            run(folder, *options)

        def second(*options: str) -> None:
            run(last["".join(options)], *options)

        def run(folder: Path, *options: str) -> None:
            environment = {"PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])}
            pytest(folder, "--cases", str(ROOT / "cases" / "graph"), *options, environment=environment)

        sides = {
            "observing": first, "not observing": lambda: first(BLIND),
            "observing, second": second, "not observing, second": lambda: second(BLIND),
        }  # fmt: skip
        clock: dict[str, list[float]] = {side: [] for side in sides}

        def measured(side: str) -> float:
            start = time.perf_counter()
            cores = core_seconds_of(sides[side])
            clock[side].append(time.perf_counter() - start)
            return cores

        in_turn({side: partial(measured, side) for side in list(sides)[:2]}, 1)  # bytecode files
        for values in clock.values():
            values.clear()
        cores, seconds = in_turn({side: partial(measured, side) for side in sides}, repeats), Timings(clock)
    ratio = cores.ratio("observing", "not observing")
    yield Row(
        "`pytest conformance --cases cases/graph`, from an empty store, core-seconds", f"{cores['observing']:.1f} s",
        f"`{BLIND}`: {cores['not observing']:.1f} s", f"{ratio:.3f}", f"at most {COST}, by the median",
        ratio.median <= COST, repeats,
    )  # fmt: skip
    yield Row(
        "the same by the clock", f"{seconds['observing']:.1f} s", f"{seconds['not observing']:.1f} s",
        f"{seconds.ratio('observing', 'not observing'):.3f}", repeats=repeats,
    )  # fmt: skip
    yield Row(
        "the same again, from the store that this run left, by the clock", f"{seconds['observing, second']:.1f} s",
        f"`{BLIND}`, which keeps nothing: {seconds['not observing, second']:.1f} s",
        f"{seconds.ratio('observing, second', 'not observing, second'):.3f}", repeats=repeats,
    )  # fmt: skip


def selecting(operators: tuple[str, ...], repeats: int = 3) -> Iterator[Row]:
    """Edit one lowering of torchlib after a run of one case for each operator, and select what it concerns."""
    with tempfile.TemporaryDirectory() as name:
        project, site = Path(name) / "project", Path(name) / "site"
        (project / "cases").mkdir(parents=True)
        overlay(site)
        texts = (
            case_text("one operator", f"forward: torch.{one}(x)", export="{dynamo: [20]}", name=one)
            for one in operators
        )
        (project / "cases" / "case.yaml").write_text("".join(texts), encoding="utf-8")
        environment = committed(project, site)
        pytest(project, environment=environment)
        edit_installed("torchlib", site)
        said = ""

        def select() -> None:
            nonlocal said
            said = pytest(project, "--changed-since", "HEAD", "--collect-only", environment=environment)

        seconds = sorted(seconds_of(select) for _ in range(repeats))[repeats // 2]
    found = [line for line in said.splitlines() if "::test_" in line and "-dynamo-" in line]
    wanted = [line for line in found if "[asinh-" in line]
    yield Row(
        "selecting after a lowering of torchlib is edited", f"{seconds:.1f} s",
        f"{len(found)} cells of {2 * len(operators)}, of which {len(wanted)} use it",
        target="the 2 cells that use it", met=len(found) == len(wanted) == 2, repeats=repeats,
    )  # fmt: skip


def committed(project: Path, site: Path) -> dict[str, str]:
    """Commit a folder with git, and return the variables that have packages of ``site`` found first."""
    git = ["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-C", str(project)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "as it was"]):
        subprocess.run([*git, *command], check=True)
    return {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])}


def pytest(folder: Path, *options: str, environment: Mapping[str, str]) -> str:
    """Run the suite in a folder, and return what it printed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--pyargs", "conformance", *options]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode not in (0, 1, 5):
        raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    return done.stdout
