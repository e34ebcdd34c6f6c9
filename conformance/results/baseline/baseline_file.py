"""The baseline that is committed: one line for each cell, sorted, with a blank line between two cases.

Each line stands for itself, and lines of two cases are never neighbours, so that two branches that change different
cases merge. The first line says what the baseline was made on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.process.disk.foreign_files import parse_json, read_text
from conformance.process.disk.whole_files import replacing
from conformance.process.errors import UserError, display_path, why
from conformance.results.baseline.change import Run
from conformance.results.baseline.line import Line, case_of_line, check, expand
from conformance.results.records.record_types import Environment, Header
from conformance.results.records.run_file import read_run
from conformance.results.records.validation import Misfit, check_of

VERSION = 1
"""Of the format that a baseline's first line names."""

_LONGEST_HEADER = 2**20
"""Characters of a first line, at most."""

_MARKERS = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")


@dataclass(frozen=True)
class BaselineEntry:
    """One cell of a baseline, as data and as it stands in the file."""

    line: Line
    text: str


def read_baseline(file: Path) -> Run:
    """Header and records of a baseline; the records have ``accepted``, and of a run's fields those that a line keeps.

    Raises UserError with file, line and what to do where it is no baseline, or a merge or an editor broke it.
    """
    first, entries = read(file)
    header: Header = json.loads(first)
    return header, [expand(entry.line) for entry in entries]


def load(place: Path) -> Run:
    """A baseline or a whole run: a folder, its ``run.json`` or its ``records.jsonl``. Raises UserError."""
    if place.is_file() and not _is_run(place):
        return read_baseline(place)
    return read_run(place)


def head(header: Header) -> Line:
    """The first line of a baseline: its format and what it was made on, without the arguments of that run."""
    environment = {key: value for key, value in (header.get("environment") or {}).items() if key != "flags"}
    return {"baseline": VERSION, "started": header.get("started"), "environment": environment}


def read(file: Path) -> tuple[str, list[BaselineEntry]]:
    """The text of the first line, and the cells in the file's order."""
    name = display_path(file)
    if file.is_dir():
        raise UserError(f"{name}: is a folder; a baseline is one file")
    if not file.exists():
        raise UserError(f"{name}: there is no baseline; make one from a run with conformance accept")
    lines = [line.removesuffix("\r") for line in read_text(file).split("\n")]
    if not lines[0].strip():
        raise UserError(
            f"{name}:1: the first line, which says what the baseline was made on, is missing; restore it from git"
        )
    entries: list[BaselineEntry] = []
    seen: dict[str, int] = {}
    for count, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{name}:{count}"
        value = _parsed(text, where)
        if count == 1:
            _check_head(value, where)
            continue
        try:
            line = check(value)
        except UserError as error:
            raise UserError(f"{where}: {error}; restore the line from git, or accept the cell again") from None
        if line["id"] in seen:
            first = seen[line["id"]]
            raise UserError(f"{where}: {line['id']} is also in line {first}; after a merge both stayed: delete one")
        seen[line["id"]] = count
        entries.append(BaselineEntry(line, text))
    return lines[0], entries


def write(file: Path, header: str, entries: Sequence[BaselineEntry]) -> None:
    """Put the cells in order and replace the file at once. Raises UserError for a cell that is there twice."""
    texts, case, last = [header], "", None
    for entry in sorted(entries, key=lambda entry: str(entry.line["id"])):
        name, its_case = entry.line["id"], case_of_line(entry.line)
        if name == last:
            raise UserError(f"{name} is there twice; run again, or merge its parts again")
        if its_case != case:
            texts.append("")
        texts.append(entry.text)
        case, last = its_case, name
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as stream:
        # Half of a surrogate pair, which UTF-8 lacks, becomes the escape that JSON has for it.
        stream.write(("\n".join(texts) + "\n").encode("utf-8", "backslashreplace"))


def _parsed(text: str, where: str) -> object:
    if text.startswith(_MARKERS):
        raise UserError(
            f"{where}: conflict marker of git ({text[:7]}); keep one line of each cell and delete the markers"
        )
    try:
        return parse_json(text)
    except ValueError as error:
        raise UserError(
            f"{where}: is not a whole line of JSON ({error}): it was cut off or edited; restore the file from git"
        ) from None


def _check_head(header: Any, where: str) -> None:
    version = header.get("baseline") if isinstance(header, dict) else None
    if version is None:
        raise UserError(f"{where}: does not say that this is a baseline; make one from a run with conformance accept")
    if version != VERSION:
        raise UserError(
            f"{where}: is a baseline of format {version}, this version knows format {VERSION}; "
            "use the version of conformance that wrote it, or make it again"
        )
    if not isinstance(header.get("environment"), dict):
        raise UserError(f"{where}: has no environment; restore the line from git")
    try:
        check_of(Environment)(header["environment"])
    except Misfit as misfit:
        raise UserError(f"{where}: {misfit.inside('environment')}; restore the line from git") from None


def _is_run(file: Path) -> bool:
    """Return whether this is a run's file rather than a baseline.

    Its first line and its name decide: the first line of a ``run.json`` is no whole JSON value.
    """
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            first = parse_json(lines.readline(_LONGEST_HEADER))
    except OSError as error:
        raise UserError(f"{display_path(file)}: cannot be read ({why(error)})") from None
    except ValueError:
        return file.suffix == ".json"
    return isinstance(first, dict) and "baseline" not in first and ("schema" in first or file.suffix == ".json")
