"""MNN 3.6 on the CPU, on one thread: a model is converted into a file of MNN's own, and run as a module.

MNN computes integers in 32 bits and has neither float64 nor texts; what an output's type is says the ONNX model.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from conformance.process.errors import Unavailable

FLOATS, INTEGERS, BOOLEANS = ("float32",), ("int32", "int64", "uint8", "int8"), ("bool",)
"""Types of inputs that are handed over: floats as they are, the rest as int32."""


_CONVERT = "import sys, _tools; _tools.mnnconvert(sys.argv)"
"""The work of ``MNN.tools.mnnconvert`` without its log, which installs a package by pip to send what it did."""


class ConversionFailed(RuntimeError):
    """MNN's converter refuses the model; the text is its last words."""


def absence() -> str | None:
    """Say why this host has no MNN; None where it has."""
    return None if importlib.util.find_spec("MNN") else "MNN is not installed (pip install MNN)"


def no_witness(model: Path, inputs: Mapping[str, Any]) -> str | None:
    """Say of which inputs what MNN computes shows nothing."""
    for array in inputs.values():
        dtype = str(getattr(array, "dtype", "no array"))
        if dtype not in (*FLOATS, *BOOLEANS):
            return f"it computes {dtype} in 32 bits"
    return None


class MnnSession:
    """A converted model."""

    arithmetic: Mapping[str, object] = {"provider": "MNN", "storage": "float32", "arithmetic": "float32"}

    def __init__(self, file: Path, graph: onnx.GraphProto) -> None:
        """Open the file of a converted model; ``graph`` says names and types."""
        from MNN import expr, nn

        weights = {tensor.name for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input if value.name not in weights]
        self._outputs = {value.name: value.type.tensor_type.elem_type for value in graph.output}
        self._expr = expr
        self._runtime = nn.create_runtime_manager(({"backend": 0, "numThread": 1, "precision": "high"},))
        self._module = nn.load_module_from_file(
            str(file), self._inputs, [*self._outputs], runtime_manager=self._runtime
        )

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return all outputs in the order of the model. Raises Unavailable for types that MNN lacks."""
        given = [self._handed_over(name, inputs[name]) for name in self._inputs]
        outputs = self._module.forward(given)
        if len(outputs) != len(self._outputs):  # so it says that it cannot compute these inputs
            raise RuntimeError(f"MNN gives {len(outputs)} of {len(self._outputs)} outputs, and says no more")
        return [
            np.asarray(self._expr.convert(output, self._expr.NCHW).read()).astype(
                onnx.helper.tensor_dtype_to_np_dtype(kind)
            )
            for output, kind in zip(outputs, self._outputs.values(), strict=True)
        ]

    def _handed_over(self, name: str, array: np.ndarray) -> Any:
        dtype = str(array.dtype)
        if dtype in FLOATS:
            return self._expr.const(array, [*array.shape], self._expr.NCHW)
        if dtype in (*INTEGERS, *BOOLEANS):
            whole = array.astype(np.int32)
            return self._expr.const(whole, [*array.shape], self._expr.NCHW, self._expr.int)
        raise Unavailable(f"MNN takes no {dtype}, as {name} is")


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[MnnSession]:
    """Convert a model and open it. Raises Unavailable for custom-operator libraries and for operators that MNN lacks,
    and ConversionFailed."""
    if libraries:
        raise Unavailable("MNN loads no custom-operator libraries")
    graph = onnx.load(model, load_external_data=False).graph
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.mnn"
        command = [sys.executable, "-c", _CONVERT, "-f", "ONNX", "--modelFile", str(model),
                   "--MNNModel", str(file), "--bizCode", "conformance"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if not file.exists() or "Converted Success" not in done.stdout:
            lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            said = f"MNN's converter: {' '.join(lines[-2:])[:300] or f'exit {done.returncode}'}"
            raise (Unavailable if "Op Not Support" in said else ConversionFailed)(said)
        yield MnnSession(file, graph)
