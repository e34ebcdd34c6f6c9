"""Hold what an engine is built with.

Plain data that a case, a bundle and a record can hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Shape = tuple[int, ...]
Shapes = dict[str, tuple[Shape, Shape, Shape]]
"""Smallest, typical and largest shape of each input, by its name in the graph."""

MIB = 2**20

DTYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "INT64": "int64", "BOOL": "bool",
    "UINT8": "uint8",
}  # fmt: skip
"""NumPy dtype by the name of TensorRT's."""


@dataclass(frozen=True)
class BuildOptions:
    """Builder options. None leaves TensorRT's own default."""

    workspace: int | None = None
    """MiB of device memory that kernels may use."""
    optimization_level: int | None = None
    """0 to 5: how long the builder looks for faster kernels."""
    tf32: bool = False
    """TF32 has ten bits of mantissa; TensorRT would use it for fp32 unless told not to."""
    hardware_compatibility: str = "none"
    """``none``, or ``ampere_plus`` for an engine that also runs on newer GPUs than this one."""
    timing_cache: bool = True
    """Keep the timings of kernels beside the engines: the next build is faster and picks the same kernels."""
    cuda_graph: bool = False
    """Launch the whole engine as one CUDA graph when it is timed."""
    plugins: tuple[str, ...] = ()
    """Plugin libraries, loaded before the model is parsed."""

    def as_dict(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "plugins": list(self.plugins)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BuildOptions:
        return cls(**{**values, "plugins": tuple(values.get("plugins", ()))})


@dataclass(frozen=True)
class Build:
    """All that an engine depends on besides the model, the GPU and the versions."""

    shapes: Shapes
    model_precision: str = "fp32"
    """``fp32``, ``fp16`` or ``int8``: what the ONNX model was converted to."""
    options: BuildOptions = field(default_factory=BuildOptions)
    store: Path | None = None
    """Folder of engines; None builds anew and keeps nothing."""
    watched: bool = False
    """Whether the tensors that no fusion removes can be looked at. Such an engine is not kept."""

    def as_dict(self) -> dict[str, object]:
        """Return what goes into a bundle, and into the key of the engine.

        All fields but the store, and what is only said of engines that are not kept.
        """
        shapes = {name: [list(shape) for shape in profile] for name, profile in self.shapes.items()}
        return {"shapes": shapes, "model_precision": self.model_precision, "options": self.options.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], store: Path | None = None) -> Build:
        """The inverse of ``as_dict``."""
        shapes = {name: _profile(lists) for name, lists in values["shapes"].items()}
        return cls(shapes, values["model_precision"], BuildOptions.from_dict(values["options"]), store)


def _profile(shapes: Sequence[Sequence[int]]) -> tuple[Shape, Shape, Shape]:
    low, typical, high = (tuple(int(size) for size in shape) for shape in shapes)
    return low, typical, high


def covering(typical: Mapping[str, Shape], others: Iterable[Mapping[str, Shape]]) -> Shapes:
    """The range of shapes that holds ``typical`` and all ``others``, axis by axis."""
    low, high = dict(typical), dict(typical)
    for shapes in others:
        for name, shape in shapes.items():
            low[name] = tuple(min(a, b) for a, b in zip(low[name], shape, strict=True))
            high[name] = tuple(max(a, b) for a, b in zip(high[name], shape, strict=True))
    return {name: (low[name], shape, high[name]) for name, shape in typical.items()}
