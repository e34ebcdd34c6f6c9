"""A converted model as another runtime may round it: what each node computes in fp16 is off by up to half a step.

A runtime that fuses nodes leaves out roundings that the graph's meaning has (``onnxruntime.open_literal``), and the
values that come of it differ by up to half a step of fp16. So the whole graph computes in float32, and what a node
computes that was fp16 is multiplied by 1 + u 2^-11, with u from -1 to 1 by a hash of the value and of a phase. What
fp16 holds exactly stays, and so do what a node only moves or chooses and what was kept in fp32.

This is done in the converted graph and not in PyTorch, which does not know what was kept in fp32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.inferred import infer
from conformance.runtimes.onnxgraph.reads import inside
from conformance.runtimes.onnxruntime import MOVES, OnnxRuntimeSession

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

PHASE = "rounding/phase"
"""The input of such a model that chooses the values, a float32 scalar."""

EXACT = (MOVES - {"Cast"}) | {
    "Abs", "Clip", "GlobalMaxPool", "If", "Loop", "Max", "MaxPool", "Min", "Neg", "ReduceMax", "ReduceMin", "Relu",
    "Scan", "Sign",
}  # fmt: skip
"""Operators whose results are exact, or are those of nodes inside them."""

_SCALARS = {"rounding/spread": 7919.13, "rounding/half": 2.0**-11, "rounding/one": 1.0}


class _InFloat32(OnnxRuntimeSession):
    """Takes fp16 inputs as float32, which the model has in their place."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        return super().run(
            {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in inputs.items()}
        )


@contextlib.contextmanager
def open_otherwise(model: Path, libraries: Sequence[str]) -> Iterator[OnnxRuntimeSession]:
    """A session that takes ``PHASE`` besides the model's inputs, and gives float32 for fp16.

    Raises what ONNX and ONNX Runtime raise, as for an operator that has no float32 form.
    """
    import onnx
    from onnx import TensorProto, helper

    loaded = infer(onnx.load(model))
    _move(loaded.graph, {})
    loaded.graph.input.append(helper.make_tensor_value_info(PHASE, TensorProto.FLOAT, []))
    for name, value in _SCALARS.items():
        loaded.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
    yield _InFloat32(loaded, libraries, optimize=False)


def _move(graph: GraphProto, outer: Mapping[str, int]) -> None:
    """Make float32 of what is fp16 in a graph, and put nodes that move it behind what nodes compute. ``outer`` has
    the element types of the tensors around a graph that is inside of another."""
    from onnx import NodeProto, TensorProto

    values = (*graph.value_info, *graph.input, *graph.output)
    types = {**outer, **{value.name: value.type.tensor_type.elem_type for value in values}}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in values:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _in_float32(tensor)
    nodes: list[NodeProto] = []
    for node in graph.node:
        exact = node.op_type in EXACT or (node.op_type == "Cast" and not _is_float(types.get(node.input[0], 0)))
        made = NodeProto.FromString(node.SerializeToString())
        for attribute in made.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("t"):
                _in_float32(attribute.t)
        for inner in inside(made):
            _move(inner, types)
        nodes.append(made)
        for index, name in enumerate(node.output):
            if types.get(name) == TensorProto.FLOAT16 and not exact:
                made.output[index] = f"{name}/value"
                nodes += _moved(name)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]


def _is_float(kind: int) -> bool:
    """Return whether a cast from this type to fp16 rounds.

    One from a type that is not known may.
    """
    from onnx import TensorProto

    return kind in (0, TensorProto.FLOAT, TensorProto.DOUBLE)


def _in_float32(tensor: TensorProto) -> None:
    from onnx import TensorProto, numpy_helper

    if tensor.data_type == TensorProto.FLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def _moved(name: str) -> Iterator[NodeProto]:
    """From ``name/value`` to ``name``: values that fp16 holds exactly stay, as they do in every runtime."""
    from onnx import TensorProto, helper

    def node(operator: str, target: str, *sources: str, **attributes: Any) -> NodeProto:
        inputs = [source if source in _SCALARS or source == PHASE else f"{name}/{source}" for source in sources]
        output = f"{name}/{target}" if target else name
        return helper.make_node(operator, inputs, [output], f"{name}/{operator}/{target}", **attributes)

    yield node("Cast", "rounded", "value", to=TensorProto.FLOAT16)
    yield node("Identity", "made", "rounded")  # two in a row, behind which ONNX Runtime keeps a rounding
    yield node("Identity", "kept", "made")
    yield node("Cast", "nearest", "kept", to=TensorProto.FLOAT)
    yield node("Sub", "error", "value", "nearest")
    yield node("Abs", "size", "error")
    yield node("Sign", "inexact", "size")
    yield node("Mul", "spread", "value", "rounding/spread")
    yield node("Add", "angle", "spread", PHASE)
    yield node("Sin", "way", "angle")
    yield node("Mul", "part", "way", "inexact")
    yield node("Mul", "step", "part", "rounding/half")
    yield node("Add", "factor", "step", "rounding/one")
    yield node("Mul", "", "value", "factor")
