"""Files that somebody else has converted: which precision one is in, and which weights its conversion has changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import all_nodes, graphs

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_FLOAT, _FLOAT16, _FLOAT64, _BFLOAT16 = 1, 10, 11, 16
_BITS8, _FLOAT8, _FLOAT4, _BITS4, _BITS2 = {2, 3}, {17, 18, 19, 20}, {23}, {21, 22}, {25, 26}
"""Numbers of ``onnx.TensorProto.DataType``."""
_SIGNED = {3, 22, 26} | _FLOAT4 | _FLOAT8
_PACKED = {"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4"}
"""Operators that hold weights in 4 bits, or in as many as they say."""
_WHOLE = ("QLinear", "DynamicQuantize", "QAttention", "QGemm", "QMoE")
"""Beginnings of the names of operators that compute in 8 bits; others end in ``Integer``."""
_Q_DQ = {"QuantizeLinear", "DequantizeLinear"}


def precision_of(model: ModelProto) -> str | None:
    """Return the precision that a conversion has left in a model (the one of fewest bits): int2, int4,
    fp4, fp8, int8, bf16 or fp16; None where there is no trace of any. Values of large weights are not looked at and
    may be missing."""
    weights = [tensor for graph in graphs(model.graph) for tensor in graph.initializer]
    every = [*all_nodes(model)]
    named = {tensor.name: tensor for tensor in weights}
    named |= {node.output[0]: tensor for node in every for tensor in _constants(node)}
    types = {name: tensor.data_type for name, tensor in named.items()}
    quantized = {types.get(name) for node in every if node.op_type in _Q_DQ for name in node.input}
    quantized |= {attribute.i for node in every if node.op_type in _Q_DQ for attribute in node.attribute
                  if attribute.name == "output_dtype"}  # fmt: skip
    quantized |= _cast_weights(every, named)
    operators, casts = {node.op_type for node in every}, {_cast_to(node) for node in every}
    packed = [_bits(node) for node in every if node.op_type in _PACKED]
    for precision, found in (
        ("int2", bool(quantized & _BITS2) or 2 in packed),
        ("int4", bool(quantized & _BITS4) or any(bits < 8 for bits in packed)),
        ("fp4", bool(quantized & _FLOAT4)),
        ("fp8", bool(quantized & _FLOAT8)),
        ("int8", bool(quantized & _BITS8) or bool(packed) or any(map(_of_8_bits, operators))),
        ("bf16", _BFLOAT16 in {*types.values(), *casts}),
        ("fp16", _FLOAT16 in {*types.values(), *casts}),
    ):
        if found:
            return precision
    return None


def floats_of(model: ModelProto) -> str:
    """Return the precision of most of a model's floats, of its weights or, where it has none, of its inputs: fp16 or
    bf16, and fp32 for all others. A model that rounds to float16 on its way is none of float16."""
    sizes: Counter[int] = Counter()
    for graph in graphs(model.graph):
        for tensor in graph.initializer:
            sizes[tensor.data_type] += math.prod(tensor.dims)
    for value in model.graph.input if sizes.keys().isdisjoint(_UNCONVERTED) else ():
        sizes[value.type.tensor_type.elem_type] += 1
    most = max(_UNCONVERTED, key=lambda kind: (sizes[kind], kind == _FLOAT))
    return {_FLOAT16: "fp16", _BFLOAT16: "bf16"}.get(most, "fp32")


def _cast_weights(nodes: Sequence[NodeProto], tensors: Mapping[str, TensorProto]) -> set[int]:
    """Return the types with a sign of the matrices that are cast to float32 and then multiplied by scales, or freed
    of a zero point, as torchao's levels are; masks and tables have no sign, or no such product."""
    kinds = {name: one.data_type for name, one in tensors.items() if len(one.dims) > 1 and one.data_type in _SIGNED}
    floats, found = dict[str, int](), set[int]()
    for node in nodes:
        kind = kinds.get(node.input[0]) if node.input else None
        if kind is not None and node.op_type in ("Reshape", "Transpose"):
            kinds[node.output[0]] = kind
        elif kind is not None and _cast_to(node) == _FLOAT:
            floats[node.output[0]] = kind
        elif node.op_type in ("Mul", "Sub"):
            found |= {floats[name] for name in node.input if name in floats}
    return found


def _of_8_bits(operator: str) -> bool:
    return operator.startswith(_WHOLE) or operator.endswith("Integer")


def _cast_to(node: NodeProto) -> int | None:
    return next((entry.i for entry in node.attribute if node.op_type == "Cast" and entry.name == "to"), None)


def _bits(node: NodeProto) -> int:
    return next((entry.i for entry in node.attribute if entry.name == "bits"), 4)


def _constants(node: NodeProto) -> Iterator[TensorProto]:
    yield from (entry.t for entry in node.attribute if node.op_type == "Constant" and entry.name == "value")


def changed_weights(original: ModelProto, converted: ModelProto) -> list[str]:
    """Return the names of weights that both models have by one name, in one shape and one type of floats, with other
    bytes: what is not converted is not touched by a plain conversion, and may be by one that balances layers, folds
    norms or corrects biases."""
    ours = {tensor.name: tensor for graph in graphs(original.graph) for tensor in graph.initializer}
    found = []
    for graph in graphs(converted.graph):
        for tensor in graph.initializer:
            known = ours.get(tensor.name)
            if known is None or known.data_type != tensor.data_type or known.dims != tensor.dims:
                continue
            if tensor.data_type in _UNCONVERTED and _bytes(known) != _bytes(tensor):
                found.append(tensor.name)
    return found


_UNCONVERTED = {_FLOAT, _FLOAT16, _FLOAT64, _BFLOAT16}


def _bytes(tensor: TensorProto) -> bytes:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor).tobytes()
