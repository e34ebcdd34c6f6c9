"""Two runs at the same time on one store of models."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from conformance.results.records.run_file import read_run
from evidence.endurance.catalogue import write_sound
from evidence.endurance.processes import start_run


@dataclass
class Shared:
    """What was seen of all pairs of runs."""

    pairs: int = 0
    cells: int = 0
    red: int = 0
    """Cells that did not pass, in either run of a pair."""
    failed: int = 0
    """Runs that did not end with exit code 0."""
    left: int = 0
    """Unfinished entries that stayed in a store."""


@functools.cache
def study(times: int) -> Shared:
    """Starts two runs at once on one empty store, so many times."""
    seen = Shared()
    for _ in range(times):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_sound(folder / "cases")
            reports = ("one", "other")
            runs = [start_run(folder, report=report) for report in reports]
            for process, report in zip(runs, reports, strict=True):
                process.communicate()
                seen.failed += process.returncode != 0
                _, records = read_run(folder / report)
                seen.cells += len(records)
                seen.red += sum(record.status != "passed" for record in records)
            seen.left += len(list((folder / "store" / "models").glob(".new-*")))
            seen.pairs += 1
    return seen
