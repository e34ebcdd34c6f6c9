"""Whether an int8 model is one that TensorRT takes: explicit Q/DQ by its rules, which ONNX Runtime fuses too.

The rules, as NVIDIA documents them for explicit quantization: int8 only and symmetric (zero point 0); scales are
constant, positive and finite; several scales only for weights, along the axis of the output channels; a bias stays
float; an operator has both of its operands quantized or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def broken(model: ModelProto) -> list[str]:
    """What breaks the rules, by node; empty for a model that keeps them."""
    return list(_in_graph(model.graph, {}))


def _in_graph(graph: GraphProto, outer: Mapping[str, Any]) -> Iterator[str]:
    constants = {**outer, **{one.name: one for one in graph.initializer}}
    makers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    for node in graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            yield from _format(node, constants)
        if node.op_type in WEIGHTED:
            yield from _operands(node, makers, constants)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _in_graph(inner, constants)


def _format(node: NodeProto, constants: Mapping[str, Any]) -> Iterator[str]:
    """int8, zero point 0, constant positive scales."""
    from onnx import TensorProto, numpy_helper

    where = f"{node.op_type} {node.name}"
    scale = constants.get(node.input[1])
    if scale is None:
        yield f"{where}: the scale is not constant"
    else:
        values = numpy_helper.to_array(scale)
        if not (np.isfinite(values).all() and (values > 0).all()):
            yield f"{where}: a scale is {values.min():g}, scales are positive"
    zero = constants.get(node.input[2]) if len(node.input) > 2 else None
    if zero is None:
        yield f"{where}: has no zero point, which makes it uint8"
        return
    if zero.data_type != TensorProto.INT8:
        yield f"{where}: is {TensorProto.DataType.Name(zero.data_type).lower()}, only int8 is taken"
    if numpy_helper.to_array(zero).any():
        yield f"{where}: the zero point is not 0, only symmetric quantization is taken"


def _operands(node: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Any]) -> Iterator[str]:
    """Both operands or none; several scales along the right axis of a weight; no quantized bias."""
    from onnx import numpy_helper

    where = f"{node.op_type} {node.name}"
    sources = [makers.get(name) for name in node.input]
    quantized = [one if one is not None and one.op_type == "DequantizeLinear" else None for one in sources]
    if sum(one is not None for one in quantized[:2]) == 1:
        yield f"{where}: only one of its two operands is quantized"
    if len(quantized) > 2 and quantized[2] is not None:
        yield f"{where}: the bias is quantized, it has to stay float"
    for index, one in enumerate(quantized[:2]):
        scale = None if one is None else constants.get(one.input[1])
        if one is None or scale is None or numpy_helper.to_array(scale).size <= 1:
            continue
        if not _is_constant(one, makers, constants):
            yield f"{where}: operand {index} has several scales, but is no weight"
        axis = next((attribute.i for attribute in one.attribute if attribute.name == "axis"), 1)
        weight = constants.get(one.input[0])
        stacked = node.op_type == "MatMul" and weight is not None and len(weight.dims) != 2
        right = None if stacked else channel_axis(node, index)
        if right is None:
            yield f"{where}: the weight has scales along axis {axis}, it can have only one"
        elif axis != right:
            yield f"{where}: the weight has scales along axis {axis}, its output channels are axis {right}"


def _is_constant(dequantize: NodeProto, makers: Mapping[str, NodeProto], constants: Mapping[str, Any]) -> bool:
    source = dequantize.input[0]
    maker = makers.get(source)
    quantized_here = maker is not None and maker.op_type == "QuantizeLinear" and maker.input[0] in constants
    return source in constants or quantized_here


def channel_axis(node: NodeProto, operand: int) -> int | None:
    """The axis of a weight that its output channels lie along; None where it can have only one scale."""
    attributes = {one.name: one.i for one in node.attribute}
    if operand != 1:
        return None
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1 if attributes.get("group", 1) == 1 else None
    if node.op_type == "Gemm":
        return 0 if attributes.get("transB", 0) else 1
    return 1  # MatMul, of a matrix
