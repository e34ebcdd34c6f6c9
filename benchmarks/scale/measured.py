"""``python -m benchmarks.scale.measured FILE LIMIT COMMAND...`` runs a command and writes into ``FILE`` what it took,
with all processes below it, as JSON with the fields of ``Cost``; what has not ended after ``LIMIT`` seconds is ended,
and so is what would leave this host without memory.

Memory is looked at ten times a second: the sum of the parts of all processes (PSS), in which a page that several of
them have mapped counts once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common import ROOT, adopt_orphans, core_seconds
from conformance.process.worker.children import below, end_below, signalled_with_parent

TICK = 0.1
"""Seconds between two looks at the memory."""
SHARE = 0.85
"""Of the memory that is free at the start, which a command may take."""


@dataclass(frozen=True)
class Cost:
    """Of a command and all that it started: seconds by the clock and of all cores, bytes at most, and its exit code,
    which is None where it was ended; ``cut`` says why then."""

    seconds: float
    cores: float
    peak: int
    code: int | None
    cut: str = ""


def measure(command: Sequence[str], folder: Path, limit: float, environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command in ``folder`` from a process of its own, and return what it took. One OpenMP thread; what it says
    is in ``said.txt``. RuntimeError where the measuring itself fails."""
    file = folder / "cost.json"
    file.unlink(missing_ok=True)
    wrapped = [sys.executable, "-m", "benchmarks.scale.measured", str(file), f"{limit:g}", *command]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **(environment or {})}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    with (folder / "said.txt").open("wb") as said:
        done = subprocess.run(wrapped, cwd=folder, env=variables, stdout=said, stderr=subprocess.STDOUT)
    if done.returncode or not file.is_file():
        raise RuntimeError(f"{wrapped} gave {done.returncode}:\n{(folder / 'said.txt').read_text()[-2000:]}")
    return Cost(**json.loads(file.read_text(encoding="ascii")))


def run(command: Sequence[str], limit: float, memory: float) -> Cost:
    """Run a command below this process, which must have no other children, for so many seconds at most and with so
    many bytes. Nothing of it is left, however this ends."""
    adopt_orphans()
    peak, code, cut, start = 0, None, "", time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while code is None and not cut:
            peak = max(peak, sum(proportional(pid) for pid in below(os.getpid())))
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(TICK)
            if code is None and time.perf_counter() - start >= limit:
                cut = f"not within {limit:g} s"
            elif code is None and peak > memory:
                cut = f"ended as it took {peak / 2**20:,.0f} MiB"
        seconds = time.perf_counter() - start
    finally:
        if code is None:
            end_below(os.getpid(), patience=None)
            process.wait()
    cores = core_seconds()  # which waits for those that the command left behind
    end_below(os.getpid(), patience=None)
    return Cost(seconds, cores, peak, code, cut)


def available() -> int:
    """Return the bytes of memory that this host can give."""
    (line,) = (line for line in Path("/proc/meminfo").read_text("ascii").splitlines() if "MemAvailable:" in line)
    return int(line.split()[1]) * 1024


def proportional(pid: int) -> int:
    """Return the bytes of a process, with its part of what it shares with others; 0 of one that has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signalled_with_parent(signal.SIGTERM)
    found = run(sys.argv[3:], float(sys.argv[2]), SHARE * available())
    Path(sys.argv[1]).write_text(json.dumps(asdict(found)), encoding="ascii")
