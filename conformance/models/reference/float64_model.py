"""A model that a case names as a file: read, and made again in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.models.reference.carried_types import carry
from conformance.process.errors import stopping
from conformance.runtimes import Session, opener
from conformance.runtimes.onnxgraph.mapped import MappedModel, mapped, read_graph
from conformance.runtimes.onnxgraph.reads import all_nodes, inside
from conformance.runtimes.onnxruntime import OnnxRuntimeSession

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def load(file: Path) -> ModelProto:
    """The model with its external data; Stopped at ``declare`` where it cannot be read."""
    import onnx

    with reading(file):
        return carry(onnx.load(file))


def load_mapped(file: Path) -> MappedModel:
    """The same with its large weights left in their files; Stopped as ``load``."""
    import onnx

    with reading(file):
        # where an output is a weight, the weight gets another name
        return mapped(file).altered(carry) or MappedModel(file, carry(onnx.load(file)))


@contextlib.contextmanager
def reading(file: Path) -> Iterator[None]:
    """Raise Stopped at ``declare`` where a model, or a file beside it, cannot be read inside the block."""

    def say(error: Exception) -> str:
        lines = str(error).splitlines() or [type(error).__name__]
        return f"{file.name} cannot be read: {lines[0][:300]}"

    with stopping("declare", "case", say, "BadModel"):
        yield


def open_unoptimized(file: Path) -> AbstractContextManager[Session]:
    """Return a session of ONNX Runtime without its optimizer for a file, with the types that NumPy has."""
    bare = read_graph(file)
    before = bare.SerializeToString()
    if carry(bare).SerializeToString() == before:
        return opener("onnxruntime-unoptimized")(file, [])
    return contextlib.nullcontext(OnnxRuntimeSession(load(file), [], optimize=False))


# ---- the same in float64 -------------------------------------------------------------------------------------


def in_float64(model: ModelProto) -> ModelProto:
    """The model with float64 in place of each float type, for ONNX's evaluator, which does not insist that operators
    have such a form; weights whose values it does not have stay as they are. The model given is changed."""
    _graph_in_float64(model.graph)
    for node in all_nodes(model):
        _node_in_float64(node)
        for inner in inside(node):
            _graph_in_float64(inner)
    return model


def _graph_in_float64(graph: GraphProto) -> None:
    from onnx import TensorProto, numpy_helper

    for index, tensor in enumerate(graph.initializer):
        if tensor.data_type in _floats() and tensor.data_location != TensorProto.EXTERNAL:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            graph.initializer[index].CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in _floats():
            value.type.tensor_type.elem_type = TensorProto.DOUBLE


_NAMES_A_TYPE = {"Cast": "to", "EyeLike": "dtype", "SequenceEmpty": "dtype", "Bernoulli": "dtype"}
"""The attribute of an operator that names the type of what it makes."""


def _node_in_float64(node: NodeProto) -> None:
    from onnx import TensorProto, helper, numpy_helper

    for attribute in node.attribute:
        if attribute.HasField("t") and attribute.t.data_type in _floats():
            array = numpy_helper.to_array(attribute.t).astype(np.float64)
            attribute.t.CopyFrom(numpy_helper.from_array(array, attribute.t.name))
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            scalar = attribute.name == "value_float"
            array = np.array(attribute.f if scalar else list(attribute.floats), np.float64)
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))
        elif _NAMES_A_TYPE.get(node.op_type) == attribute.name and attribute.i in _floats():
            attribute.i = TensorProto.DOUBLE


def _floats() -> tuple[int, ...]:
    from onnx import TensorProto

    return TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
