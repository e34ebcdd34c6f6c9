"""Check that TensorRT takes an int8 model, and that it is the exported one.

Explicit Q/DQ by the rules, and the exported model quantized.

The rules, as NVIDIA documents them for explicit quantization: int8 only and symmetric (zero point 0); scales are
float, constant, positive and finite; several scales only for weights, along the axis of the output channels; a bias
stays float; an operator has both of its operands quantized or none. A quantizer has to keep two more rules:
what is quantized is dequantized by the same scale, and weights and ranges are those that it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from conformance.runtimes.onnxgraph.reads import held, inside

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto
    from onnxruntime.quantization.calibrate import TensorsData

    Constants = Mapping[str, TensorProto]

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")

HALF = 0.501
"""How far a weight may be from the exported weight, in quantization steps; float32 itself adds a little to a half."""

LEVELS = 127
"""The levels of symmetric int8 on each side of 0."""


def broken(model: ModelProto) -> list[str]:
    """Find what breaks the rules, by node; empty for a model that keeps them."""
    return list(_in_graph(model.graph, {}))


def unfaithful(exported: ModelProto, quantized: ModelProto, ranges: TensorsData | None) -> list[str]:
    """Weights that are not the exported weights rounded, and activations whose scale is not that of their range.

    ``ranges`` are ``ranges.measure``'s. Outputs may lose too little by such a mistake for a comparison to fail: where
    one in a thousand values is all wrong, 30 dB remain.
    """
    return [
        *_wrong_weights(exported.graph, quantized.graph),
        *(_wrong_ranges(quantized.graph, ranges) if ranges else ()),
    ]


def _wrong_weights(exported: GraphProto, quantized: GraphProto) -> Iterator[str]:
    from onnx import numpy_helper

    weights, before = _constants(exported), {node.name: node for node in exported.node}
    constants, makers = _constants(quantized), _makers(quantized)
    for node in quantized.node:
        names = before[node.name].input if node.name in before else []
        for name, old in zip(node.input, names, strict=False):
            maker = makers.get(name)
            if maker is None or maker.op_type != "DequantizeLinear" or old not in weights:
                continue
            if not {*maker.input[:2]} <= constants.keys():
                continue
            where = f"{node.op_type} {node.name}: "
            right, levels, scale = map(
                numpy_helper.to_array, (weights[old], constants[maker.input[0]], constants[maker.input[1]])
            )
            axis = _axis(maker, levels.ndim)
            fits = scale.size == 1 or (axis < levels.ndim and scale.shape == (levels.shape[axis],))
            if levels.shape != right.shape or not fits:
                yield f"{where}the weight {old} of {right.shape} became {levels.shape} with scales of {scale.shape}"
                continue
            step = scale.reshape([-1 if place == axis and scale.size > 1 else 1 for place in range(levels.ndim)])
            with np.errstate(invalid="ignore"):
                wrong = int((np.abs(levels * step - right) > HALF * step).sum())
            if wrong:
                what = "are more than half a step from the exported ones"
                yield f"{where}{wrong} of {right.size} values of the weight {old} {what}"


def _wrong_ranges(quantized: GraphProto, ranges: TensorsData) -> Iterator[str]:
    from onnx import numpy_helper

    constants, measured = _constants(quantized), dict(ranges.items())
    for node in quantized.node:
        data = measured.get(node.input[0]) if node.op_type == "QuantizeLinear" else None
        if data is None or node.input[1] not in constants:
            continue
        scale = float(np.max(numpy_helper.to_array(constants[node.input[1]])))
        right = max(float(np.abs(end).max()) for end in data.range_value) / LEVELS
        if right > np.finfo(np.float32).tiny and abs(scale - right) > 1e-3 * right:
            yield f"QuantizeLinear {node.name}: the scale is {scale:.4g}, the measured range asks for {right:.4g}"


def _in_graph(graph: GraphProto, outer: Constants) -> Iterator[str]:
    constants, makers = {**outer, **_constants(graph)}, _makers(graph)
    for node in graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            yield from _format(node, makers, constants)
        if node.op_type in WEIGHTED:
            yield from _operands(node, makers, constants)
        for inner in inside(node):
            yield from _in_graph(inner, constants)


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    return {initializer.name: initializer for initializer in graph.initializer} | held(graph.node)


def _makers(graph: GraphProto) -> dict[str, NodeProto]:
    return {name: node for node in graph.node for name in node.output}


def _format(node: NodeProto, makers: Mapping[str, NodeProto], constants: Constants) -> Iterator[str]:
    """Find what breaks the rules for a node of a Q/DQ pair.

    Int8, zero point 0, constant positive scales, equal in the pair.
    """
    from onnx import TensorProto, numpy_helper

    where = f"{node.op_type} {node.name}"
    scale = constants.get(node.input[1])
    if scale is None:
        yield f"{where}: the scale is not constant"
    else:
        values = numpy_helper.to_array(scale)
        if not (np.isfinite(values).all() and (values > 0).all()):
            yield f"{where}: a scale is {values.min():g}, scales are positive"
        if scale.data_type != TensorProto.FLOAT:
            kind = TensorProto.DataType.Name(scale.data_type).lower()
            yield f"{where}: the scales are {kind}, they have to be float"
        if values.ndim > 1:
            yield f"{where}: has scales for blocks, a weight has one or one for each output channel"
        if node.op_type == "QuantizeLinear" and values.size > 1 and node.input[0] not in constants:
            yield f"{where}: has several scales, but what it quantizes is no weight"
    maker = makers.get(node.input[0])
    if node.op_type == "DequantizeLinear" and maker is not None and maker.op_type == "QuantizeLinear":
        before = constants.get(maker.input[1])
        if scale is not None and before is not None:
            forth, back = numpy_helper.to_array(before), numpy_helper.to_array(scale)
            if forth.shape != back.shape or (forth != back).any():
                yield f"{where}: its scale is not that of {maker.op_type} {maker.name}, which it undoes"
    yield from _zero_point(node, where, maker, constants)


def _zero_point(node: NodeProto, where: str, maker: NodeProto | None, constants: Constants) -> Iterator[str]:
    from onnx import TensorProto, numpy_helper

    if len(node.input) > 2 and node.input[2]:
        zero = constants.get(node.input[2])
        if zero is None:
            yield f"{where}: the zero point is not constant"
            return
        kind = zero.data_type
        if numpy_helper.to_array(zero).any():
            yield f"{where}: the zero point is not 0, only symmetric quantization is taken"
    elif node.op_type == "QuantizeLinear":  # opset 21 has an attribute in place of a zero point
        kind = next((entry.i for entry in node.attribute if entry.name == "output_dtype"), TensorProto.UINT8)
    elif node.input[0] in constants:
        kind = constants[node.input[0]].data_type
    else:  # dequantizes what a QuantizeLinear makes, whose own format is looked at
        return
    if kind != TensorProto.INT8:
        yield f"{where}: is {TensorProto.DataType.Name(kind).lower()}, only int8 is taken"


def _operands(node: NodeProto, makers: Mapping[str, NodeProto], constants: Constants) -> Iterator[str]:
    """Find what breaks the rules for an operator.

    Both operands quantized or none, several scales only along the right axis of a weight, no quantized bias.
    """
    from onnx import numpy_helper

    where = f"{node.op_type} {node.name}"
    sources = [makers.get(name) for name in node.input]
    quantized = [maker if maker is not None and maker.op_type == "DequantizeLinear" else None for maker in sources]
    if sum(operand is not None for operand in quantized[:2]) == 1:
        yield f"{where}: only one of its two operands is quantized"
    if len(quantized) > 2 and quantized[2] is not None:
        yield f"{where}: the bias is quantized, it has to stay float"
    for index, operand in enumerate(quantized[:2]):
        scale = None if operand is None else constants.get(operand.input[1])
        if operand is None or scale is None or numpy_helper.to_array(scale).size <= 1:
            continue
        weight = _weight(operand, makers, constants)
        if weight is None:
            yield f"{where}: operand {index} has several scales, but is no weight"
        rank = None if weight is None else len(weight.dims)
        axis = _axis(operand, rank)
        right = None if node.op_type == "MatMul" and rank not in (None, 2) else channel_axis(node, index)
        if right is None:
            yield f"{where}: the weight has scales along axis {axis}, it can have only one"
        elif axis != right:
            yield f"{where}: the weight has scales along axis {axis}, its output channels are axis {right}"


def _weight(dequantize: NodeProto, makers: Mapping[str, NodeProto], constants: Constants) -> TensorProto | None:
    """Return the constant that is dequantized, quantized beforehand or by a node; None where it is computed."""
    source = dequantize.input[0]
    maker = makers.get(source)
    if maker is not None and maker.op_type == "QuantizeLinear":
        source = maker.input[0]
    return constants.get(source)


def _axis(node: NodeProto, rank: int | None) -> int:
    """The axis that the scales lie along; ONNX's default is 1, and an axis may count from the end."""
    axis = next((int(entry.i) for entry in node.attribute if entry.name == "axis"), 1)
    return axis + rank if axis < 0 and rank is not None else axis


def channel_axis(node: NodeProto, operand: int) -> int | None:
    """The axis of a weight that its output channels lie along; None where it can have only one scale."""
    attributes = {entry.name: entry.i for entry in node.attribute}
    if operand != 1:
        return None
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1 if attributes.get("group", 1) == 1 else None
    if node.op_type == "Gemm":
        return 0 if attributes.get("transB", 0) else 1
    return 1  # MatMul, of a matrix
