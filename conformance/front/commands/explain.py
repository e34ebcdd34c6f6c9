"""``conformance explain``: all that is known of a finding or of a cell, and on what its result depends."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.front.commands import TIMEOUT, add_option, add_store
from conformance.results.records.sanitize import shorten, tell

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell
    from conformance.results.records.record import Record

_MOST = 20
"""Entries of one kind that are printed."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cells", nargs="+", metavar="ID|CELL", help="ids of findings or of cells, or patterns of cells, as '*asinh*'"
    )
    add_option(parser, "--run", Path("reports/latest"), "the run", type=Path, metavar="RUN")
    add_store(parser, "models")
    parser.add_argument("--depends", action="store_true", help="what each cell's result depends on")


def run(given: argparse.Namespace) -> int:
    """0, or 1 where something is not as it was."""
    from conformance.process.errors import UserError
    from conformance.results.records import known, text
    from conformance.results.records.findings import RED, findings
    from conformance.results.records.run_file import read_run

    header, records = read_run(given.run)
    of_findings = {cell.id for finding in findings(records) if finding.id in given.cells for cell in finding.cells}
    chosen = [
        record
        for record in records
        if record.id in of_findings or any(record.id == word or fnmatchcase(record.id, word) for word in given.cells)
    ]
    if not chosen:
        raise UserError(
            f"{given.run} has no finding and no cell {', '.join(given.cells)}; conformance findings lists what is red"
        )
    changed = False
    for record in _explained(chosen, given.store):
        if record.status in RED or record.status == "xfailed":
            for line in (f"{record.id}:", *text.failure(record).splitlines()):
                tell(line)
        else:
            for line in text.builds_again(record):
                tell(f"{record.id}: {line}")
        for line in known.lines(record, header.get("environment")):
            tell(f"  {line}")
        differs = list(_differences(record, header.get("conditions") or {}))
        changed |= bool(differs)
        for line in _explain(record, differs, entries=given.depends):
            tell(line)
    return int(changed)


def _explained(records: Sequence[Record], store: Path) -> Iterator[Record]:
    """Yield the records; one that nobody has explained yet, such as a declared failure, is explained now."""
    cells = {record.id: _cell(record) for record in records if record.unexplained}
    if not any(cells.values()):
        yield from records
        return
    from conformance.case.plan.settings import Settings
    from conformance.cells.runner import Runner
    from conformance.process.worker.warm import new_worker

    with new_worker() as worker:
        run = Runner(Settings(store=store / "models"), TIMEOUT, worker)
        for record in records:
            cell = cells.get(record.id)
            yield record if cell is None else run.explain(cell, record)


def _differences(record: Record, were: Mapping[str, str]) -> Iterator[str]:
    from conformance.models.kept.fingerprint import conditions, conditions_hash
    from conformance.models.kept.observed_dependencies import Now, Observed
    from conformance.models.kept.results import Last

    depends = record.depends
    if depends is None:
        return
    file = Path(record.source.get("file") or ".")
    yield from Observed.from_dict(depends).differences(Now(file.parent.resolve()))
    if "says" in depends and "conditions" in depends:  # not so in a run of an earlier version
        yield from Last.from_dict(depends, were).differences(_says(record), conditions(), conditions_hash())


def _says(record: Record) -> str | None:
    """The hash of what the record's case says now; None where there is no such cell."""
    from conformance.models.kept.fingerprint import says

    cell = _cell(record)
    return None if cell is None else says(cell)


def _cell(record: Record) -> Cell | None:
    """Return the cell of a record, as its case file declares it now; None where there is no such cell."""
    from conformance.case.files.case_file import read
    from conformance.case.plan.catalogue import cells_of
    from conformance.process.errors import CaseFileError

    file = Path(record.source.get("file") or ".")
    sound, _ = read(file)
    try:
        cells = cells_of(file, sound, filter(None, [record.runtime]))  # which the case need not have named
        return next((cell for cell in cells if cell.id == record.id), None)
    except (CaseFileError, OSError):
        return None


def _explain(record: Record, differs: list[str], *, entries: bool) -> Iterator[str]:
    taken = "taken over from an earlier run" if record.reused else "run"
    yield f"{record.id}: {record.status}, {taken}"
    yield from (f"  run again: {line}" for line in record.again)
    depends = record.depends
    if depends is None:
        yield "  what it depends on was not observed"
        return
    for line in differs or ["all that it used is as it was"]:
        yield f"  {'now: ' if differs else ''}{line}"
    if not entries:
        return
    kinds = {
        "file": depends.get("files"), "names in": depends.get("folders"), "package": depends.get("packages"),
        "registrations of": depends.get("lowerings"), "variable": depends.get("variables"),
        "host's": depends.get("host"), "no file": depends.get("missing"),
        "not the same at each run:": depends.get("fleeting"),
    }  # fmt: skip
    for word, names in kinds.items():
        yield from shorten([f"  {word} {name}" for name in names or ()], _MOST)
    for file, parts in depends.get("parts", {}).items():
        yield from shorten([f"  {file}: {name}" for name in parts if name != "*"], _MOST)
    for place, modules in depends.get("modules", {}).items():
        where = "anywhere" if place == "*" else f"in {place}"
        yield f"  no module {where} of: {', '.join(modules.split())}"
