"""The record of one cell: what every report and gate is computed from."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from conformance.errors import Stopped, lacks_memory, trouble_of_host

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


Answer = Literal["agrees", "nearer", "strays", "wrong", "otherwise", "runs", "same", "stops", "abstains", "lost"]
"""What a witness says of a failing example. ``agrees``, ``wrong``: it computes what PyTorch computes, or not.
``nearer``: it is off too, but by a small part of what the runtime that failed is, so that it computes something else.
``strays``: it computes what PyTorch does, which is not what the nodes of the model say.
``otherwise``: its outputs are wrong, and others than those that failed.
``runs``: it runs what another runtime stops at, though its values are wrong. ``same``: its outputs are bit for bit
those that failed. ``stops``: it cannot run the model. ``abstains``: it cannot be asked.
``lost``: it crashed or hung, as ``error`` says."""

FLOAT64 = "pytorch-float64"
"""The witness that tells PyTorch's own rounding: the module in float64."""


@dataclass(frozen=True)
class Witness:
    """The answer of a runtime that was asked about a failing example."""

    runtime: str
    answer: Answer
    error: str | None = None
    """The name of the error with which the witness stops."""
    reason: str | None = None
    """Why it abstains."""
    config: Mapping[str, str] | None = None
    """The session options that the witness was given and the runtime that failed was not; or ``activations``, where
    the witness ran the model with these in another type."""
    model: str | None = None
    """``exported`` where the witness ran the model before its conversion; None for the model that failed."""

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def cause_of_smallest(case: str, exporter: str, operator: Mapping[str, Any]) -> str:
    """What cells of which one shows the smallest function have in common: the case, the exporter, and where and how
    the operator parts, as the record's ``operator`` has it."""
    return " ".join(str(part) for part in (case, exporter, *map(operator.get, ("operator", "line", "module", "how"))))


def cause_of_export(case: str, exporter: str, error: str | None, reason: str | None) -> str:
    """What cells with an export that fails alike have in common: all of it but the numbers, such as opsets."""
    return " ".join((case, exporter, f"{error}", re.sub(r"[0-9]+", "", f"{reason}")))


_EXPLAINS = (
    "witnesses", "conclusion", "parts_at", "optimizer", "operator", "smallest", "own_code", "cause", "loss", "beyond",
    "conditioning", "vacuous", "remedy", "hints",
)  # fmt: skip
"""The fields that say why a cell failed, as opposed to what came out of it."""


@dataclass
class Record:
    """What one cell produced. ``docs/records.md`` describes the fields; seconds are wall time.

    ``error`` is the name that a ``fails`` entry matches. No field but ``reason`` holds sentences: ``records.text``
    makes them of the others.
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
    place: dict[str, Any] | None = None
    observed: str | None = None
    declared: list[dict[str, Any]] = field(default_factory=list)
    witnesses: list[dict[str, Any]] = field(default_factory=list)
    conclusion: str | None = None
    parts_at: dict[str, Any] | None = None
    optimizer: dict[str, Any] | None = None
    operator: dict[str, Any] | None = None
    smallest: dict[str, Any] | None = None
    own_code: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    conditioning: dict[str, Any] | None = None
    vacuous: dict[str, Any] | None = None
    coverage: dict[str, Any] | None = None
    remedy: dict[str, Any] | None = None
    output: list[str] = field(default_factory=list)
    traceback: list[str] = field(default_factory=list)
    no_bundle: str | None = None
    examples: int = 0
    ill_conditioned: int = 0
    nothing: int = 0
    excused: int = 0
    left_open: list[str] = field(default_factory=list)
    dropped_draws: int = 0
    worst: dict[str, Any] | None = None
    draw: dict[str, Any] | None = None
    rows: dict[str, int] | None = None
    outputs: list[str] = field(default_factory=list)
    histogram: dict[str, list[int]] | None = None
    signal: str | None = None
    graph: dict[str, Any] | None = None
    shipped: str | None = None
    arithmetic: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    fault: str | None = None
    cause: dict[str, Any] | None = None
    declared_for: dict[str, list[str]] | None = None
    fidelity: dict[str, Any] | None = None
    conversion: dict[str, Any] | None = None
    loss: dict[str, Any] | None = None
    beyond: list[dict[str, Any]] = field(default_factory=list)
    engine: dict[str, Any] | None = None
    latency: dict[str, Any] | None = None
    command: str | None = None
    bundle: str | None = None
    bundle_libraries: list[str] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    after: dict[str, Any] | None = None
    fingerprint: str | None = None
    depends: dict[str, Any] | None = None
    again: list[str] = field(default_factory=list)
    worker: dict[str, Any] | None = None
    reused: bool = False

    def stop(self, stop: Stopped) -> None:
        """Writes where and why the cell stopped. What stopped for want of a disk is the host's fault, which
        ``harness`` stands for, whoever wanted to write."""
        self.status = "failed"
        self.stage, self.error, self.reason, self.fault = stop.stage, stop.error, stop.reason, stop.fault
        trouble = trouble_of_host(stop)
        if trouble is not None:
            self.error, self.reason, self.fault = "CannotWrite", f"{trouble}: {stop.reason}", "harness"
            return
        if lacks_memory(stop):  # who took the rest of it is not known
            self.error, self.fault = "OutOfMemory", None
        for name, value in stop.fields.items():
            setattr(self, name, value)
        if self.error == "OutOfMemory":
            self.hints = [*self.hints, "memory"]

    def add_rest(self, name: str, seconds: float) -> None:
        """Count as ``name`` what is left of the ``seconds`` that the cell has taken."""
        rest = seconds - sum(self.seconds.values())
        if rest > 0:
            self.seconds[name] = self.seconds.get(name, 0.0) + round(rest, 6)

    def take_back(self) -> None:
        """Leave out who was found guilty and what to do about it, of a failure that turned out to be another one."""
        empty = Record(self.id, self.case, self.exporter, self.opset, self.runtime, self.precision, self.check, {})
        for name in _EXPLAINS:
            setattr(self, name, getattr(empty, name))

    def as_dict(self) -> dict[str, Any]:
        """Plain values only, as a run file holds them; NaN and infinities as text, which JSON lacks."""
        return {item.name: _jsonable(getattr(self, item.name)) for item in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """The inverse of ``as_dict``; keys that this version does not know are left out."""
        known = {item.name for item in dataclasses.fields(cls)}
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
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _jsonable(dataclasses.asdict(value))
    return str(value)
