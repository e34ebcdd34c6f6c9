"""Runs on a cluster of this machine: how they grow with workers, what they cost, what becomes of killed workers."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import ROOT, Row, table
from conformance.results.records.run_file import read_run
from evidence.counts import none
from tests.extras.cluster.support import dask_workers, loopback

PAGE = ROOT / "docs" / "evidence" / "cluster.md"
CASES, QUICK_CASES = 60, 6
WORKERS = (1, 2, 4)
MANY = 64
"""Drawn shapes of cells that take longer."""
REPEATS = 3
"""Runs of small cells with the same workers, of which the one with the median rate is told."""
EFFICIENCY = 0.85
KILLED_EVERY, KILLING = 20.0, 300.0
KEPT = ("status", "stage", "error", "fault", "examples")
"""What is compared of two records of a cell."""

CASE = """
small:
  about: two layers, many sizes of them
  module: beside.Small
  vary: {{n: {sizes}}}
  inputs: {{x: "float32[batch, 64]"}}
  dims: {{batch: 1..64}}
  export: {{torchscript: [17]}}
wrong:
  about: a symbolic that is another function
  forward: torch.asinh(x)
  inputs: {{x: "float32[n]"}}
  dims: {{n: 1..8}}
  export: {{torchscript: {{opsets: [17], symbolics: {{"aten::asinh": beside.wrong}}}}}}
"""
PYTHON = """
import torch

class Small(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.one, self.two = torch.nn.Linear(64, n), torch.nn.Linear(n, 32)

    def forward(self, x):
        return torch.softmax(self.two(torch.nn.functional.gelu(self.one(x))), -1)

def wrong(g, x):
    return g.op("Sinh", x)
"""


@dataclass
class Ran:
    """One run of the suite, looked at while it went on."""

    seconds: float
    first: float
    """Until its first record."""
    rate: float
    """Cells a second from when every worker had sent one to the last."""
    busy: float
    """Seconds of a core for each of the cells that ``rate`` counts, of all processes of this machine."""
    moved: float
    """Bytes over the loopback device for each cell, with what else went over it."""
    records: list[dict[str, object]] = field(default_factory=list)

    def verdicts(self) -> dict[object, tuple[object, ...]]:
        return {record["id"]: tuple(record[name] for name in KEPT) for record in self.records}


def _project(folder: Path, cases: int) -> Path:
    (folder / "cases").mkdir(parents=True)
    (folder / "cases" / "some.yaml").write_text(CASE.format(sizes=[*range(8, 8 + cases)]), encoding="utf-8")
    (folder / "cases" / "beside.py").write_text(PYTHON, encoding="utf-8")
    return folder


def _loopback_bytes() -> int:
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split()[1])
    return 0


def _busy() -> float:
    """Seconds for which the cores of this machine have worked; proc(5), ``/proc/stat``."""
    user, nice, system, _idle, _wait, interrupts, soft, *_ = map(
        int, Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:]
    )
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _run(
    folder: Path, address: str | None, workers: int = 1, words: str = "small", examples: int | None = None
) -> Ran:
    """A run of the cases with these words from an empty store."""
    report, store = tempfile.mkdtemp(dir=folder), tempfile.mkdtemp(dir=folder)
    where = ["--cell-workers", "1"] if address is None else ["--cluster", address]
    where += [] if examples is None else ["--examples", str(examples)]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--pyargs", "conformance"]
    moved, start = _loopback_bytes(), time.monotonic()
    came: list[float] = []
    all_at = 0
    busy = [0.0, 0.0]
    with subprocess.Popen(
        [*command, *where, "-k", words, "--report", report, "--store", store], cwd=folder, stdout=subprocess.DEVNULL
    ) as process:
        lines = Path(report) / "records.jsonl"
        while process.poll() is None:
            written = (lines.read_bytes() if lines.exists() else b"").split(b"\n")[1:-1]
            if len(written) > len(came):
                busy[1] = _busy()
            came += [time.monotonic() - start] * (len(written) - len(came))
            if not all_at and len({line.split(b'"worker":', 1)[1] for line in written}) >= workers:
                all_at, busy[0] = len(came), _busy()
            time.sleep(0.02)
    seconds = time.monotonic() - start
    records = [record.as_dict() for record in read_run(Path(report))[1]]
    rate = (len(came) - all_at) / (came[-1] - came[max(all_at, 1) - 1])
    worked = (busy[1] - busy[0]) / (len(came) - all_at)
    return Ran(seconds, came[0], rate, worked, (_loopback_bytes() - moved) / len(records), records)


@functools.cache
def grown(quick: bool, examples: int | None = None) -> dict[int, Ran]:
    """Runs by number of workers; under 0 the one without a cluster."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = _project(Path(name) / "project", QUICK_CASES if quick else CASES)

        def median(address: str | None, workers: int = 1) -> Ran:
            repeats = 1 if quick or examples else REPEATS
            ran = [_run(folder, address, workers, examples=examples) for _ in range(repeats)]
            return sorted(ran, key=lambda one: one.rate)[len(ran) // 2]

        found[0] = median(None)
        for workers in WORKERS[:2] if quick or examples else WORKERS:
            place = Path(name) / f"cluster-{workers}"
            place.mkdir()
            with loopback(place) as cluster:
                address = cluster.scheduler()
                cluster.workers(address, "--nworkers", str(workers))
                found[workers] = median(address, workers)
    return found


@dataclass
class Killed:
    """What became of runs whose workers were killed."""

    runs: int = 0
    cells: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    other: int = 0
    """Cells with another verdict than without a cluster."""
    seconds: float = 0.0


@functools.cache
def killed(quick: bool) -> Killed:
    """Runs on three workers, one of which is killed now and then."""
    found = Killed()
    with tempfile.TemporaryDirectory() as name:
        folder, place = _project(Path(name) / "project", QUICK_CASES if quick else CASES), Path(name) / "cluster"
        place.mkdir()
        right = _run(folder, None, words="small or wrong").verdicts()
        with loopback(place) as cluster:
            address = cluster.scheduler()
            nannies = cluster.workers(address, "--nworkers", "3")
            with _killer(nannies.pid, found, KILLED_EVERY / 4 if quick else KILLED_EVERY):
                start = time.monotonic()
                while time.monotonic() - start < (10.0 if quick else KILLING):
                    ran = _run(folder, address, words="small or wrong")
                    ids = [record["id"] for record in ran.records]
                    found.runs, found.cells = found.runs + 1, found.cells + len(right)
                    found.lost += len(right.keys() - set(ids))
                    found.doubled += len(ids) - len(set(ids))
                    found.other += sum(right[id] != said for id, said in ran.verdicts().items())
                found.seconds = time.monotonic() - start
    return found


@contextlib.contextmanager
def _killer(nanny: int, found: Killed, every: float) -> Iterator[None]:
    import threading

    ended, choice = threading.Event(), random.Random(0)

    def kill() -> None:
        while not ended.wait(every):
            workers = dask_workers(nanny)
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(choice.choice(workers), signal.SIGKILL)
                    found.kills += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _growth(runs: dict[int, Ran], repeats: int) -> Iterator[Row]:
    cores, alone = len(os.sched_getaffinity(0)), runs[0]
    verified = sum(int(str(record["examples"])) for record in alone.records) / len(alone.records)
    yield Row(
        "cells a second, no cluster",
        f"{alone.rate:.1f}",
        f"{len(alone.records)} cells of {verified:.0f} examples, {alone.busy * 1000:.0f} ms of a core each",
        repeats=repeats,
    )
    for workers, ran in runs.items():
        if workers:
            possible = min(workers * runs[1].rate, cores / runs[1].busy)
            efficiency = ran.rate / possible
            target = f"at least {EFFICIENCY:g}" if 1 < workers <= cores else ""
            yield Row(
                f"cells a second, {workers} worker{'s' * (workers > 1)}",
                f"{ran.rate:.1f}, {ran.busy * 1000:.0f} ms of a core each",
                f"{possible:.1f}: {workers} × {runs[1].rate:.1f}, as far as {cores} cores do at "
                f"{runs[1].busy * 1000:.0f} ms a cell",
                ratio=f"{efficiency:.2f}", target=target, met=efficiency >= EFFICIENCY if target else None,
                repeats=repeats,
            )  # fmt: skip


def rows(quick: bool) -> Iterator[Row]:
    for examples in (None, MANY):
        yield from _growth(grown(quick, examples), 1 if quick or examples else REPEATS)
    runs = grown(quick)
    alone = runs[0]
    one = runs[1]
    yield Row(
        "first record after, one worker", f"{one.first:.1f} s", f"{alone.first:.1f} s without",
        ratio=f"{one.first / alone.first:.2f}",
    )  # fmt: skip
    yield Row("one worker against none, whole run", f"{one.seconds:.1f} s", f"{alone.seconds:.1f} s",
              ratio=f"{one.seconds / alone.seconds:.2f}")  # fmt: skip
    size = sum(len(str(record)) for record in one.records) / len(one.records)
    yield Row(
        "bytes moved for a cell", f"{one.moved:,.0f}", f"a record of {size:,.0f}", ratio=f"{one.moved / size:.1f}"
    )
    seen = killed(quick)
    where = f"{seen.cells} cells of {seen.runs} runs on 3 workers, {seen.kills} kills in {seen.seconds:.0f} s"
    for what, number in (("lost", seen.lost), ("doubled", seen.doubled), ("of another verdict", seen.other)):
        yield none(f"cells {what}", number, where)


TEXT = """# A run on a cluster

Made by `tox run -e dev -- python -m evidence cluster`: small cases on workers of one thread that
[Dask](../cluster.md) runs on this machine, each time from an empty store; where workers are killed also a case with
a planted mistake. The scheduler and the process of the tests take their part of the same cores.

{rows}

What is possible are as many cells a second as the workers would make at the rate of one worker, and no more than the
cores can do where each cell takes what it took with one worker, in all processes together. Of several repeats the one
with the median rate is shown. Where there are more workers than cores, their rate has no target.

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/cluster.md``; ``where`` says on what host and with which versions."""
    lines = table(rows(False))
    PAGE.write_text(TEXT.format(rows=lines, where=where), encoding="utf-8")
