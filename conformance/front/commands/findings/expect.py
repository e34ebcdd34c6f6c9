"""``conformance findings --expect``: writing declared failures into case files, by entries of ``fails`` that are
about just the cells that failed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.case.files.case_file import load
from conformance.case.files.must_hold import Fails
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import declared, owed
from conformance.judge.case_edits import flow
from conformance.process.errors import CaseFileError, display_path
from conformance.results.records.findings import Finding
from conformance.results.records.record import Record

Said = dict[str, Any]
"""An entry as a case file has it: when, stage, error, fault, because."""

_AXES = ("check", "precision", "runtime", "opset", "exporter")
"""What an entry can be limited to, in the order in which it is tried to do without."""


def entries(failed: Mapping[str, Record], cells: Sequence[Cell]) -> Iterator[Said]:
    """Entries for the failed records of one declaration, by id; ``cells`` are all cells of its cases. ``because`` is
    left empty.

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
            yield {**({"when": when} if when else {}), **base, "because": ""}


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
    """The cells by the first thing in which they differ."""
    for name in ("exporter", "precision", "check", "runtime", "opset", "case"):
        parts: dict[object, list[Cell]] = {}
        for cell in own:
            parts.setdefault(cell.case.name if name == "case" else getattr(cell, name), []).append(cell)
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
    about = {cell.id: cell for cell in cells if _is_about(entry, cell)}
    return all(cell.id in about for cell in own) and all(
        cell.id in alike or not owed(entry, cell) for cell in about.values()
    )


def _is_about(entry: Fails, cell: Cell) -> bool:
    says = cell.case.says.model_copy(update={"fails": [entry]})
    return bool(declared(dataclasses.replace(cell, case=dataclasses.replace(cell.case, says=says))))


def expect(chosen: Iterable[Finding], records: Mapping[str, Record]) -> Iterator[str]:
    """Write entries for the failed cells of findings, and say in lines what was written where. What cannot be
    written is told to be pasted."""
    failed = [cell for finding in chosen for cell in finding.cells if cell.status == "failed"]
    by_file: dict[str, dict[str, Record]] = {}
    for cell in failed:
        by_file.setdefault(str(cell.source.get("file")), {})[cell.id] = records[cell.id]
    for name, wanted in by_file.items():
        file = Path(name)
        try:
            cases = load(file)
        except (CaseFileError, OSError) as error:
            yield f"{name}: cannot be read, so nothing is written: {str(error).splitlines()[0]}"
            continue
        for start in sorted({case.line for case in cases}, reverse=True):  # from below, so that lines stay
            own = [case for case in cases if case.line == start]
            cells = [cell for case in own for cell in plan(case)]
            made = list(entries({id: record for id, record in wanted.items() if id in {c.id for c in cells}}, cells))
            if made:
                yield from _write(file, start, made, cells)


def _write(file: Path, start: int, made: Sequence[Said], cells: Sequence[Cell]) -> Iterator[str]:
    place = f"{display_path(file)}:{start}"
    before = file.read_text(encoding="utf-8")
    after = inserted(before, start, [flow(said) for said in made])
    count = "1 entry" if len(made) == 1 else f"{len(made)} entries"
    if after is None or not _adds(before, after, made):
        yield f"{place}: paste under `fails:`, and say because:"
        yield from (f"  - {flow(said)}" for said in made)
        return
    file.write_text(after, encoding="utf-8")
    yield f"{place}: wrote {count} of `fails`; say because: in each, until then the file is refused"
    yield from (f"  - {flow(said)}" for said in made)


def inserted(text: str, start: int, made: Sequence[str]) -> str | None:
    """The text of a case file with entries of ``fails`` added to the case that begins at a line (from 1); None where
    the case or its ``fails`` is not written line by line."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if not re.fullmatch(r"[^\s#][^#]*:\s*(#.*)?", lines[start - 1].rstrip()):
        return None
    end = next((at for at in range(start, len(lines)) if re.match(r"[^\s#]", lines[at])), len(lines))
    while end > start and not lines[end - 1].strip():
        end -= 1
    keys = [match for at in range(start, end) if (match := re.match(r"( +)[\w\"']", lines[at]))]
    if not keys:
        return None
    indent = keys[0][1]
    at = next((at for at in range(start, end) if re.match(rf"{indent}fails:", lines[at])), None)
    if at is None:
        return "".join([*lines[:end], f"{indent}fails:\n", *_items(f"{indent}  ", made), *lines[end:]])
    rest = lines[at].rstrip()[len(f"{indent}fails:") :].strip()
    if rest.startswith("[") and rest.endswith("]"):
        head, _, _ = lines[at].rpartition("]")
        comma = ", " if rest[1:-1].strip() else ""
        return "".join([*lines[:at], f"{head}{comma}{', '.join(made)}]\n", *lines[at + 1 :]])
    if rest and not rest.startswith("#"):
        return None
    first = re.match(r"( *)- ", lines[at + 1]) if at + 1 < end else None
    if first is None:
        return None
    return "".join([*lines[: at + 1], *_items(first[1], made), *lines[at + 1 :]])


def _items(indent: str, made: Sequence[str]) -> Iterator[str]:
    return (f"{indent}- {said}\n" for said in made)


def _adds(before: str, after: str, made: Sequence[Said]) -> bool:
    """Return whether the later text adds the entries to one case and nothing else."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        old, new = (YAML(typ="safe", pure=True).load(text) for text in (before, after))
    except YAMLError:
        return False
    changed = [name for name in new if new[name] != old.get(name)]
    if old.keys() != new.keys() or len(changed) != 1:
        return False
    was, now = old[changed[0]], new[changed[0]]
    rest = [said for said in now.get("fails") or () if said not in (was.get("fails") or ())]
    kept = {key: value for key, value in now.items() if key != "fails"}
    return kept == {key: value for key, value in was.items() if key != "fails"} and rest == list(made)
