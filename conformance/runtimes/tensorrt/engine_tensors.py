"""The tensors inside of an engine with its fusions left as they are: those that are still there are looked at.

TensorRT calls them debug tensors (TensorRT documentation, "Debug Tensors"); those that no fusion removes can be
marked without another engine coming out from 10.11 on. An output for each tensor would make another engine.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.process.arrays import Array, Inputs
from conformance.process.disk.onnx_models import save
from conformance.process.errors import Unavailable
from conformance.runtimes.tensorrt.absence import absence as absence_of_tensorrt
from conformance.runtimes.tensorrt.build_options import Build
from conformance.runtimes.tensorrt.engine_session import open_model

if TYPE_CHECKING:
    from onnx import ModelProto

_MARKS = "mark_unfused_tensors_as_debug_tensors"


def absence() -> str | None:
    """Say in one line why tensors inside of an engine cannot be looked at on this host, or return None."""
    missing = absence_of_tensorrt()
    if missing is not None:
        return missing
    trt = importlib.import_module("tensorrt")
    if not hasattr(trt.INetworkDefinition, _MARKS):
        return f"TensorRT {trt.__version__} cannot show the tensors inside of an engine as it is: 10.11 or later can"
    return None


def values(model: ModelProto, names: Sequence[str], libraries: Sequence[str], inputs: Inputs) -> list[Array | None]:
    """The values of these tensors of a model's main graph, outputs or not; None for one that a fusion removes.

    The engine is built for the shapes of ``inputs`` alone. ``libraries`` are ONNX Runtime's and play no part. Raises
    Unavailable where ``absence`` says why, and what TensorRT raises.
    """
    missing = absence()
    if missing is not None:
        raise Unavailable(missing)
    shapes = {value.name: (inputs[value.name].shape,) * 3 for value in model.graph.input if value.name in inputs}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        save(model, file)
        with open_model(file, libraries, Build(shapes, watched=True)) as session:
            found = session.inside(inputs)
    return [found.get(name) for name in names]
