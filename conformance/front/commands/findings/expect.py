"""``conformance findings --expect``: write what a run showed into case files, by entries of ``fails``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from conformance.case.files.case_file import load
from conformance.case.files.declaration import Case
from conformance.case.files.limits import ENTRIES
from conformance.case.plan.catalogue import plan
from conformance.front.commands.findings.fails_revision import FailsRevision, What, revise
from conformance.front.commands.findings.fails_text import edited
from conformance.judge.case_edits import flow
from conformance.process.errors import CaseFileError, display_path
from conformance.results.records.findings import Finding
from conformance.results.records.record import Record
from conformance.results.records.record_types import Environment


def expect(chosen: Iterable[Finding], records: Mapping[str, Record]) -> Iterator[str]:
    """Write entries for the red cells of findings, and say in lines what is fixed, new or changed, and where. What
    cannot be written is told to be done by hand."""
    by_file: dict[str, set[str]] = {}
    environment: Environment | None = None
    for finding in chosen:
        environment = finding.environment
        for cell in finding.cells:
            by_file.setdefault(str(cell.source.get("file")), set()).add(cell.id)
    for name, wanted in by_file.items():
        file = Path(name)
        try:
            cases = load(file)
        except (CaseFileError, OSError) as error:
            yield f"{name}: cannot be read, so nothing is written: {str(error).splitlines()[0]}"
            continue
        for start in sorted({case.line for case in cases}, reverse=True):  # from below, so that lines stay
            own = [case for case in cases if case.line == start]
            revision = revise([cell for case in own for cell in plan(case)], wanted, records, environment)
            yield from _write(file, own[0], revision)


def _write(file: Path, case: Case, revision: FailsRevision) -> Iterator[str]:
    """Write what becomes of the entries of a case, and tell it."""
    name = display_path(file)
    for what, number, said in revision.told:
        now = revision.changes.get(number)
        yield f"{name}:{case.fails_lines[number]}: {_HEADS[what]}: {flow(said)}{f'; now {flow(now)}' if now else ''}"
    if not revision.changes and not revision.added:
        return
    place, new = f"{name}:{case.line}", len(revision.unexplained)
    total = len(case.says.fails) - [*revision.changes.values()].count(None) + len(revision.added)
    if total > ENTRIES:
        yield f"{place}: not written: {total} entries, and a case has at most {ENTRIES}; divide it, and run it again"
        return
    before = file.read_text(encoding="utf-8")
    after = edited(before, case.line, revision.changes, revision.added, case.fails_lines)
    if after is None:
        yield f"{place}: it is not written line by line, so that this is to be done by hand; new under `fails:`"
    else:
        file.write_text(after, encoding="utf-8")
        if new:
            count = "1 new entry" if new == 1 else f"{new} new entries"
            yield f"{place}: wrote {count} of `fails`; say because: in each, until then the file is refused"
    yield from (f"  - {flow(said)}" for said in (revision.added if after is None else revision.unexplained))


_HEADS: Mapping[What, str] = {
    "fixed": "fixed, taken out",
    "limited": "holds for fewer cells",
    "changed": "fails otherwise, so that its reason is to be read again",
    "about no cell": "about no cell, as its conditions name what this case or this PyTorch has not",
}
