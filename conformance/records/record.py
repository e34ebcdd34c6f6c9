"""The record of one cell, and run files: what every report and gate is computed from."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

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
