"""Runs that are killed at random moments: what they had is on disk, and nothing of them goes on."""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from conformance.process.errors import UserError
from conformance.results.records.run_file import read_lines
from evidence.endurance.catalogue import write_hostile, write_sound
from evidence.endurance.processes import marked, seconds_until_gone, start_run

SECONDS = 3.0
"""In which everything that a killed run had started has to be gone."""


@dataclass
class Killed:
    """What was seen of all killed runs."""

    runs: int = 0
    with_records: int = 0
    reported: int = 0
    """Cells that the terminal had shown as finished."""
    lost: int = 0
    """Of those, the cells without a record on disk."""
    damaged: list[str] = field(default_factory=list)
    """Run files that could not be read."""
    went_on: int = 0
    """Runs of which a process was alive after ``SECONDS``."""
    slowest: float = 0.0
    """Seconds until the last process of a run was gone."""
    whole: bool = False
    """Whether a run with the same report and store, after all that, was as if nothing had happened."""


@functools.cache
def study(times: int) -> Killed:
    """Starts a run on two workers so many times, and kills its first process at a random moment of it."""
    seen, rng = Killed(), random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sound(folder / "cases")
        write_hostile(folder / "cases" / "hostile")
        start = time.monotonic()
        _finish(folder)
        whole = time.monotonic() - start
        for _ in range(times):
            _kill_after(rng.uniform(0.1, 1.0) * whole, folder, seen)
        process = _finish(folder)
        seen.whole = process.returncode in (0, 1) and len(_written(folder, seen)) == _collected(process.stdout)
    return seen


def _finish(folder: Path) -> subprocess.CompletedProcess[str]:
    with start_run(folder) as process:
        text, _ = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, text)


def _kill_after(seconds: float, folder: Path, seen: Killed) -> None:
    (folder / "report" / "records.jsonl").unlink(missing_ok=True)
    token = uuid.uuid4().hex
    with start_run(folder, token=token) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        gone = seconds_until_gone(token, SECONDS)
        seen.runs += 1
        seen.went_on += gone is None
        seen.slowest = max(seen.slowest, SECONDS if gone is None else gone)
        for pid in marked(token):  # what holds the other end of the pipe would block the reading
            os.kill(pid, signal.SIGKILL)
        assert process.stdout is not None
        words = r"(?:PASSED|FAILED|XFAIL|SKIPPED) \S*::test_(?!case_file)(\w+\[\S+\])"
        shown = set(re.findall(words, process.stdout.read()))
    written = _written(folder, seen)
    seen.with_records += bool(written)
    seen.reported += len(shown)
    seen.lost += len(shown - written)


def _written(folder: Path, seen: Killed) -> set[str]:
    """The ids of the records on disk."""
    file = folder / "report" / "records.jsonl"
    if not file.exists() or not file.read_bytes():
        return set()
    try:
        return {record["id"] for record in read_lines(file)[1]}
    except UserError as error:
        seen.damaged.append(str(error))
        return set()


def _collected(output: str) -> int:
    """How many cells a run had, by its own words."""
    return int((re.search(r"^(\d+) cells:", output, re.MULTILINE) or [0, 0])[1])
