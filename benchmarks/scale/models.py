"""Large ONNX files, each made of a seed: many weights, many nodes, large inputs, many inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR = 18, 10
HEAD = 32
"""Values of a head of the decoder."""
Shape = Sequence[int | str]


class Graph:
    """A graph that grows node by node; each call returns the name of what the node computes.

    With ``data`` weights are written into that file at once, so that none of them is kept in memory.
    """

    def __init__(self, data: Path | None = None) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._rng = np.random.default_rng(59)
        self._data = data
        if data is not None:
            data.unlink(missing_ok=True)

    def input(self, name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, shape: Shape) -> None:
        self._nodes.append(helper.make_node("Identity", [self._nodes[-1].output[0]], [name], f"to_{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def weight(self, *shape: int, spread: float) -> str:
        """A weight of normally distributed values."""
        return self.constant(self._rng.standard_normal(shape, np.float32) * np.float32(spread))

    def constant(self, value: npt.NDArray[np.generic]) -> str:
        name = f"w{len(self._weights)}"
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        if self._data is not None and value.nbytes >= 1024:
            tensor = self._outside(tensor, self._data)
        self._weights.append(tensor)
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [f"{name}_y"], name, **attributes))
        return f"{name}_y"

    def dense(self, x: str, before: int, after: int) -> str:
        """``x W + b``, of a spread that neither grows nor shrinks through ReLU."""
        product = self.node("MatMul", x, self.weight(before, after, spread=math.sqrt(2 / before)))
        return self.node("Add", product, self.weight(after, spread=0.1))

    def conv(self, x: str, before: int, after: int, kernel: int, stride: int = 1, dims: int = 2) -> str:
        spread = math.sqrt(2 / (before * kernel**dims))
        weights = self.weight(after, before, *[kernel] * dims, spread=spread), self.weight(after, spread=0.1)
        pads = [kernel // 2] * dims + [(kernel - 1) // 2] * dims
        return self.node("Conv", x, *weights, kernel_shape=[kernel] * dims, strides=[stride] * dims, pads=pads)

    def save(self, file: Path) -> None:
        graph = helper.make_graph(self._nodes, "scale", self._inputs, self._outputs, self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
        file.write_bytes(model.SerializeToString())

    @staticmethod
    def _outside(tensor: onnx.TensorProto, data: Path) -> onnx.TensorProto:
        """Return the tensor without its bytes, which are appended to ``data`` at a page's begin."""
        with data.open("ab") as file:
            file.write(bytes(-file.tell() % 4096))
            place = {"location": data.name, "offset": file.tell(), "length": file.write(tensor.raw_data)}
        outside = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        outside.data_location = TensorProto.EXTERNAL
        for key, value in place.items():
            outside.external_data.add(key=key, value=str(value))
        return outside


def width_of(megabytes: int) -> int:
    return 2048 if megabytes >= 100 else 1024


def mlp(file: Path, megabytes: int, *, external: bool = False) -> None:
    """Layers of 2,048 (of small files 1,024) until the file has that size, in float32; LeakyRelu before the last."""
    width = width_of(megabytes)
    layers = max(2, round(megabytes * 1e6 / (4 * width * width)))
    graph = Graph(file.with_suffix(".data") if external else None)
    x = graph.input("x", ["batch", width])
    for _ in range(layers - 2):
        x = graph.node("Relu", graph.dense(x, width, width))
    x = graph.node("LeakyRelu", graph.dense(x, width, width), alpha=0.1)
    graph.node("Mul", graph.dense(x, width, width), graph.constant(np.array([0.5], np.float32)))
    graph.output("y", ["batch", width])
    graph.save(file)


def nodes(file: Path, count: int) -> None:
    """Small residual blocks of five nodes each."""
    graph = Graph()
    x = graph.input("x", ["batch", 16])
    share = graph.constant(np.array([0.1], np.float32))
    for _ in range(count // 5):
        x = graph.node("Add", x, graph.node("Mul", graph.node("Tanh", graph.dense(x, 16, 16)), share))
    graph.output("y", ["batch", 16])
    graph.save(file)


def image(file: Path, side: int) -> None:
    """Convolutions, a sum of two branches, pooling and a Resize, of one image of that many pixels a side."""
    graph = Graph()
    x = graph.input("x", [1, 3, side, side])
    x = graph.node("Relu", graph.conv(x, 3, 8, 3, 2))
    x = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = graph.node("Relu", graph.conv(x, 8, 32, 3, 2))
    x = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = graph.node("Relu", graph.conv(x, 32, 128, 3))
    left, right = graph.conv(x, 128, 128, 3), graph.conv(x, 128, 128, 1)
    x = graph.node("Relu", graph.node("Add", left, right))
    x = graph.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = graph.node("Relu", graph.conv(x, 128, 256, 3))
    x = graph.node("LeakyRelu", graph.conv(x, 256, 16, 3), alpha=0.1)
    scales = graph.constant(np.array([1, 1, 4, 4], np.float32))
    how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    graph.conv(graph.node("Resize", x, "", scales, **how), 16, 3, 3)
    graph.output("y", [1, 3, side // 8, side // 8])
    graph.save(file)


def audio(file: Path, samples: int) -> None:
    """Convolutions in one dimension, of that many samples."""
    graph = Graph()
    x = graph.input("x", [1, 1, samples])
    for before, after, kernel, stride in ((1, 16, 16, 8), (16, 32, 9, 4), (32, 64, 9, 4), (64, 64, 9, 1)):
        x = graph.node("Relu", graph.conv(x, before, after, kernel, stride, dims=1))
    graph.conv(x, 64, 8, 1, dims=1)
    graph.output("y", [1, 8, samples // 128])
    graph.save(file)


def inputs(file: Path, count: int) -> None:
    """So many inputs and outputs; each output is of two inputs."""
    graph = Graph()
    names = [graph.input(f"x{number}", ["batch", 8]) for number in range(count)]
    for number, name in enumerate(names):
        graph.node("Add", graph.node("Mul", name, graph.weight(8, spread=1)), names[number - 1])
        graph.output(f"y{number}", ["batch", 8])
    graph.save(file)


def decoder(file: Path, layers: int = 12, width: int = 256, words: int = 1000) -> None:
    """A language model of 16 places that norms before each block, as GPT-2 does, with heads of 32."""
    places, heads = 16, width // HEAD
    graph = Graph()
    ids = graph.input("ids", ["batch", places], TensorProto.INT64)
    x = graph.node("Gather", graph.weight(words, width, spread=1), ids)
    x = graph.node("Add", x, graph.weight(places, width, spread=1))
    mask = graph.constant(np.triu(np.full((places, places), -1e4, np.float32), 1))
    for _ in range(layers):
        x = graph.node("Add", x, _attention(graph, _norm(graph, x, width), mask, width, heads))
        wide = graph.dense(_norm(graph, x, width), width, 4 * width)
        x = graph.node("Add", x, graph.dense(_gelu(graph, wide), 4 * width, width))
    graph.dense(_norm(graph, x, width), width, words)
    graph.output("logits", ["batch", places, words])
    graph.save(file)


def _norm(graph: Graph, x: str, width: int) -> str:
    weights = graph.weight(width, spread=1), graph.weight(width, spread=0.1)
    return graph.node("LayerNormalization", x, *weights, axis=-1, epsilon=1e-5)


def _gelu(graph: Graph, x: str) -> str:
    erf = graph.node("Erf", graph.node("Mul", x, graph.constant(np.array([math.sqrt(0.5)], np.float32))))
    half = graph.node("Mul", x, graph.constant(np.array([0.5], np.float32)))
    return graph.node("Mul", half, graph.node("Add", erf, graph.constant(np.array([1], np.float32))))


def _attention(graph: Graph, x: str, mask: str, width: int, heads: int) -> str:
    split = graph.constant(np.array([0, 0, heads, width // heads], np.int64))
    whole = graph.constant(np.array([0, 0, width], np.int64))
    parts = [graph.node("Reshape", graph.dense(x, width, width), split) for _ in range(3)]
    query, key, value = (
        graph.node("Transpose", part, perm=perm)
        for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scale = graph.constant(np.array([1 / math.sqrt(width // heads)], np.float32))
    scores = graph.node("Add", graph.node("Mul", graph.node("MatMul", query, key), scale), mask)
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), value)
    merged = graph.node("Reshape", graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), whole)
    return graph.dense(merged, width, width)
