"""Where the seconds of the README's two commands go: by kind of work, and by file.

Files are those of the tests, or of the cases, by the seconds that their records give.

Exports and sessions are timed where ``torch.onnx`` and ONNX Runtime are called, in every process. Starting is the
import of torch, onnx and onnxruntime in processes that are not forked from one that has them. Waiting is what the
cores did not work while the command ran. The rest is all else: PyTorch, runtimes, comparing, pytest, Python itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT, Row, adopt_orphans, core_seconds
from conformance.results.records.run_file import read_run

SITE = Path(__file__).parent / "site"
PROCESSES = 2
COMMANDS = {
    "pytest tests": ("tests", "-n", str(PROCESSES)),
    "pytest conformance": ("conformance", "-m", "not latency", "--cell-workers", str(PROCESSES)),
}
QUICK = {
    "pytest tests": ("tests/models/test_graph.py", "tests/compare/test_noise.py"),
    "pytest conformance": ("conformance", "-k", "asinh", "--cell-workers", str(PROCESSES)),
}
KINDS = {"exports": "exporting", "sessions": "opening sessions", "starts": "importing in new processes"}
FILES = 12
"""How many of the slowest files of each command are shown."""
LIMIT = 600
"""Seconds in which all tests are to end."""


@dataclass(frozen=True)
class Spent:
    """What one command took: seconds by the clock, of all cores, by kind, and by the file of the tests."""

    clock: float
    cores: float
    kinds: Counter[str]
    counts: Counter[str]
    files: Counter[str]


def rows(quick: bool) -> Iterator[Row]:
    adopt_orphans()
    for name, words in (QUICK if quick else COMMANDS).items():
        spent = _measure(words)
        limit = LIMIT if name == "pytest tests" and not quick else None
        yield Row(
            f"`{name}`", f"{spent.clock:.0f} s", f"{spent.cores:.0f} core-seconds of {PROCESSES * spent.clock:.0f}",
            target=f"at most {limit} s" if limit else "", met=spent.clock <= limit if limit else None,
        )  # fmt: skip
        for kind, what in KINDS.items():
            yield Row(what, f"{spent.kinds[kind]:.0f} s", f"{spent.counts[kind]:,} times")
        yield Row("all else", f"{spent.cores - spent.kinds.total():.0f} s")
        yield Row("waiting", f"{max(0.0, PROCESSES * spent.clock - spent.cores):.0f} s")
        for file, seconds in spent.files.most_common(FILES):
            yield Row(f"`{file}`", f"{seconds:.0f} s of its process")


def _measure(words: Sequence[str]) -> Spent:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "pytest", *words, "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={folder / 'junit.xml'}", "-o", "junit_family=xunit1"]
        if words[0] == "conformance":
            command += ["--report", str(folder / "report"), "--store", str(folder / "store")]
        path = os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "CONFORMANCE_SECONDS": str(folder / "notes")}
        before, start = core_seconds(), time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        clock = time.perf_counter() - start
        cores = core_seconds() - before
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{command} gave {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        notes = (folder / "notes").read_text(encoding="utf-8", errors="replace").splitlines()
        of_cases = folder / "report" / "records.jsonl"
        files = _by_case_file(of_cases) if of_cases.exists() else _by_file(folder / "junit.xml")
        return Spent(clock, cores, *_by_kind(notes), files)


def _by_kind(notes: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    seconds, counts = Counter[str](), Counter[str]()
    for note in notes:
        kind, _, taken = note.partition(" ")
        if kind in KINDS:  # else a test that writes to descriptors which are not its own
            seconds[kind] += float(taken)
            counts[kind] += 1
    return seconds, counts


def _by_case_file(records: Path) -> Counter[str]:
    """Return the seconds of each case file's cells, in the workers that ran them."""
    seconds = Counter[str]()
    for record in read_run(records)[1]:
        seconds[str(record.source.get("file"))] += sum(record.seconds.values())
    return seconds


def _by_file(report: Path) -> Counter[str]:
    """Return the seconds of each file's tests, by the clock of the process that ran them."""
    seconds = Counter[str]()
    for test in ET.parse(report).iter("testcase"):
        file = test.get("file") or test.get("classname", "").replace(".", "/") + ".py"
        seconds[file] += float(test.get("time", 0))
    return seconds
