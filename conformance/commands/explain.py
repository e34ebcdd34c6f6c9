"""``conformance explain``: on what a cell's result depends, and what of it is not as it was."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.records.sanitize import tell

_MOST = 20
"""Entries of one kind that are printed."""
_KINDS = {
    "files": "file", "folders": "names in", "packages": "package", "lowerings": "registrations of",
    "variables": "variable", "host": "host's", "missing": "no file", "fleeting": "not the same at each run:",
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cells", nargs="+", metavar="CELL", help="ids of cells, or patterns of them, as '*asinh*'")
    parser.add_argument(
        "--run", type=Path, default=Path("reports/latest"), metavar="RUN", help="the run (default: %(default)s)"
    )
    parser.add_argument("--depends", action="store_true", help="what each cell's result depends on")


def run(given: argparse.Namespace) -> int:
    """0, or 1 where something is not as it was."""
    from conformance.errors import UserError
    from conformance.records.run_file import read_run

    header, records = read_run(given.run)
    chosen = [
        record
        for record in records
        if any(record["id"] == word or fnmatchcase(record["id"], word) for word in given.cells)
    ]
    if not chosen:
        raise UserError(f"{given.run} has no cell {', '.join(given.cells)}")
    changed = False
    for record in chosen:
        differs = list(_differences(record, header.get("conditions") or {}))
        changed |= bool(differs)
        for line in _explain(record, differs, entries=given.depends):
            tell(line)
    return int(changed)


def _differences(record: Mapping[str, Any], were: Mapping[str, str]) -> Iterator[str]:
    from conformance.depends.fingerprint import conditions, conditions_hash
    from conformance.depends.observed_dependencies import Now, Observed
    from conformance.depends.results import Last

    depends = record.get("depends")
    if depends is None:
        return
    file = Path(str(record["source"].get("file") or "."))
    yield from Observed.from_dict(depends).differences(Now(file.parent.resolve()))
    if "says" in depends and "conditions" in depends:  # not so in a run of an earlier version
        yield from Last.from_dict(depends, were).differences(_says(record, file), conditions(), conditions_hash())


def _says(record: Mapping[str, Any], file: Path) -> str | None:
    """The hash of what the record's case says now; None where there is no such cell."""
    from conformance.case.case_file import load
    from conformance.depends.fingerprint import says
    from conformance.errors import CaseFileError
    from conformance.plan.catalogue import cells_of

    try:
        return next((says(cell) for cell in cells_of(file, load(file)) if cell.id == record["id"]), None)
    except (CaseFileError, OSError):
        return None


def _explain(record: Mapping[str, Any], differs: list[str], *, entries: bool) -> Iterator[str]:
    taken = "taken over from an earlier run" if record.get("reused") else "run"
    yield f"{record['id']}: {record['status']}, {taken}"
    yield from (f"  run again: {line}" for line in record.get("again") or ())
    depends = record.get("depends")
    if depends is None:
        yield "  what it depends on was not observed"
        return
    for line in differs or ["all that it used is as it was"]:
        yield f"  {'now: ' if differs else ''}{line}"
    if not entries:
        return
    for kind, word in _KINDS.items():
        yield from _shortened([f"  {word} {name}" for name in depends.get(kind, ())])
    for file, names in depends.get("parts", {}).items():
        yield from _shortened([f"  {file}: {name}" for name in names if name != "*"])
    for place, names in depends.get("modules", {}).items():
        where = "anywhere" if place == "*" else f"in {place}"
        yield f"  no module {where} of: {', '.join(names.split())}"


def _shortened(lines: list[str]) -> Iterator[str]:
    yield from lines[:_MOST]
    if len(lines) > _MOST:
        yield f"  and {len(lines) - _MOST} more"
