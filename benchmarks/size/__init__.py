"""Runs of 1,000, 10,000 and 100,000 cells: collection, memory, run file, page, baseline, and what selects cells.

The cells cost nothing (``stub``), and all around them is real. What pytest needs for as many empty tests is measured
beside it, with the same arguments. Times are processor seconds, of a process and all that it starts, measured
in an hour in which a shared host is not equally busy. Runs are made once, the shorter commands three times.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT, Row, core_seconds, table
from tests.kit import browser

CASE = """
op{n}:
  about: one of many
  forward: torch.asinh(x)
  inputs: {{x: "float32[batch, 5]"}}
  dims: {{batch: 1..4}}
  runtimes: [onnxruntime, onnx-reference]
  precisions: {{fp16: {{}}}}
  export: {{torchscript: {{opsets: [17, 18], symbolics: {{"aten::asinh": symbolics.op{n}}}}}, dynamo: [18, 20]}}
"""
"""A case with 26 cells of every check that needs no GPU and measures no time."""
SYMBOLIC = "\n\ndef op{n}(g, x):\n    return g.op('Asinh', x)\n"
CELLS = 26
CASES = 50
"""In each file, with a symbolic for each of them beside it."""

NOTHING = """import pytest


@pytest.mark.parametrize("number", range({count}))
def test_nothing(number):
    pass
"""

PAGE = ROOT / "docs" / "evidence" / "size.md"
TEXT = """# Size

Made by `tox run -e dev -- python -m benchmarks size`: what 1,000, 10,000 and 100,000 cells take besides running them.
Each cell gets a copy of the record that the same cell of one real case has had. All around it is real: collection,
fingerprints, pytest-xdist, run file, matrix, reports, comparisons, selections.

Seconds are processor seconds of a command and all that it starts, but for the browser's, which are wall time. Memory
is what the command's own process had at most; what it takes for each cell is the difference to 1,000 cells, beside
that of as many empty parametrized tests, which pytest itself needs.

{table}

{where}
"""

GROWTH = 12.0
"""At most so many times the seconds for ten times the cells."""
KILOBYTES = 2.0
"""At most so many of memory for each cell, beyond those of an empty test."""


@dataclass(frozen=True)
class Cost:
    """Of one process: processor seconds with all that it started, and its own memory at most in bytes. Of several
    repeats the median of the seconds, and the memory of all."""

    seconds: float
    peak: int
    repeats: int = 1


Costs = dict[str, Cost | float]
"""Of one size by what was done; a float is seconds of what is no process of its own."""


def rows(quick: bool) -> Iterator[Row]:
    """Each row is about what was done with one size; the ratio is to the next smaller one."""
    wanted = [100, 1000] if quick else [1000, 10_000, 100_000]
    with tempfile.TemporaryDirectory() as name:
        records = _real(Path(name) / "real")
        done: list[tuple[int, Costs]] = []
        for count in wanted:
            size = Size(Path(name) / str(count), -(-count // CELLS), records)
            done.append((size.cells, {}))
            for what, cost, note in size.measured():
                done[-1][1][what] = cost
                yield _row(done, what, note, target=not quick)
            if len(done) > 1:
                yield from _memories(done[0], done[-1])


def write(found: list[Row], where: str) -> None:
    """Writes the page; ``where`` says on what host and with which versions."""
    PAGE.write_text(TEXT.format(table=table(found), where=where), encoding="utf-8")


def _row(done: Sequence[tuple[int, Costs]], what: str, note: str, *, target: bool) -> Row:
    """What was done last, beside the same with the size before."""
    cells, costs = done[-1]
    seconds, memory, repeats = _seconds(costs[what]), "", 1
    if isinstance(cost := costs[what], Cost):
        memory, repeats = f", {cost.peak / 2**20:,.0f} MiB", cost.repeats
    measured = f"{seconds:.1f} s{memory}{note}"
    if len(done) == 1:
        return Row(f"{cells:,} cells: {what}", measured, repeats=repeats)
    fewer, earlier = done[-2]
    ratio = seconds / _seconds(earlier[what])
    ours = target and "empty" not in what  # what pytest needs is not ours
    return Row(
        f"{cells:,} cells: {what}", measured, f"{fewer:,} cells, {_seconds(earlier[what]):.1f} s", f"{ratio:.1f} ×",
        f"at most {GROWTH:g} ×" if ours else "", ratio <= GROWTH if ours else None, repeats,
    )  # fmt: skip


def _seconds(cost: Cost | float) -> float:
    return cost if isinstance(cost, float) else cost.seconds


def _memories(first: tuple[int, Costs], last: tuple[int, Costs]) -> Iterator[Row]:
    """What each further cell takes, so that what a process needs in any case does not count."""
    cells = last[0]

    def each(what: str) -> float:
        least, most = first[1][what], last[1][what]
        assert isinstance(least, Cost) and isinstance(most, Cost)
        return (most.peak - least.peak) / (cells - first[0]) / 1000

    for how in ("", " with `-n 2`"):
        own, empty = each(f"a run{how}"), each(f"empty tests{how}")
        yield Row(
            f"{cells:,} cells: memory of the run's process{how}", f"{own:.1f} kB a cell",
            f"an empty test, {empty:.1f} kB", f"{own - empty:.1f} kB more", f"at most {KILOBYTES:g} kB more",
            own - empty <= KILOBYTES,
        )  # fmt: skip


class Size:
    """A folder with so many cases, and all that is done with them."""

    def __init__(self, folder: Path, cases: int, records: Path) -> None:
        self._folder, self._records = folder, records
        self.cells = cases * CELLS
        for first in range(0, cases, CASES):
            topic = folder / "cases" / f"topic{first // CASES}"
            topic.mkdir(parents=True)
            numbers = range(first, min(first + CASES, cases))
            (topic / "cases.yaml").write_text("".join(CASE.format(n=n) for n in numbers))
            (topic / "symbolics.py").write_text("".join(SYMBOLIC.format(n=n) for n in numbers).lstrip())
        (folder / "test_nothing.py").write_text(NOTHING.format(count=self.cells))
        git = ["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-C", str(folder)]
        for arguments in (["init", "-q"], ["add", "cases"], ["commit", "-qm", "as it was"]):
            subprocess.run([*git, *arguments], check=True)

    def measured(self) -> Iterator[tuple[str, Cost | float, str]]:
        """Everything, each once, in an order in which what one makes is there for the next: what was done, what it
        took, and what else there is to tell."""
        folder = self._folder
        yield "empty tests, `--collect-only`", self._empty("--collect-only"), ""
        yield "`--collect-only`", self._suite("--collect-only"), ""
        yield "empty tests", self._empty(), ""
        yield "a run", self._suite("--report", "first"), ""
        yield (
            "reading the run, Markdown",
            self._command("report", "first", "--markdown", "summary.md"),
            _size(folder / "first" / "run.json"),
        )
        yield "JSON", self._command("report", "first", "--json", "report.json"), _size(folder / "report.json")
        page = folder / "page.html"
        yield "the page", self._command("report", "first", "--html", "page.html"), _size(page)
        painted = _painted(page)
        if painted is not None:
            yield "the page's rows painted in Chromium", painted, ""
        baseline = folder / "baseline.jsonl"
        accepted = self._command("accept", "first", "*", "--baseline", baseline.name, makes=baseline)
        yield "a new baseline (`accept`)", accepted, _size(baseline)
        reused = self._suite("--reuse", "first", "--baseline", "baseline.jsonl", "--report", "second")
        yield "a run with `--reuse` and `--baseline`", reused, ""
        yield "`conformance diff` of two runs", self._command("diff", "first", "second"), ""
        yield "`conformance diff` with the baseline", self._command("diff", "baseline.jsonl", "second"), ""
        shards = [f"shard{index}" for index in (1, 2, 3, 4)]
        costs = [self._suite("--shard", f"{index}/4", "--report", name) for index, name in enumerate(shards, 1)]
        yield "`--shard 1/4`", costs[0], ""
        yield "`conformance merge` of four shards", self._command("merge", "merged", *shards), ""
        edited = folder / "cases" / "topic0" / "symbolics.py"
        text = edited.read_text().replace("def op1(g, x):\n    return", "def op1(g, x):\n    x = x\n    return")
        edited.write_text(text)
        changed = self._suite("--changed-since", "HEAD", "--report", "changed")
        yield "`--changed-since`, one symbolic edited", changed, ""
        yield "empty tests with `-n 2`", self._empty("-n", "2"), ""
        yield "a run with `-n 2`", self._suite("-n", "2", "--report", "two"), ""

    def _suite(self, *arguments: str) -> Cost:
        suite = ("--pyargs", "conformance", "-p", "benchmarks.size.stub", "--isolation", "none", "--store", "store")
        return self._run("pytest", "-q", "-p", "no:cacheprovider", *suite, *arguments)

    def _empty(self, *arguments: str) -> Cost:
        return self._run("pytest", "-q", "-p", "no:cacheprovider", "test_nothing.py", *arguments)

    def _command(self, *arguments: str, makes: Path | None = None) -> Cost:
        """A command of ``conformance``, three times; a file that it ``makes`` is not there before."""
        costs = []
        for _ in range(3):
            if makes is not None:
                makes.unlink(missing_ok=True)
            costs.append(self._run("conformance", *arguments))
        median = statistics.median(cost.seconds for cost in costs)
        return Cost(median, max(cost.peak for cost in costs), len(costs))

    def _run(self, *arguments: str) -> Cost:
        """Runs a module in this folder; RuntimeError where it does not end with 0."""
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"PYTHONPATH": os.pathsep.join(paths), "SIZE_RECORDS": str(self._records)}
        peak = self._folder / "peak"
        command = [sys.executable, "-m", "benchmarks.size.measured", str(peak), *arguments]
        start = core_seconds()
        done = subprocess.run(
            command, cwd=self._folder, env={**os.environ, **variables}, capture_output=True, text=True
        )
        seconds = core_seconds() - start
        if done.returncode:
            raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return Cost(seconds, int(peak.read_text()))


def _size(file: Path) -> str:
    return f"; {file.name} {file.stat().st_size / 1e6:.1f} MB"


def _painted(page: Path) -> float | None:
    """Seconds of wall time from opening the page until its first rows are painted; None without a browser."""
    program = browser.find()
    if program is None:
        return None
    with browser.running(program) as chromium:
        return browser.load_times(chromium, page)["painted"]


def _real(folder: Path) -> Path:
    """The records of the real run of one case."""
    (folder / "cases").mkdir(parents=True)
    (folder / "cases" / "cases.yaml").write_text(CASE.format(n=0))
    (folder / "cases" / "symbolics.py").write_text(SYMBOLIC.format(n=0).lstrip())
    command = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    records = folder / "reports" / "latest" / "records.jsonl"
    if done.returncode or len(records.read_text(encoding="utf-8").splitlines()) != CELLS + 1:
        raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-2000:]}")
    return records
