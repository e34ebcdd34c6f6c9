"""What a bundle says of a model, as ``bundle.json`` has it. ``shape`` holds it against what it has to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One model with one check, to be run by any runtime."""

    name: str
    """Its folder; ONNX's runner wants it to begin with ``test_``."""
    case: str
    exporter: str
    opset: int
    precision: str
    check: str
    source: dict[str, Any]
    graph: dict[str, Any]
    inputs: list[str]
    """Names in the order of ``input_0.pb`` and on."""
    judge: dict[str, Any]
    """``compare.judges.judge_from`` makes the judge again."""
    build: dict[str, Any]
    """``runtimes.tensorrt.Build.from_dict`` makes the build again; its plugins are paths in the bundle."""
    sets: list[dict[str, Any]]
    """For each data set: dims, regime, seed, index, the runtimes that are declared to fail on it (``apart``, each by
    its name, or with the kind of processor on which it is), conditioning (how far rounding moves each output: the
    most, or the mean square of a converted model), whether there are exact outputs. How far each value moves lies
    beside these."""
    runtimes: list[str]
    """The runtimes that the case declares for this model."""
    expected: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By runtime the declared failures of the whole cell: stage, error, because, fault, place, owed. Those of
    TensorRT's check ``engine`` are under ``engine``."""
    excused: list[int] = field(default_factory=list)
    """Outputs that may be vacuous."""
    own_code: list[str] = field(default_factory=list)
    """The case's own symbolics and functions that the export used."""
    libraries: list[str] = field(default_factory=list)
    """Custom-operator libraries for ONNX Runtime, relative to the entry's folder."""
    trial: dict[str, Any] | None = None
    """For TensorRT's check ``engine``: whether there are equal rows, the outputs that have them too, batch sizes. The
    arrays lie in ``engine/``."""
    conversion: dict[str, Any] | None = None
    config: dict[str, str] = field(default_factory=dict)
    """ONNX Runtime's session options."""
    command: str | None = None

    @property
    def code(self) -> list[str]:
        """The libraries and plugins that would run, relative to the entry's folder."""
        return list(dict.fromkeys([*self.libraries, *self.build["options"]["plugins"]]))
