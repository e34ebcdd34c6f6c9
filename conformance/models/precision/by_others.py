"""Files that somebody else has converted: which precision one is in, and which weights its conversion has changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from conformance.runtimes.onnxgraph.reads import all_nodes, graphs

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_FLOAT, _BITS8, _FLOAT16, _BFLOAT16 = 1, {2, 3}, 10, 16
_FLOAT8, _FEW_BITS = {17, 18, 19, 20}, {21, 22, 23, 25, 26}
"""Numbers of ``onnx.TensorProto.DataType``; the last are uint4, int4, float4, uint2 and int2."""
_PACKED = {"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4"}
"""Operators that hold weights in 4 bits, or in as many as they say."""
_WHOLE = ("QLinear", "DynamicQuantize", "QAttention", "QGemm", "QMoE")
"""Beginnings of the names of operators that compute in 8 bits; others end in ``Integer``."""
_Q_DQ = {"QuantizeLinear", "DequantizeLinear"}


def precision_of(model: ModelProto) -> str | None:
    """Return the precision that a conversion has left in a model (the one of fewest bits): int4, fp8, int8, bf16 or
    fp16; None where there is no trace of any. Values of large weights are not looked at and may be missing."""
    weights = [tensor for graph in graphs(model.graph) for tensor in graph.initializer]
    types = {tensor.name: tensor.data_type for tensor in weights}
    every = [*all_nodes(model)]
    types |= {node.output[0]: tensor.data_type for node in every for tensor in _constants(node)}
    quantized = {types.get(name) for node in every if node.op_type in _Q_DQ for name in node.input}
    quantized |= {attribute.i for node in every if node.op_type in _Q_DQ for attribute in node.attribute
                  if attribute.name == "output_dtype"}  # fmt: skip
    operators, casts = {node.op_type for node in every}, {_cast_to(node) for node in every}
    packed = [_bits(node) for node in every if node.op_type in _PACKED]
    for precision, found in (
        ("int4", bool(quantized & _FEW_BITS) or any(bits < 8 for bits in packed)),
        ("fp8", bool(quantized & _FLOAT8)),
        ("int8", bool(quantized & _BITS8) or bool(packed) or any(map(_of_8_bits, operators))),
        ("bf16", _BFLOAT16 in {*types.values(), *casts}),
        ("fp16", _FLOAT16 in {*types.values(), *casts}),
    ):
        if found:
            return precision
    return None


def _of_8_bits(operator: str) -> bool:
    return operator.startswith(_WHOLE) or operator.endswith("Integer")


def _cast_to(node: NodeProto) -> int | None:
    return next((entry.i for entry in node.attribute if node.op_type == "Cast" and entry.name == "to"), None)


def _bits(node: NodeProto) -> int:
    return next((entry.i for entry in node.attribute if entry.name == "bits"), 4)


def _constants(node: NodeProto) -> Iterator[TensorProto]:
    yield from (entry.t for entry in node.attribute if node.op_type == "Constant" and entry.name == "value")


def changed_weights(original: ModelProto, converted: ModelProto) -> list[str]:
    """Return the names of float32 weights that both models have by one name, in one shape, with other values: what
    stays in float32 is not touched by a plain conversion, and by one that balances layers it may be."""
    ours = {tensor.name: tensor for graph in graphs(original.graph) for tensor in graph.initializer}
    found = []
    for graph in graphs(converted.graph):
        for tensor in graph.initializer:
            known = ours.get(tensor.name)
            if known is None or not known.data_type == tensor.data_type == _FLOAT or known.dims != tensor.dims:
                continue
            if not np.array_equal(_values(known), _values(tensor), equal_nan=True):
                found.append(tensor.name)
    return found


def _values(tensor: TensorProto) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor)
