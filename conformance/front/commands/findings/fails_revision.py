"""Decide how the declared failures of a case change by what a run showed.

A failure that nobody declared gets an entry about just the cells that failed. An entry that no longer holds goes, is
limited to the cells of which it still does, or is about what they fail with now; it keeps its reason. A cell that was
not run is taken to fail as declared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from conformance.case.files.must_hold import Fails
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import covers, owed, shows
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


_AXES = ("check", "precision", "runtime", "opset", "exporter")
"""What an entry can be limited to, in the order in which it is tried to do without."""


def entries(failed: Mapping[str, Record], cells: Sequence[Cell], because: str = "") -> Iterator[Said]:
    """Entries for the failed records of one declaration, by id; ``cells`` are all cells of its cases, and ``because``
    what they say.

    An entry is about as few conditions as leave out every cell that did not fail so and would have to.
    """
    kinds: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        record = failed.get(cell.id)
        if record is not None:
            kinds.setdefault((record.stage, record.error, record.fault), []).append(cell)
    for (stage, error, fault), own in kinds.items():
        base = {"stage": stage, "error": error, **({"fault": fault} if fault else {})}
        alike = {
            cell.id
            for cell in cells
            if (record := failed.get(cell.id)) is not None and (record.stage, record.error) == (stage, error)
        }
        for when in _conditions(base, own, cells, alike):
            yield {**({"when": when} if when else {}), **base, "because": because}


def limited(entry: Fails, kept: Sequence[Cell], cells: Sequence[Cell], alike: Collection[str]) -> list[Said]:
    """Return the conditions with which an entry is about the cells of which it still holds: its own and one more, or
    else several that take its place. It may show in those with an id in ``alike``, and in no others."""
    said: Said = plain(entry)
    when, base = said.pop("when", {}), {**said, "because": "tried"}
    full = _spanned(kept)
    for name in filter(full.__contains__, (*_AXES, "with")):
        value = {**when.get("with", {}), **full["with"]} if name == "with" else full[name]
        if _fits(base, {**when, name: value}, kept, cells, alike):
            return [{**when, name: value}]
    host = {name: when[name] for name in ("cpu", "versions") if name in when}
    return [{**other, **host} for other in _conditions(base, kept, cells, alike)]


def _conditions(base: Said, own: Sequence[Cell], cells: Sequence[Cell], alike: Collection[str]) -> Iterator[Said]:
    full = _spanned(own)
    if _fits(base, full, own, cells, alike):
        yield _narrowed(base, full, own, cells, alike)
        return
    parts = _divided(own)
    if len(parts) < 2:  # one cell, which every condition names
        yield full
        return
    for part in parts:
        yield from _conditions(base, part, cells, alike)


_SINGLE = ("exporter",)
"""Conditions that name one value."""


def _spanned(own: Sequence[Cell]) -> Said:
    """The conditions that name every value of the cells."""
    when: Said = {}
    for name in _AXES:
        values = list(dict.fromkeys(getattr(cell, name) for cell in own))
        if None in values or (len(values) > 1 and name in _SINGLE):
            continue
        when[name] = sorted(values) if len(values) > 1 else values[0]
    varied = [cell.case.varied for cell in own]
    same = {name: value for name, value in varied[0].items() if all(one[name] == value for one in varied)}
    return when | ({"with": same} if same else {})


def _divided(own: Sequence[Cell]) -> list[list[Cell]]:
    """The cells by the first thing in which they differ: also by a value of ``vary``, such as an operator."""
    varied = own[0].case.varied
    for name in ("exporter", "precision", "check", "runtime", "opset", *varied):
        parts: dict[str, list[Cell]] = {}
        for cell in own:
            value = cell.case.varied[name] if name in varied else getattr(cell, name)
            parts.setdefault(repr(value), []).append(cell)
        if len(parts) > 1:
            return list(parts.values())
    return [list(own)]


def _narrowed(base: Said, full: Said, own: Sequence[Cell], cells: Sequence[Cell], alike: Collection[str]) -> Said:
    """The condition without what it can do without."""
    when = dict(full)
    for name in list(full.get("with", {})):
        values = {key: value for key, value in when.get("with", {}).items() if key != name}
        less = {key: value for key, value in when.items() if key != "with"} | ({"with": values} if values else {})
        if _fits(base, less, own, cells, alike):
            when = less
    for name in _AXES:
        less = {key: value for key, value in when.items() if key != name}
        if name in when and _fits(base, less, own, cells, alike):
            when = less
    return when


def _fits(base: Said, when: Said, own: Sequence[Cell], cells: Sequence[Cell], alike: Collection[str]) -> bool:
    """Return whether an entry is about all of the cells, and harms no other.

    It has to show in none that did not fail alike.
    """
    entry = Fails.model_validate({**base, "when": when, "because": "tried"})
    about = {cell.id: cell for cell in cells if covers(entry, cell)}
    return all(cell.id in about for cell in own) and all(
        cell.id in alike or not owed(entry, cell) for cell in about.values()
    )
