"""Writing reports: what the command line calls."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from conformance.process.errors import UserError, why
from conformance.results.baseline.change import Change
from conformance.results.records.findings import findings, since
from conformance.results.records.record import Record
from conformance.results.records.run_file import read_run, with_records
from conformance.results.report.record_rows import STATUSES, NamedRun, finished, ratio


def report(
    places: Sequence[Path],
    html: Path | None = None,
    markdown: Path | None = None,
    json_: Path | None = None,
    github: bool = False,
    sarif: Path | None = None,
    changes: Sequence[Change] = (),
) -> None:
    """Write the reports that are asked for about the last of ``places``; earlier ones are its history, oldest first.

    A place is a run's folder, its ``run.json`` or its ``records.jsonl``; a run that was killed is reported with what
    it had. ``changes`` are those since a baseline. ``github`` prints workflow commands.
    Raises UserError for what the user has to correct: no run, nothing to write, a file that cannot be written.
    """
    if not places:
        raise UserError("name at least one run: its folder, run.json or records.jsonl")
    if html is None and markdown is None and json_ is None and sarif is None and not github:
        raise UserError("say what to write: an HTML page, a Markdown summary, JSON, SARIF, or annotations for GitHub")
    runs = read(places)
    _, header, records = runs[-1]
    if html is not None:
        _write(html, [_page()(runs, changes)])
    if markdown is not None:
        from conformance.results.report.markdown import summary

        _write(markdown, [summary(header, records, changes)])
    if json_ is not None:
        data = as_data(runs, changes)
        _write(json_, with_records(data, data.pop("records")))
    if sarif is not None:
        from conformance.results.report.annotations import sarif as as_sarif

        version = str((header.get("environment") or {}).get("conformance"))
        _write(sarif, [json.dumps(as_sarif(records, version), indent=1) + "\n"])
    if github:
        from conformance.results.report.annotations import github as annotations

        for line in annotations(records, changes):
            print(line)


def _page() -> Callable[..., str]:
    try:
        from conformance.results.report.html import page
    except ModuleNotFoundError as error:  # on a host that only replays bundles; its run can be reported elsewhere
        raise UserError(f"{error.name} is not installed: pip install {error.name}") from None
    return page


def read(places: Sequence[Path]) -> list[NamedRun]:
    """The runs with names that tell them apart. Raises UserError, with the place, where one cannot be read."""
    return [(name, *read_run(place)) for name, place in zip(names(places), places, strict=True)]


def names(places: Sequence[Path]) -> list[str]:
    """The folder's name for each run, or as much of the path as tells it from the others."""
    folders = [place.parent if place.suffix in (".json", ".jsonl") else place for place in places]
    parts = [Path(os.path.realpath(folder)).parts for folder in folders]
    for length in range(1, max(map(len, parts), default=1) + 1):
        ends = ["/".join(folder[-length:]) for folder in parts]
        if len(set(ends)) == len(ends):
            return ends
    return [str(place) for place in places]


def as_data(runs: Sequence[NamedRun], changes: Sequence[Change] = ()) -> dict[str, Any]:
    """The report as plain data: all of the last run, of earlier ones the counts, and each cell's status and ratio."""
    name, header, records = runs[-1]
    history: dict[str, list[dict[str, object]]] = {record.id: [] for record in records}
    for run, _, rows in runs:
        for row in rows:
            if row.id in history:
                history[row.id].append({"run": run, "status": row.status, "ratio": ratio(row)})
    return {
        **header,
        "name": name,
        "finished": finished(header),
        "runs": [
            {"name": run, "started": about.get("started"), "seconds": about.get("seconds"),
             "finished": finished(about), "counts": _counts(rows)}
            for run, about, rows in runs
        ],
        "changes": [change.as_dict() for change in changes],
        "findings": found(runs),
        "history": history,
        "records": (record.as_dict() for record in records),
    }  # fmt: skip


def found(runs: Sequence[NamedRun]) -> list[dict[str, object]]:
    """The findings of the last run as data, each since the earliest of the runs that has it."""
    past = [(name, {record.id: record for record in records}) for name, _, records in runs[:-1]]
    return [finding.as_dict(since(finding, past)) for finding in findings(runs[-1][2])]


def _counts(rows: Sequence[Record]) -> dict[str, int]:
    return {status: sum(row.status == status for row in rows) for status in STATUSES}


def _write(file: Path, text: Iterable[str]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8") as stream:
            stream.writelines(text)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({why(error)})") from error
