"""The record of one cell, and run files: what every report and gate is computed from."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SCHEMA = 1

Status = Literal["passed", "failed", "xfailed", "xpassed", "skipped"]


def cell_label(case: str, exporter: str, opset: int, runtime: str | None, precision: str) -> str:
    """``asinh-torchscript-op17-onnxruntime-fp32``; a precision that goes without saying is left out."""
    parts = [case, exporter, f"op{opset}"]
    if runtime is not None:
        parts.append(runtime)
    if runtime is not None or precision != "fp32":
        parts.append(precision)
    return "-".join(parts)


def cell_id(check: str, label: str) -> str:
    """``accuracy[asinh-torchscript-op17-onnxruntime-fp32]``"""
    return f"{check}[{label}]"


@dataclass
class Record:
    """What one cell produced. ``docs/records.md`` describes the fields; seconds are wall time.

    ``error`` is the name that a ``fails`` entry matches, ``details`` are further lines for the reader.
    """

    id: str
    case: str
    exporter: str
    opset: int
    runtime: str | None
    precision: str
    check: str
    source: dict[str, Any]
    status: Status = "passed"
    stage: str | None = None
    error: str | None = None
    reason: str | None = None
    details: list[str] = field(default_factory=list)
    examples: int = 0
    ill_conditioned: int = 0
    nothing: int = 0
    worst: dict[str, Any] | None = None
    draw: dict[str, Any] | None = None
    histogram: dict[str, list[int]] | None = None
    signal: str | None = None
    graph: dict[str, Any] | None = None
    arithmetic: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    fault: str | None = None
    cause: dict[str, Any] | None = None
    declared_for: dict[str, list[str]] | None = None
    fidelity: dict[str, Any] | None = None
    conversion: dict[str, Any] | None = None
    loss: dict[str, Any] | None = None
    engine: dict[str, Any] | None = None
    latency: dict[str, Any] | None = None
    command: str | None = None
    bundle: str | None = None
    fingerprint: str | None = None
    reused: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values only, as they go into a run file; NaN and infinities as text, which JSON lacks."""
        plain = _jsonable(dataclasses.asdict(self))
        assert isinstance(plain, dict)
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """The inverse of ``as_dict``; keys that this version does not know are left out."""
        known = {one.name for one in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)


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

    A folder's ``records.jsonl`` is taken where the run was killed before ``run.json`` was made. Raises ValueError
    where there is no run, or one of another schema.
    """
    file = place
    if place.is_dir():
        file = next((place / name for name in ("run.json", "records.jsonl") if (place / name).is_file()), place)
    if not file.is_file():
        raise ValueError(f"{place}: there is no run (run.json or records.jsonl)")
    if file.suffix != ".json":
        return read_lines(file)
    try:
        run = json.loads(file.read_text(encoding="utf-8"))
        if run["schema"] == SCHEMA:
            records = run.pop("records")
            return run, list(records)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{file}: is not a run of schema {SCHEMA}")


def read_lines(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and records of a ``records.jsonl``; a last line that was cut off is left out.

    Raises ValueError where the file is not a run of this schema, or another line is damaged.
    """
    lines = _complete_lines(file, file.read_text(encoding="utf-8").splitlines())
    header = next(lines, None)
    if header is None or header.get("schema") != SCHEMA:
        raise ValueError(f"{file}: is not a run of schema {SCHEMA}")
    return header, list(lines)


def _complete_lines(file: Path, lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return
            raise ValueError(f"{file}:{number}: is damaged: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{file}:{number}: is not a run of schema {SCHEMA}")
        yield found
