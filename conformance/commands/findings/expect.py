"""``conformance findings --expect``: writing declared failures into case files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.case.case_file import load
from conformance.commands.findings.entries import Said, entries, line
from conformance.errors import CaseFileError, display_path
from conformance.plan.catalogue import plan
from conformance.plan.cell import Cell
from conformance.records.findings import Finding


def expect(chosen: Iterable[Finding], records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Writes entries for the failed cells of findings, and says in lines what was written where. What cannot be
    written is told to be pasted."""
    failed = [cell for finding in chosen for cell in finding.cells if cell["status"] == "failed"]
    by_file: dict[str, dict[str, Mapping[str, Any]]] = {}
    for cell in failed:
        by_file.setdefault(str(cell["source"]["file"]), {})[cell["id"]] = records[cell["id"]]
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
    after = inserted(before, start, [line(said) for said in made])
    count = "1 entry" if len(made) == 1 else f"{len(made)} entries"
    if after is None or not _adds(before, after, made):
        yield f"{place}: paste under `fails:`, and say because:"
        yield from (f"  - {line(said)}" for said in made)
        return
    file.write_text(after, encoding="utf-8")
    yield f"{place}: wrote {count} of `fails`; say because: in each, until then the file is refused"
    yield from (f"  - {line(said)}" for said in made)


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
