"""Run the scripts of ``findings`` and say which surprise about an outside package no longer holds.

    python -m evidence surprises                   all of them
    python -m evidence surprises NAME NAME         some of them

Each installs its packages in a folder of its own, so that a package index and minutes are needed. Gives 1 where a
surprise has changed, else 2 where a script could not be tried to its end, else 0.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT

FOLDER = ROOT / "findings"
LIMIT = 1800.0
"""Seconds for one script, most of which goes into installing packages."""
HOLDS, CHANGED, OTHER_PROCESSOR, GONE, UNTRIED = "holds", "changed", "other processor", "not installed", "not tried"
BY_EXIT_CODE = {0: HOLDS, 1: CHANGED, 3: OTHER_PROCESSOR, 4: GONE}


@dataclass(frozen=True)
class Tried:
    """The end of one script, and the line of its output that says why."""

    name: str
    outcome: str
    why: str = ""

    def line(self) -> str:
        """Return the line that is printed for it."""
        return f"{self.outcome:<15}  {self.name}" + (f": {self.why}" if self.why else "")


def try_script(script: Path, limit: float = LIMIT) -> Tried:
    """Run one script. An error before it says what is seen is no change: the surprise was not tried."""
    try:
        ended = subprocess.run(["sh", script], capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return Tried(script.stem, UNTRIED, f"no end after {limit:g} seconds")
    outcome = BY_EXIT_CODE.get(ended.returncode, UNTRIED)
    if outcome == CHANGED and "\nseen: " not in f"\n{ended.stdout}":
        outcome = UNTRIED
    said = [line.strip() for line in (ended.stdout if outcome == OTHER_PROCESSOR else ended.stderr).splitlines()]
    said = [line for line in said if line]
    why = said[-1] if said else f"exit code {ended.returncode}"
    if outcome == CHANGED:
        why = "; ".join([*(line for line in ended.stdout.splitlines() if line.startswith("seen: ")), why])
    return Tried(script.stem, outcome, "" if outcome == HOLDS else why)


def try_scripts(scripts: Sequence[Path], jobs: int) -> Iterator[Tried]:
    """Run them, some at a time, and give what came of each in their order."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(try_script, scripts)


def main(words: Sequence[str]) -> int:
    """Run the scripts that are named, or all, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m evidence surprises", description=__doc__)
    parser.add_argument("name", nargs="*", metavar="NAME", help="a script of the folder, without .sh (default: all)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="scripts at a time (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where they are (default: %(default)s)")
    given = parser.parse_args(words)
    known = {script.stem: script for script in sorted(given.folder.glob("*.sh"))}
    if unknown := sorted({*given.name} - {*known}):
        parser.error(f"no script {', '.join(unknown)} in {given.folder}")
    outcomes = []
    for tried in try_scripts([known[name] for name in given.name or known], given.jobs):
        print(tried.line(), flush=True)
        outcomes.append(tried.outcome)
    print(", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in (*BY_EXIT_CODE.values(), UNTRIED)))
    if CHANGED in outcomes:
        print("take what has changed out of conformance/results/records/known.csv")
        return 1
    return 2 if {GONE, UNTRIED} & {*outcomes} else 0
