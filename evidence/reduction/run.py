"""Each fault as a cell of the suite meets it, its smallest model, and the script of it run again."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.common import ROOT
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.extras.mutants.study import hasty_worker, record_of
from conformance.results.records.record import Record
from tests.plants.planted import part_of, run_planted, walk
from tests.plants.reduction import declared, plants

TABLE = "tests.plants.reduction"
SITE = Path(__file__).parent / "site"
TIMEOUT = 120.0


@dataclass(frozen=True)
class Outcome:
    """What became of a fault."""

    name: str
    fault: str | None
    """Who is named in the record; a fault that is not the runtime's by it is not made small."""
    whole: int
    """Nodes of the model that failed."""
    smallest: Mapping[str, Any]
    """The record's field, empty where there is none."""
    shows: int | None = None
    """The exit code of the script in a process that has the defect; None without a script."""
    mended: int | None = None
    """That in a process without it; None of a real fault too."""
    void: str = ""
    """Why it proves nothing."""

    @property
    def counts(self) -> bool:
        return not self.void and self.fault == "runtime"

    @property
    def nodes(self) -> int | None:
        return self.smallest.get("nodes")


@functools.cache
def study(quick: bool) -> list[Outcome]:
    chosen = part_of(list(plants()), quick, 12)
    return [*_planted(chosen, quick), *(() if quick else _real())]


def _planted(chosen: list[Any], quick: bool) -> Iterator[Outcome]:
    for seen in walk(TABLE, chosen, quick, run=run_everywhere):
        record = seen.record
        name, void = seen.plant.name, "" if seen.counts and seen.failed else seen.sound or "it is not met, or passes"
        small = record["smallest"] or {}
        whole = sum(((record["graph"] or {}).get("nodes") or {}).values())
        codes: tuple[int | None, int | None] = (None, None)
        if small.get("repro"):
            file = Path(small["repro"]).absolute()
            codes = exit_code(file, environment((TABLE, name))), exit_code(file, {})
        yield Outcome(name, record["fault"], whole, small, *codes, void)


def _real() -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder, hasty_worker() as worker:
        for number, cell in enumerate(declared()):
            print(f"declared: {cell.label}", file=sys.stderr, flush=True)
            record = record_of(worker, cell, Path(folder) / str(number) / "models", smallest=True).as_dict()
            small = record["smallest"] or {}
            shows = exit_code(Path(small["repro"]).absolute(), {}) if small.get("repro") else None
            whole = sum(((record["graph"] or {}).get("nodes") or {}).values())
            void = "" if record["status"] == "failed" else f"the cell is {record['status']}"
            yield Outcome(f"declared: {cell.id}", record["fault"], whole, small, shows, None, void)


def environment(key: tuple[str, str]) -> dict[str, str]:
    """With these variables a Python process has the defect of a table and a name."""
    path = [str(SITE), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "CONFORMANCE_PLANT": "\t".join(key)}


def run_everywhere(progress: Any, cell: Cell, settings: Settings, key: tuple[str, str] | None) -> tuple[Record, bool]:
    """``run_planted`` with the defect in the Python processes that the cell starts, too."""
    with mock.patch.dict(os.environ, {} if key is None else environment(key)):
        return run_planted(progress, cell, settings, key)


def exit_code(file: Path, variables: Mapping[str, str]) -> int:
    """That of a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(file)], env={**os.environ, **variables}, cwd=file.parent, capture_output=True,
        timeout=TIMEOUT,
    )  # fmt: skip
    return done.returncode
