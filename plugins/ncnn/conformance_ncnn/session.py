"""ncnn on the CPU, on one thread and in float32: pnnx converts a model for the shapes of its inputs, which ncnn runs.

ncnn computes float32 alone, and gives a single value one dim. Which dims of one an output has says the ONNX model.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx.shape_inference

from conformance.process.errors import Unavailable

Shapes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Of each input its type, as in f32, and its shape."""
_LACKS = re.compile(r"^.*(?:not supported|unsupported).*$", re.MULTILINE)
"""How pnnx says that ncnn cannot compute what it writes nevertheless."""
_PLACE = re.compile(r"\b(in\d+|out\d+)\.numpy\((?:\), )?batch_index=(\d+)")
"""Where the program that pnnx writes beside a model says which dim of an input or output is the batch."""
_NONE = 233
"""The number of the dim where there is no batch."""

_SECONDS = 60
"""Time for a conversion: there are models with which pnnx never ends, and takes ever more memory."""
_OFF = ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "bf16_packed", "int8_inference",
        "int8_packed", "int8_storage", "int8_arithmetic", "vulkan_compute")  # fmt: skip
"""Options of ncnn with which it would compute otherwise than in float32."""


class ConversionFailed(RuntimeError):
    """pnnx ends without a model; the text is its last words."""


class ComputationFailed(RuntimeError):
    """ncnn gives no output of a converted model."""


class Converted(NamedTuple):
    """A model in ncnn's form: its layers as a text, its weights, and the dim of each input and output that is the
    batch."""

    layers: str
    weights: bytes
    batch: dict[str, int]


def absence() -> str | None:
    """Say why this host has no ncnn; None where it has."""
    missing = [name for name in ("ncnn", "pnnx") if importlib.util.find_spec(name) is None]
    return f"{missing[0]} is not installed (pip install ncnn pnnx)" if missing else None


def no_witness(model: Path, inputs: Mapping[str, Any]) -> str | None:
    """Say of which models what ncnn computes shows nothing: pnnx has ONNX Runtime compute what is constant."""
    graph = onnx.load(model, load_external_data=False).graph
    varies = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if varies & {*node.input}:
            varies |= {*node.output}
        elif node.op_type != "Constant":
            return f"its {node.op_type} of constants is computed by ONNX Runtime, which converts it"
    return None


class NcnnSession:
    """A model, converted for each set of shapes that it is given."""

    arithmetic: Mapping[str, object] = {"provider": "ncnn", "storage": "float32", "arithmetic": "float32"}

    def __init__(self, model: Path) -> None:
        """Read a model. Raises Unavailable for outputs of types that ncnn lacks."""
        self._model = model
        self._changed = model.stat().st_mtime_ns
        graph = onnx.load(model, load_external_data=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input if value.name not in weights]
        for value in graph.output:
            if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
                raise Unavailable(f"ncnn gives float32 alone, and the output {value.name} is of another type")

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return all outputs in the order of the model. Raises Unavailable for inputs and layers that ncnn lacks,
        ConversionFailed and ComputationFailed."""
        import ncnn

        given = {f"in{at}": np.asarray(inputs[name]) for at, name in enumerate(self._inputs)}
        for name, array in given.items():
            if array.size == 0 or array.dtype not in (np.float32, np.int32, np.int64):
                raise Unavailable(f"ncnn takes no {array.dtype}{[*array.shape]}, as {self._inputs[int(name[2:])]} is")
        shapes = tuple((f"{array.dtype.kind}{array.itemsize * 8}", array.shape) for array in given.values())
        converted = _converted(self._model, self._changed, shapes)
        _refuse(converted.layers, {name for name, array in given.items() if array.dtype.kind == "i"})
        net = ncnn.Net()
        for option in _OFF:
            setattr(net.opt, f"use_{option}", False)
        net.opt.num_threads = 1
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "weights"
            file.write_bytes(converted.weights)
            if net.load_param_mem(converted.layers) or net.load_model(str(file)):
                raise ComputationFailed("ncnn does not load what pnnx wrote")
        extractor = net.create_extractor()
        for name, array in given.items():
            batch = converted.batch.get(name, _NONE)
            if array.ndim - (batch != _NONE) > 4:
                raise Unavailable(f"ncnn takes no {array.ndim} dims, as {self._inputs[int(name[2:])]} has")
            plain = np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int32)
            extractor.input(name, ncnn.Mat(np.atleast_1d(plain), batch_index=batch).clone())
        due = _shapes(self._model, self._changed, shapes)
        return [self._output(extractor, f"out{at}", converted, shape) for at, shape in enumerate(due)]

    @staticmethod
    def _output(extractor: Any, name: str, converted: Converted, due: tuple[int, ...] | None) -> np.ndarray:
        failed, mat = extractor.extract(name)
        if failed or mat.empty():
            raise ComputationFailed(f"ncnn gives no {name}")
        array = np.array(mat.numpy(batch_index=converted.batch.get(name, _NONE)))
        same = due is not None and [n for n in due if n != 1] == [n for n in array.shape if n != 1]
        return array.reshape(due) if same and due is not None else array


def _refuse(layers: str, whole: set[str]) -> None:
    """Raise Unavailable for a layer that ncnn lacks, and for integers that it would read as floats: it takes integers
    as indices of an Embed alone."""
    import ncnn

    for line in layers.splitlines()[2:]:
        kind, _, taken, given, *blobs = line.split()
        if ncnn.layer_to_index(kind) < 0:
            raise Unavailable(f"ncnn has no layer {kind}")
        if whole & {*blobs[: int(taken)]}:
            if kind == "Split":
                whole |= {*blobs[int(taken) :][: int(given)]}
            elif kind != "Embed":
                raise Unavailable(f"ncnn's {kind} takes no integers")


@functools.lru_cache(maxsize=64)
def _shapes(model: Path, changed: int, shapes: Shapes) -> list[tuple[int, ...] | None]:
    """Return the shapes of the outputs that ONNX infers from those of the inputs; None for what it leaves open."""
    inferred = onnx.shape_inference.infer_shapes(_with_shapes(model, shapes), data_prop=True)
    found: list[tuple[int, ...] | None] = []
    for value in inferred.graph.output:
        dims = value.type.tensor_type.shape.dim
        known = value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
        found.append(tuple(dim.dim_value for dim in dims) if known else None)
    return found


def _with_shapes(model: Path, shapes: Shapes) -> onnx.ModelProto:
    """Return a model whose inputs are of these shapes, without shapes of its own for anything else."""
    made = onnx.load(model)
    weights = {tensor.name for tensor in made.graph.initializer}
    kept = [value for value in made.graph.input if value.name not in weights]
    del made.graph.input[:], made.graph.value_info[:]
    for value, (_, shape) in zip(kept, shapes, strict=True):
        kind = value.type.tensor_type.elem_type
        made.graph.input.append(onnx.helper.make_tensor_value_info(value.name, kind, shape))
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made


@functools.lru_cache(maxsize=64)
def _converted(model: Path, changed: int, shapes: Shapes) -> Converted:
    """Convert a file, whose time of change is ``changed``, for inputs of these shapes."""
    import pnnx

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(_with_shapes(model, shapes), folder / "model.onnx")
        given = ",".join(f"[{','.join(map(str, shape))}]{kind}" for kind, shape in shapes)
        command = [pnnx.EXEC_PATH, "model.onnx", "fp16=0", f"inputshape={given}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False, cwd=folder, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ConversionFailed(f"pnnx has not ended after {_SECONDS} s") from None
        lacking = _LACKS.search(done.stderr)
        if lacking is not None:
            raise Unavailable(f"pnnx: {lacking[0].strip()}")
        layers, weights, program = (folder / f"model{end}" for end in (".ncnn.param", ".ncnn.bin", "_ncnn.py"))
        if done.returncode or not program.exists():
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise ConversionFailed(f"exit {done.returncode}: {' '.join(lines[-2:])[-300:]}")
        batch = {name: int(dim) for name, dim in _PLACE.findall(program.read_text(encoding="utf-8"))}
        return Converted(layers.read_text(encoding="utf-8"), weights.read_bytes(), batch)


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str]) -> Iterator[NcnnSession]:
    """Open a model, which is converted as it is run. Raises Unavailable for custom-operator libraries and for types
    that ncnn lacks."""
    if libraries:
        raise Unavailable("ncnn loads no custom-operator libraries")
    yield NcnnSession(Path(model))
