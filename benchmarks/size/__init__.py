"""Runs of 1,000, 10,000 and 100,000 cells: collection, memory, run file, page, baseline, and what selects cells.

The cells cost nothing (``stub``), and all around them is real. What pytest needs for as many empty tests is measured
beside it, with the same arguments. Times are processor seconds, of a process and all that it starts: each is measured
once, over an hour, in which a shared host is not equally busy.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Row, table
from tests import browser

ROOT = Path(__file__).parent.parent.parent

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
    """Of one process: processor seconds with all that it started, and its own memory at most in bytes."""

    seconds: float
    peak: int


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
            done.append((size.cells, size.measure()))
            yield from _times(size, done, target=not quick)
            if len(done) > 1:
                yield from _memories(done[0], done[-1])


def write(found: list[Row], where: str) -> None:
    """Writes the page; ``where`` says on what host and with which versions."""
    PAGE.write_text(TEXT.format(table=table(found), where=where), encoding="utf-8")


def _times(size: Size, done: Sequence[tuple[int, Costs]], *, target: bool) -> Iterator[Row]:
    for what, cost in done[-1][1].items():
        seconds = cost if isinstance(cost, float) else cost.seconds
        memory = "" if isinstance(cost, float) else f", {cost.peak / 2**20:,.0f} MiB"
        told = size.notes.get(what, "")
        measured = f"{seconds:.1f} s{memory}{f'; {told}' if told else ''}"
        if len(done) == 1:
            yield Row(f"{size.cells:,} cells: {what}", measured)
            continue
        cells, earlier = done[-2]
        other = earlier[what]
        was = other if isinstance(other, float) else other.seconds
        ratio = seconds / was
        ours = target and "empty" not in what  # what pytest needs is not ours
        yield Row(
            f"{size.cells:,} cells: {what}", measured, f"{cells:,} cells, {was:.1f} s", f"{ratio:.1f} ×",
            f"at most {GROWTH:g} ×" if ours else "", ratio <= GROWTH if ours else None,
        )  # fmt: skip


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
        self.notes: dict[str, str] = {}
        """What is told besides time and memory."""
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

    def measure(self) -> Costs:
        """Everything, each once, in an order in which what one makes is there for the next."""
        costs: Costs = {
            "empty tests, `--collect-only`": self._empty("--collect-only"),
            "`--collect-only`": self._suite("--collect-only"),
            "empty tests": self._empty(),
            "a run": self._suite("--report", "first"),
            "empty tests with `-n 2`": self._empty("-n", "2"),
            "a run with `-n 2`": self._suite("-n", "2", "--report", "two"),
        }
        size = (self._folder / "first" / "run.json").stat().st_size
        self.notes["a run"] = f"run.json {size / 1e6:.1f} MB"
        costs |= {
            "a new baseline (`accept`)": self._command("accept", "first", "*", "--baseline", "baseline.jsonl"),
            "a run with `--reuse` and `--baseline`": self._suite(
                "--reuse", "first", "--baseline", "baseline.jsonl", "--report", "second"
            ),
            "`conformance diff` of two runs": self._command("diff", "first", "second"),
            "`conformance diff` with the baseline": self._command("diff", "baseline.jsonl", "second"),
            "Markdown": self._command("report", "first", "--markdown", "summary.md"),
            "JSON": self._command("report", "first", "--json", "report.json"),
            "the page": self._command("report", "first", "--html", "page.html"),
        }
        page = self._folder / "page.html"
        self.notes["the page"] = f"{page.stat().st_size / 1e6:.1f} MB"
        painted = _painted(page)
        if painted is not None:
            costs["the page's rows painted in Chromium"] = painted
        costs["`--shard 1/4`"] = self._suite("--shard", "1/4", "--report", "shard1")
        for index in (2, 3, 4):
            self._suite("--shard", f"{index}/4", "--report", f"shard{index}")
        costs["`conformance merge` of four shards"] = self._command(
            "merge", "merged", *(f"shard{i}" for i in (1, 2, 3, 4))
        )
        edited = self._folder / "cases" / "topic0" / "symbolics.py"
        text = edited.read_text().replace("def op1(g, x):\n    return", "def op1(g, x):\n    x = x\n    return")
        edited.write_text(text)
        costs["`--changed-since`, one symbolic edited"] = self._suite(
            "--changed-since", "HEAD", "--report", "changed"
        )
        return costs

    def _suite(self, *arguments: str) -> Cost:
        suite = ("--pyargs", "conformance", "-p", "benchmarks.size.stub", "--isolation", "none", "--store", "store")
        return self._run("pytest", "-q", "-p", "no:cacheprovider", *suite, *arguments)

    def _empty(self, *arguments: str) -> Cost:
        return self._run("pytest", "-q", "-p", "no:cacheprovider", "test_nothing.py", *arguments)

    def _command(self, *arguments: str) -> Cost:
        return self._run("conformance", *arguments)

    def _run(self, *arguments: str) -> Cost:
        """Runs a module in this folder; RuntimeError where it does not end with 0."""
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"PYTHONPATH": os.pathsep.join(paths), "SIZE_RECORDS": str(self._records)}
        peak = self._folder / "peak"
        command = [sys.executable, "-m", "benchmarks.size.measured", str(peak), *arguments]
        start = _used()
        done = subprocess.run(
            command, cwd=self._folder, env={**os.environ, **variables}, capture_output=True, text=True
        )
        seconds = _used() - start
        if done.returncode:
            raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return Cost(seconds, int(peak.read_text()))


def _used() -> float:
    """Processor seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
