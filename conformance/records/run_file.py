"""Run files: what every report and gate is computed from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.errors import UserError

SCHEMA = 1


class RunWriter:
    """Writes ``records.jsonl`` line by line, each flushed, so that a killed run keeps what it had."""

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        (folder / "run.json").unlink(missing_ok=True)
        self._lines = (folder / "records.jsonl").open("w", encoding="utf-8")
        self._write({"schema": SCHEMA, **header})

    def add(self, record: dict[str, Any]) -> None:
        self._write(record)

    def _write(self, line: dict[str, Any]) -> None:
        self._lines.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._lines.flush()

    def close(self, seconds: float | None) -> None:
        """Makes ``run.json`` from the lines; ``seconds`` is what the whole run took, None if it was broken off."""
        self._lines.close()
        if seconds is None:
            return
        header, records = read_lines(self._folder / "records.jsonl")
        run = {**header, "seconds": round(seconds, 3), "records": records}
        (self._folder / "run.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


def read_run(place: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and records of a run: its folder, its ``run.json`` or its ``records.jsonl``.

    A folder's ``records.jsonl`` is taken where the run was killed before ``run.json`` was made. Raises UserError
    where there is no run, or a run of another schema.
    """
    file = place
    if place.is_dir():
        file = next((place / name for name in ("run.json", "records.jsonl") if (place / name).is_file()), place)
    if not file.is_file():
        raise UserError(f"{place}: there is no run (run.json or records.jsonl)")
    if file.suffix != ".json":
        return read_lines(file)
    try:
        run = json.loads(file.read_text(encoding="utf-8"))
        if run["schema"] == SCHEMA:
            records = run.pop("records")
            return run, list(records)
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(f"{file}: is not a run of schema {SCHEMA}")


def read_lines(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and records of a ``records.jsonl``; a last line that was cut off is left out.

    Raises UserError where the file is not a run of this schema, or any line but the last is damaged.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: cannot be read ({error})") from None
    lines = _complete_lines(file, text.splitlines())
    header = next(lines, None)
    if header is None or header.get("schema") != SCHEMA:
        raise UserError(f"{file}: is not a run of schema {SCHEMA}")
    return header, list(lines)


def _complete_lines(file: Path, lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return
            raise UserError(f"{file}:{number}: is damaged: {error}") from None
        if not isinstance(value, dict):
            raise UserError(f"{file}:{number}: is not a run of schema {SCHEMA}")
        yield value
