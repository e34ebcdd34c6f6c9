"""Decide how the declared failures of a case change by what a run showed.

A failure that nobody declared gets an entry about just the cells that failed. An entry that no longer holds goes, is
limited to the cells of which it still does, or is about what they fail with now; it keeps its reason. A cell that was
not run is taken to fail as declared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from conformance.case.files.must_hold import Fails
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import covers, owed, shows
from conformance.front.commands.findings.fails_entries import entries, limited
from conformance.front.commands.findings.fails_text import Changed, Said
from conformance.judge.case_edits import plain
from conformance.results.records.host_conditions import is_about
from conformance.results.records.processor import cpu
from conformance.results.records.record import Record
from conformance.results.records.record_types import Environment

What: TypeAlias = Literal["fixed", "limited", "changed", "about no cell"]


@dataclass
class FailsRevision:
    """Hold what becomes of the entries of one case, or of all combinations of one."""

    changes: dict[int, Changed | None] = field(default_factory=dict)
    """By the number of an entry; None for one that goes."""
    added: list[Said] = field(default_factory=list)
    """New entries; those without a reason are of failures that nobody declared."""
    told: list[tuple[What, int, Said]] = field(default_factory=list)
    """For each entry that changes: the kind of change, its number, and the entry as it was."""

    @property
    def unexplained(self) -> list[Said]:
        return [said for said in self.added if not said["because"]]


def revise(
    cells: Sequence[Cell], wanted: Collection[str], records: Mapping[str, Record], environment: Environment | None
) -> FailsRevision:
    """Return how entries of ``fails`` change for the red cells with an id in ``wanted``. ``cells`` are all of one
    case, or of all combinations of one; ``environment`` is where they ran, None for here."""
    done, known = FailsRevision(), set[str]()
    red = {cell.id: records[cell.id] for cell in cells if cell.id in wanted and cell.id in records}
    for number in range(len(cells[0].case.says.fails)):
        about = [cell for cell in cells if covers(_entry(cell, number), cell)]
        if not about:
            done.told.append(("about no cell", number, plain(_entry(cells[0], number))))
        elif not _entry(about[0], number).when.only_some_draws and _applies(_entry(about[0], number), environment):
            _revise(done, number, about, cells, red, known)
    failed = {id: record for id, record in red.items() if record.status == "failed" and id not in known}
    done.added += entries(failed, cells)
    return done


def _entry(cell: Cell, number: int) -> Fails:
    return cell.case.says.fails[number]


def _applies(entry: Fails, environment: Environment | None) -> bool:
    """Return whether an entry is about the host and the versions that cells ran with."""
    if environment is None:
        return is_about(entry.when.host, cpu()["instructions"])
    processor, versions = environment.get("cpu"), environment.get("versions") or {}
    instructions = processor.get("instructions") if isinstance(processor, dict) else None
    return is_about(entry.when.host, instructions or (), versions.get)


def _revise(
    done: FailsRevision, number: int, about: Sequence[Cell], cells: Sequence[Cell], red: Mapping[str, Record],
    known: set[str],
) -> None:  # fmt: skip
    """Add what becomes of one entry. ``known`` are the failed cells that an entry before it was about; it gets those
    of this one."""
    entry = _entry(about[0], number)
    works = {cell.id for cell in about if cell.id in red and red[cell.id].status == "xpassed" and owed(entry, cell)}
    failed = {cell.id for cell in about if cell.id in red and red[cell.id].status == "failed"}
    otherwise = {id for id in failed if not shows(entry, red[id])}
    known |= failed - otherwise
    gone = works | otherwise
    if not gone:
        return
    others = {id: red[id] for id in otherwise - known}
    known |= otherwise
    left = [cell for cell in about if cell.id not in gone]
    kept = [cell for cell in left if owed(entry, cell)]
    host = {name: value for name, value in plain(entry.when).items() if name in ("cpu", "versions")}
    made = [_on(host, said) for said in entries(others, cells, entry.because)]
    if kept:
        whens = limited(entry, kept, cells, {cell.id for cell in left})
        done.changes[number] = {"when": whens[0]}
        done.added += [{**plain(entry), "when": when} for when in whens[1:]]
    elif made:
        done.changes[number] = {"when": None, "fault": None, **made.pop(0)}
    else:
        done.changes[number] = None
    done.added += made
    what: What = "changed" if otherwise else "limited" if kept else "fixed"
    done.told.append((what, number, plain(entry)))


def _on(host: Said, said: Said) -> Said:
    """Return an entry that is limited to hosts as well."""
    return {**said, "when": {**said.get("when", {}), **host}} if host else said
