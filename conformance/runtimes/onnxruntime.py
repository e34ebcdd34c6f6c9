"""ONNX Runtime on the CPU, with its graph optimizer on or off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.compare import Array

PROVIDER = "CPUExecutionProvider"


class OnnxRuntimeSession:
    """One thread, so that results and timings do not depend on what else the host does."""

    def __init__(self, model: Path, libraries: Sequence[str], *, optimize: bool) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # its warnings are not about this model's answers
        if not optimize:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        for library in libraries:
            options.register_custom_ops_library(library)
        self._session = onnxruntime.InferenceSession(str(model), options, providers=[PROVIDER])
        self._inputs = [one.name for one in self._session.get_inputs()]
        self.arithmetic: Mapping[str, Any] = {
            "provider": PROVIDER,
            "optimizer": optimize,
            "storage": "float32",
            "arithmetic": "float32",
        }

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        feed = {name: inputs[name] for name in self._inputs if name in inputs}
        outputs: list[Array] = self._session.run(None, feed)
        return outputs


@contextlib.contextmanager
def open_optimized(model: Path, libraries: Sequence[str]) -> Iterator[OnnxRuntimeSession]:
    yield OnnxRuntimeSession(model, libraries, optimize=True)


@contextlib.contextmanager
def open_unoptimized(model: Path, libraries: Sequence[str]) -> Iterator[OnnxRuntimeSession]:
    yield OnnxRuntimeSession(model, libraries, optimize=False)
