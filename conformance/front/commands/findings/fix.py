"""``conformance findings --fix``: what can be done about findings, tried before it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from conformance.case.files.case_file import read
from conformance.case.files.declaration import Case
from conformance.extras.repairs.fixes import fixes, tried
from conformance.extras.repairs.trials import Doing, RepairTrials
from conformance.process.errors import display_path, require_torch
from conformance.process.worker.warm import new_worker
from conformance.results.records.findings import Finding
from conformance.results.records.record import Record


def fix(
    chosen: Sequence[Finding], records: Mapping[str, Record], store: Path, doing: Doing = lambda *_: None
) -> Iterator[str]:
    """Yield lines about each finding: the changes with which its first cell passes, or what was tried in vain.

    ``doing`` shows the cell that runs with a change, which may take minutes.
    """
    made = [finding for finding in chosen if finding.cells[0].exporter != "onnx"]
    if made:
        require_torch(f"--fix exports {made[0].cells[0].case} again and needs")
    yield "Changes with which the first cell of a finding passes, each run on all draws of that cell:"
    with new_worker(dynamo=bool(made)) as worker:
        for number, finding in enumerate(chosen, 1):
            place = f"{number} of {len(chosen)}"
            trials = RepairTrials(worker, store, partial(tell_trial, doing, place))
            record = records[finding.cells[0].id]
            yield f"{place}, {finding.id}: {record.id}"
            yield from (f"  {line}" for line in _try_fixes(finding, record, trials))


def tell_trial(doing: Doing, place: str, cell: str, note: Mapping[str, object], since: float) -> None:
    """Show which cell runs with a change, and for which finding."""
    doing(f"{place}, with a change: {cell}", note, since)


def _try_fixes(finding: Finding, record: Record, trials: RepairTrials) -> Iterator[str]:
    what = tried(finding)
    if what is None:
        yield "nothing can be tried for it: the failure itself says what to do, or somebody has to look"
        return
    case = _case(record)
    if isinstance(case, str):
        yield case
        return
    found = 0
    for known in fixes(finding, case, record, trials):
        found += 1
        yield f"{known.what}: {known.shown}"
        yield from (f"  {line}" for line in known.paste.splitlines())
    if not found:
        yield f"none of what was tried lets it pass: {what}"


def _case(record: Record) -> Case | str:
    """The case of a record; a sentence where it is no longer there."""
    file = Path(str(record.source.get("file")))
    try:
        cases, _ = read(file)
    except OSError as error:
        return f"{display_path(file)}: cannot be read: {error}"
    for case in cases:
        if case.name == record.case:
            return case
    return f"{display_path(file)}: there is no case {record.case} any more, or it cannot be read"
