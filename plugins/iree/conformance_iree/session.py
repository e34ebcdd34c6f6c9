"""IREE 3.13 on the CPU, on one thread: a model is imported, compiled for this processor, and run as a module.

What an output's type is says the ONNX model: IREE gives no 0 dims and truth values as bytes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from conformance.process.errors import Unavailable

_IMPORT = (sys.executable, "-m", "iree.compiler.tools.import_onnx")
_FLAGS = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
          "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false")  # fmt: skip
_LACKS = re.compile(r"failed to legalize operation '([\w.]+)'(?:[^\n]*?onnx\.(\w+))?")
"""The compiler's words for having no such operator, or not with these types or attributes."""


class CompilationFailed(RuntimeError):
    """IREE's importer or compiler refuses the model; the text is its first error."""


def absence() -> str | None:
    """Say why this host has no IREE; None where it has."""
    if importlib.util.find_spec("iree") is None:
        return "IREE is not installed (pip install iree-base-compiler iree-base-runtime)"
    missing = [name for name in ("compiler", "runtime") if importlib.util.find_spec(f"iree.{name}") is None]
    return f"IREE has no {missing[0]} here (pip install iree-base-{missing[0]})" if missing else None


class IreeSession:
    """A compiled model."""

    arithmetic: Mapping[str, object] = {"provider": "IREE", "storage": "float32", "arithmetic": "float32"}

    def __init__(self, compiled: bytes, graph: onnx.GraphProto) -> None:
        """Load a compiled model; ``graph`` says names and types."""
        from iree import runtime

        weights = {tensor.name for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input if value.name not in weights]
        self._types = [value.type.tensor_type.elem_type for value in graph.output]
        config = runtime.Config("local-sync")  # one thread
        module = runtime.VmModule.copy_buffer(config.vm_instance, compiled)
        (name,) = (name for name in module.function_names if name != "__init" and "$async" not in name)
        self._program = runtime.load_vm_module(module, config)[name]

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return all outputs in the order of the model. Raises Unavailable for texts, which IREE lacks."""
        for name in self._inputs:
            if np.asarray(inputs[name]).dtype.kind not in "biufV":
                raise Unavailable(f"IREE takes no {np.asarray(inputs[name]).dtype}, as {name} is")
        given = self._program(*(inputs[name] for name in self._inputs))
        outputs: Sequence[Any] = given if isinstance(given, (list, tuple)) else [given]
        return [
            np.asarray(output).astype(onnx.helper.tensor_dtype_to_np_dtype(kind), copy=False)
            for output, kind in zip(outputs, self._types, strict=True)
        ]


@functools.lru_cache(maxsize=4)
def _compiled(model: Path, changed: int) -> bytes:
    """Compile a file, whose time of change is ``changed``."""
    from iree.compiler import _mlir_libs

    with tempfile.TemporaryDirectory() as folder:
        imported, made = Path(folder) / "model.mlir", Path(folder) / "model.vmfb"
        _called(*_IMPORT, str(model), "-o", str(imported))
        _called(str(Path(_mlir_libs.__file__).parent / "iree-compile"), str(imported), "-o", str(made), *_FLAGS)
        return made.read_bytes()


def _called(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lacking = _LACKS.search(done.stderr)
        if lacking is not None:
            raise Unavailable(f"IREE's compiler does not take this {lacking[2] or lacking[1]}")
        errors = [line for line in done.stderr.splitlines() if "rror" in line]
        raise CompilationFailed((errors or [f"exit {done.returncode}"])[0][-300:])


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[IreeSession]:
    """Compile a model and open it. Raises Unavailable for custom-operator libraries and for operators that IREE does
    not take, and CompilationFailed."""
    if libraries:
        raise Unavailable("IREE loads no custom-operator libraries")
    graph = onnx.load(model, load_external_data=False).graph
    yield IreeSession(_compiled(Path(model), Path(model).stat().st_mtime_ns), graph)
