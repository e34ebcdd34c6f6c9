"""LiteRT on the CPU, on one thread: onnx2tf converts a model for the shapes of its inputs, which LiteRT runs.

onnx2tf needs packages of versions of its own, and so it may stand in another environment. It gives an output of four
dims in the order NHWC; here it is given outputs of one dim, whose shapes are those that ONNX infers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.shape_inference

from conformance.process.errors import Unavailable

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Output: TypeAlias = tuple[str, tuple[int, ...] | None, np.dtype[Any]]
"""The name of an output in a converted model, its shape, None where nothing infers it, and its dtype in ONNX."""
CONVERTER = "CONFORMANCE_ONNX2TF"
"""The variable that names a Python that has onnx2tf, where this one has not."""
_SECONDS = 120
"""Time for a conversion."""
_LACKS = ("not supported", "unsupported", "notimplementederror", "unresolved custom op")
"""Words by which onnx2tf and LiteRT say that they have no form of an operator."""


class NotComputed(RuntimeError):
    """onnx2tf ends without a model, or LiteRT without outputs; the text is the last words."""


def absence() -> str | None:
    """Say why this host cannot run LiteRT; None where it can."""
    if importlib.util.find_spec("ai_edge_litert") is None:
        return "LiteRT is not installed (pip install ai-edge-litert)"
    if CONVERTER in os.environ or importlib.util.find_spec("onnx2tf"):
        return None
    return f"onnx2tf is not installed; {CONVERTER} names a Python that has it"


def no_witness(model: Path, inputs: Mapping[str, Any]) -> str | None:
    """Say of which models what LiteRT computes shows nothing: onnx2tf has ONNX Runtime compute what is constant, and
    products of int64 are computed in 32 bits."""
    if any(str(getattr(array, "dtype", "")) == "int64" for array in inputs.values()):
        return "it may compute int64 in 32 bits"
    graph = onnx.load(model, load_external_data=False).graph
    varies = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if varies & {*node.input}:
            varies |= {*node.output}
        elif node.op_type != "Constant":
            return f"its {node.op_type} of constants is computed by ONNX Runtime, which onnx2tf asks"
    return None


class Converter:
    """A process that converts for one session, as onnx2tf needs a second to be imported."""

    def __init__(self) -> None:
        self._alone = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def convert(self, folder: Path, names: Sequence[str]) -> bytes:
        """Convert the model of a folder. Raises NotComputed, and Unavailable for operators without a form."""
        with self._alone:
            if self._process is None or self._process.poll() is not None:
                command = [os.environ.get(CONVERTER, sys.executable), str(Path(__file__).with_name("convert.py"))]
                plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
                pipes: dict[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
                self._process = subprocess.Popen(command, text=True, env=plain, stderr=subprocess.DEVNULL, **pipes)
            given, answers = self._process.stdin, self._process.stdout
            assert given is not None and answers is not None
            with contextlib.suppress(BrokenPipeError):
                given.write(f"{json.dumps([str(folder), [*names], _SECONDS])}\n")
                given.flush()
            answer = answers.readline().strip() or f"exit {self._process.wait()}"
        file, log = folder / "out" / "model_float32.tflite", folder / "log"
        if answer == "0" and file.exists():
            return file.read_bytes()
        if not log.exists():
            raise Unavailable(f"onnx2tf does not start ({answer}); {CONVERTER} names a Python that has it")
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = next((line.strip()[:300] for line in reversed(lines) if line.strip()), answer)
        raise _failure(f"onnx2tf: {said}")

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()


def _failure(said: str) -> Exception:
    return (Unavailable if any(word in said.lower() for word in _LACKS) else NotComputed)(said)


class LitertSession:
    """A model, converted for each set of shapes that it is given."""

    arithmetic: Mapping[str, object] = {"provider": "LiteRT", "storage": "float32", "arithmetic": "float32"}

    def __init__(self, model: Path, converter: Converter) -> None:
        self._model, self._converter = model, converter
        self._inputs = [value.name for value in _given(onnx.load(model, load_external_data=False))]
        self._kept: dict[Shapes, tuple[bytes, list[Output]]] = {}

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return all outputs in the order of the model. Raises Unavailable, NotComputed and what LiteRT does."""
        from ai_edge_litert.interpreter import Interpreter

        if empty := [name for name in self._inputs if not np.size(inputs[name])]:
            raise Unavailable(f"onnx2tf takes no empty array, as {empty[0]} is")
        shapes = tuple(np.shape(inputs[name]) for name in self._inputs)
        if shapes not in self._kept:
            self._kept[shapes] = _converted(self._model, shapes, self._converter)
        data, due = self._kept[shapes]
        try:
            interpreter = Interpreter(model_content=data, num_threads=1)
            interpreter.allocate_tensors()
            # without dims it takes an array of one
            given = {name: np.atleast_1d(inputs[name]) for name in self._inputs}
            outputs = interpreter.get_signature_runner()(**given)
        except RuntimeError as error:
            raise _failure(f"LiteRT: {error}") from None
        return [_given_back(outputs[name], *more) for name, *more in due]


def _given_back(array: np.ndarray, shape: tuple[int, ...] | None, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an output in its shape, and integers in ONNX's dtype, of which onnx2tf makes int32."""
    array = array if shape is None else array.reshape(shape)
    return np.array(array, dtype if array.dtype.kind == dtype.kind == "i" else array.dtype)


def _given(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def _converted(model: Path, shapes: Shapes, converter: Converter) -> tuple[bytes, list[Output]]:
    """Convert a model for inputs of these shapes, with outputs of one dim."""
    made = onnx.load(model)
    kept = _given(made)
    del made.graph.input[:], made.graph.value_info[:]
    for value, shape in zip(kept, shapes, strict=True):
        kind = value.type.tensor_type.elem_type
        made.graph.input.append(onnx.helper.make_tensor_value_info(value.name, kind, shape))
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(made, data_prop=True).graph.output
    outputs = [_flattened(made.graph, *each) for each in zip(made.graph.output, inferred, strict=True)]
    with tempfile.TemporaryDirectory() as name:
        onnx.save(made, Path(name) / "model.onnx")
        return converter.convert(Path(name), [value.name for value in kept]), outputs


def _flattened(graph: onnx.GraphProto, value: onnx.ValueInfoProto, inferred: onnx.ValueInfoProto) -> Output:
    kind, dims = inferred.type.tensor_type, inferred.type.tensor_type.shape.dim
    if not kind.elem_type:
        raise Unavailable(f"LiteRT gives tensors, and {value.name} is none")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        if len(dims) > 2:
            raise Unavailable(f"onnx2tf may give {value.name} in another order, and nothing infers its shape")
        return value.name, None, dtype
    shape = tuple(dim.dim_value for dim in dims)
    flat, size = f"{value.name}_flat", [int(np.prod(shape))]
    graph.initializer.append(onnx.helper.make_tensor(f"{flat}_size", onnx.TensorProto.INT64, [1], size))
    graph.node.append(onnx.helper.make_node("Reshape", [value.name, f"{flat}_size"], [flat]))
    value.CopyFrom(onnx.helper.make_tensor_value_info(flat, kind.elem_type, size))
    return flat, shape, dtype


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[LitertSession]:
    """Read a model. Raises Unavailable for custom-operator libraries."""
    if libraries:
        raise Unavailable("LiteRT loads no custom-operator libraries of ONNX Runtime")
    with contextlib.closing(Converter()) as converter:
        yield LitertSession(model, converter)
