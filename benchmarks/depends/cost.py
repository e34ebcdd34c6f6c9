"""What observing costs, beside the last revision that did not observe, and what an edited lowering concerns."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.common import Row, interleaved, seconds_of
from benchmarks.depends.lowerings import edit_installed, overlay
from benchmarks.depends.way import case_text
from benchmarks.planted import ROOT

BEFORE = "877bc3f"
"""The last revision whose results depended on what was read from source text."""
COST = 1.03
OPERATORS = (
    "abs", "asinh", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "neg", "relu", "sigmoid", "sign", "sin",
    "sinh", "tanh",
)  # fmt: skip
"""Of which each has a lowering of its own in one file of torchlib."""


def rows(quick: bool) -> Iterator[Row]:
    """Yield what observing costs, and how soon it is known what an edited lowering concerns."""
    if not quick:
        yield observing()
    yield from selecting(OPERATORS[:3] if quick else OPERATORS)


def observing(repeats: int = 5) -> Row:
    """Compare runs of ``cases/graph`` from empty stores, in turn."""
    with tempfile.TemporaryDirectory() as name:
        before = Path(name) / "before"
        archive = subprocess.run(["git", "-C", ROOT, "archive", BEFORE], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(before, filter="data")
        numbers = iter(range(1000))

        def run(tree: Path) -> None:
            folder = Path(name) / f"run {next(numbers)}"
            folder.mkdir()
            pytest(folder, "--cases", str(ROOT / "cases" / "graph"), environment={"PYTHONPATH": str(tree)})

        sides = {"now": lambda: run(ROOT), "before": lambda: run(before)}
        interleaved(sides, 1)  # bytecode files
        found = interleaved(sides, repeats)
    ratio = found.ratio("now", "before")
    return Row(
        "`pytest conformance --cases cases/graph`, from an empty store",
        f"{found['now']:.1f} s",
        f"revision {BEFORE}, which does not observe, {found['before']:.1f} s",
        f"{ratio:.3f}",
        f"at most {COST}, by the median",
        ratio.median <= COST,
        found.repeats,
    )


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
        git = ["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-C", str(project)]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "as it was"]):
            subprocess.run([*git, *command], check=True)
        path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
        environment = {"PYTHONPATH": path}
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


def pytest(folder: Path, *options: str, environment: Mapping[str, str]) -> str:
    """Run the suite in a folder, and return what it printed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--pyargs", "conformance", *options]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode not in (0, 1, 5):
        raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
    return done.stdout
