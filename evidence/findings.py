"""The causes run, counted, printed, and ``docs/evidence/findings.md``."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.common import ROOT, Row, table
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.results.records.findings import Finding, findings
from conformance.results.records.record import Record
from evidence.counts import enough, none
from tests.plants.findings import cause_of, plants
from tests.plants.plant import Plant, Written
from tests.plants.planted import Seen, run_planted, walk

PAGE = ROOT / "docs" / "evidence" / "findings.md"
TABLE = "tests.plants.findings"
CAUSES, SPLIT = 120, 0.1
CAUSE = "planted cause"
"""The key under which a record of the run has its cause, which nothing but this benchmark reads."""


@dataclass(frozen=True)
class Counted:
    """Red cells of a run, the causes that they have and the findings that they come to."""

    causes: Mapping[str, int]
    """By cause: its red cells."""
    found: Sequence[Finding]

    @property
    def merged(self) -> list[tuple[Finding, list[str]]]:
        """Findings of more than one cause."""
        each = [(finding, sorted(_causes(finding))) for finding in self.found]
        return [(finding, causes) for finding, causes in each if len(causes) > 1]

    @property
    def split(self) -> dict[str, list[Finding]]:
        """Causes of more than one finding."""
        by_cause: dict[str, list[Finding]] = {cause: [] for cause in self.causes}
        for finding in self.found:
            for cause in _causes(finding):
                by_cause[cause].append(finding)
        return {cause: these for cause, these in by_cause.items() if len(these) > 1}


def _causes(finding: Finding) -> set[str]:
    return {str((cell.unknown or {})[CAUSE]) for cell in finding.cells}


def counted(outcomes: Sequence[Seen]) -> Counted:
    """What the findings make of all red cells as one run."""
    red = [
        {**record, **_in_one_folder(record, seen.plant), CAUSE: cause_of(seen.plant)}
        for seen in outcomes if seen.counts for record in seen.records if record["status"] == "failed"
    ]  # fmt: skip
    return Counted(Counter(str(record[CAUSE]) for record in red), findings(map(Record.from_dict, red)))


def _in_one_folder(record: Mapping[str, Any], plant: Plant) -> dict[str, Any]:
    """The places of a record as if both cases of its cause named code of one file."""
    place = record.get("place") or {}
    return {"place": {**place, "file": f"{cause_of(plant)}/beside.py"}} if place.get("own") else {}


@functools.cache
def study(quick: bool) -> list[Seen]:
    chosen = list(plants())
    if quick:  # whole causes
        some = list(dict.fromkeys(map(cause_of, chosen)))[::20]
        chosen = [plant for plant in chosen if cause_of(plant) in some]
    return list(walk(TABLE, chosen, quick, cells=all_cells, run=run_only))


def all_cells(plant: Plant, written: Written, folder: Path) -> list[Cell]:
    """The cells of a case that have the check of its plant; of the sound form the first."""
    from conformance.case.files.case_file import load
    from conformance.case.plan.catalogue import plan

    folder.mkdir(parents=True, exist_ok=True)
    body = "\n".join(f"  {line}" for line in written.body.splitlines())
    (folder / "case.yaml").write_text(f"planted:\n  about: a plant\n{body}\n", encoding="utf-8")
    (folder / "beside.py").write_text(written.python, encoding="utf-8")
    (case,) = load(folder / "case.yaml")
    found = [cell for cell in plan(case) if (cell.check, cell.precision) == (plant.check, plant.precision)]
    return found[:1] if folder.name == "sound" else found


def run_only(progress: Any, cell: Cell, settings: Settings, key: tuple[str, str] | None) -> tuple[Record, bool]:
    """``run_planted`` without making the failing models small, which findings do not rest on."""
    from conformance.cells import red

    with mock.patch.object(red, "leave_smallest", lambda *arguments: None):
        return run_planted(progress, cell, settings, key)


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(outcomes: Sequence[Seen]) -> Iterator[Row]:
    found = counted(outcomes)
    causes, cells = len(found.causes), sum(found.causes.values())
    yield enough("planted causes", causes, CAUSES, f"{cells} red cells")
    yield Row("findings", str(len(found.found)), f"{causes} causes", repeats=cells)
    merged = found.merged
    of = f"of {sum(len(names) for _, names in merged)} causes"
    yield none("findings of more than one cause", len(merged), of, len(found.found))
    extra = sum(len(these) - 1 for these in found.split.values())
    part = extra / causes if causes else 0.0
    yield Row(
        "findings that are split off needlessly", f"{part:.1%}", f"{extra} of {len(found.split)} causes",
        target=f"at most {SPLIT:.0%}", met=part <= SPLIT, repeats=causes,
    )  # fmt: skip
    quiet = len({cause_of(seen.plant) for seen in outcomes}) - causes
    yield none("causes without a red cell, or whose case fails by itself", quiet)


TEXT = """# How many findings planted causes come to

Made by `tox run -e dev -- python -m evidence findings`. One cause at a time is planted in two cases, whose cells
are of several opsets, exporters and runtimes; the red cells of all are read as one run. A cause is what would be
mended at one place. Two defects of one operator in the same component that make the same kind of difference are one
finding by definition, and no two causes here are such.

{targets}

## Findings of more than one cause

{merged}

## Causes of more than one finding

{split}

## Plants that prove nothing

{void}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/findings.md``; ``where`` says on what host and with which versions."""
    outcomes = study(False)
    found = counted(outcomes)
    merged = [f"- {_said(finding)}: {'; '.join(causes)}" for finding, causes in found.merged]
    split = [f"- {cause}: {'; '.join(map(_said, these))}" for cause, these in found.split.items()]
    void = [seen.void for seen in outcomes if not seen.counts]
    targets = table(rows_of(outcomes))
    PAGE.write_text(
        TEXT.format(
            targets=targets, merged="\n".join(merged) or "None.", split="\n".join(split) or "None.",
            void="\n".join(void) or "None.", where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip


def _said(finding: Finding) -> str:
    parts = [part for part in finding.key if part]
    if finding.key.by in ("case", "entry"):  # of the folder of a run
        parts = [part for part in parts if part != finding.key.of]
    return f"{', '.join(parts)} ({len(finding.cells)} cells)"
