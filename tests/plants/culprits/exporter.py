"""Exported models with a defect, as wrong symbolics and exporters make them, and wrong symbolics of a case's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.plants import edits
from tests.plants import sound as of
from tests.plants.edits import Edit, Nodes, behind, constant, exchanged, left_out, replaced, swapped
from tests.plants.plant import Plant, Written
from tests.plants.planting import exported, exporting, exporting_raises


def plants() -> Iterator[Plant]:
    for name, case, edit in GRAPHS:
        yield Plant(name, "exporter", case, exported(edit))
    for name, case, edit, check in CHECKED:
        yield Plant(name, "exporter", case, exported(edit), check=check)
    for name, body, wrong, right in SYMBOLICS:
        yield Plant(name, "exporter", _with(body, wrong), sound=_with(body, right), own_code=True)
    for name, planting in EXPORTING.items():
        yield Plant(name, "exporter", of.LINEAR, planting, check="export")


def _with(body: Written, symbolic: str) -> Written:
    return Written(body.body, f"{body.python}\n\ndef symbolic(g, x, *rest):\n    return {symbolic}\n")


def _own(operator: str, forward: str, inputs: str = of.X) -> Written:
    entry = '{function: beside.symbolic, without: "another graph"}'
    symbolics = f'{{torchscript: {{opsets: [17], symbolics: {{"{operator}": {entry}}}}}}}'
    return of.case(forward, inputs, of.BATCH, export=symbolics)


def _no_epsilon(nodes: Nodes, node: Any) -> str:
    return nodes("Identity", node.input[0])


def _larger_updates(nodes: Nodes, node: Any) -> list[str]:
    """Updates with a column more than there are indices."""
    more = nodes("Concat", node.input[2], nodes("Slice", node.input[2], *_range(nodes, 0, 1)), axis=1)
    return nodes.again(node, None, None, more)


def _range(nodes: Nodes, start: int, end: int) -> list[str]:
    return [nodes.constant([value], "int64") for value in (start, end, 1)]


def _scalar_axis_lost(nodes: Nodes, node: Any) -> list[str]:
    """CumSum of a scalar: the input loses all of its axes."""
    flat = nodes("Reshape", node.input[0], nodes.constant([-1], "int64"))
    scalar = nodes("Gather", flat, nodes.constant(0, "int64"), axis=0)
    return nodes.again(node, scalar)


def _other_rank(nodes: Nodes, node: Any) -> list[str]:
    return nodes.again(node, nodes("Unsqueeze", node.input[0], nodes.constant([0], "int64")))


def _by_zero(values: Any) -> Any:
    return np.zeros_like(values)


def _narrow(nodes: Nodes, name: str) -> str:
    from onnx import TensorProto

    return nodes("Cast", nodes("Cast", name, to=TensorProto.FLOAT16), to=TensorProto.FLOAT)


def _as_float64(nodes: Nodes, name: str) -> str:
    from onnx import TensorProto

    return nodes("Cast", name, to=TensorProto.DOUBLE)


def _output_as_float64(model: Any) -> int:
    from onnx import TensorProto

    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    return edits.of_output(_as_float64)(model)


def _twice_the_output(model: Any) -> int:
    output = type(model.graph.output[0]).FromString(model.graph.output[0].SerializeToString())
    output.name = "planted/more"
    name = model.graph.output[0].name
    model.graph.node.add(op_type="Identity", input=[name], output=["planted/more"])
    model.graph.output.append(output)
    return 1


def _dead_input(model: Any) -> int:
    model.graph.node[-1].input[0] = "planted/nothing"
    return 1


def _old_softmax(nodes: Nodes, node: Any) -> str:
    """What Softmax meant before opset 13: over all axes from its own on."""
    flat = nodes("Reshape", node.input[0], nodes.constant([0, -1], "int64"))
    return nodes("Reshape", nodes("Softmax", flat, axis=1), nodes("Shape", node.input[0]))


GRAPHS: list[tuple[str, Written, Edit]] = [
    ("sine is cosine", of.SIN, exchanged("Sin", "Cos")),
    ("operands of a difference swapped", of.SUB, swapped("Sub")),
    ("alpha left out", of.LEAKY, edits.attribute("LeakyRelu", alpha=None)),
    ("alpha left out, dynamo", of.LEAKY_DYNAMO, edits.attribute("LeakyRelu", alpha=None)),
    ("softmax over the last axis", of.SOFTMAX, edits.attribute("Softmax", axis=-1)),
    ("softmax as before opset 13", of.SOFTMAX, replaced("Softmax", _old_softmax)),
    ("softmax over the last axis, dynamo", of.SOFTMAX_DYNAMO, edits.attribute("Softmax", axis=2)),
    ("a weight one percent off", of.LINEAR, constant("Gemm", 1, edits.scaled(1.01))),
    ("one row of the weights off", of.LINEAR_DYNAMO, constant("Gemm", 1, edits.first_channel(1.1))),
    ("weights turned over", of.CONV, constant("Conv", 1, lambda values: values.transpose(0, 1, 3, 2))),
    ("weights with their axes exchanged", of.CONV, constant("Conv", 1, lambda values: values.transpose(1, 0, 2, 3))),
    ("bias left out", of.PERCEPTRON, constant("Gemm", 2, edits.scaled(0))),
    ("activation left out", of.PERCEPTRON, left_out("Relu")),
    ("padding on one side only, dynamo", of.CONV_DYNAMO, edits.attribute("Conv", pads=[2, 2, 0, 0])),
    ("groups in another order", of.STRIDED, constant("Conv", 1, lambda values: values[::-1].copy())),
    ("output padding and strides off", of.TRANSPOSED, edits.attribute("ConvTranspose", pads=[0, 0, 2, 2])),
    ("the small number under a fraction left out", of.NORMALIZED, replaced("Add", _no_epsilon)),
    ("epsilon too large", of.BATCH_NORM, edits.attribute("BatchNormalization", epsilon=0.1)),
    ("mean and variance swapped", of.BATCH_NORM, swapped("BatchNormalization", 3, 4)),
    ("mean over another axis", of.MEAN, replaced("ReduceMean", lambda nodes, node: nodes(
        "ReduceMean", nodes("Slice", node.input[0], nodes.constant([0], "int64"), nodes.constant([2], "int64"),
                            nodes.constant([2], "int64")), axes=[-1], keepdims=0))),
    ("a sum of absolute values", of.SUM, behind("ReduceSum", lambda nodes, name: nodes("Abs", name))),
    ("a running sum from the other end", of.CUMSUM, edits.attribute("CumSum", reverse=1)),
    ("the smallest instead of the largest", of.TOPK, edits.attribute("TopK", largest=0)),
    ("argmin", of.ARGMAX, exchanged("ArgMax", "ArgMin", axis=1, keepdims=0)),
    ("duplicates are written over", of.SCATTER, edits.attribute("ScatterElements", reduction="none")),
    ("updates larger than their indices", of.SCATTER, replaced("ScatterElements", _larger_updates)),
    ("a running sum of a scalar", of.CUMSUM, replaced("CumSum", _scalar_axis_lost)),
    ("ranks that cannot be joined", of.CAT, replaced("Concat", _other_rank)),
    ("modulo by zero", of.MODULO, constant("Mod", 1, _by_zero)),
    ("padding in another mode", of.REFLECT, edits.attribute("Pad", mode="edge")),
    ("pixels centred otherwise", of.BILINEAR, edits.attribute("Resize", coordinate_transformation_mode="asymmetric")),
    ("another pixel is the nearest", of.NEAREST, edits.attribute("Resize", nearest_mode="ceil")),
    ("padding is not counted", of.AVG_POOL, edits.attribute("AveragePool", count_include_pad=0)),
    ("limits swapped", of.CLAMP, swapped("Clip", 1, 2)),
    ("a cast through float16", of.DIV, behind("Div", _narrow)),
    ("rounded where it is cut off", of.TO_INTEGER, edits.before("Cast", lambda nodes, name: nodes("Round", name))),
    ("the output is float64", of.SIN, _output_as_float64),
    ("the wrong branch", of.WHERE, swapped("Where", 1, 2)),
    ("joined in the wrong order", of.CAT, swapped("Concat")),
    ("a slice off by one", of.SLICE, constant("Slice", 1, lambda values: values - 1)),
    ("nothing is turned", of.TURNED, edits.attribute("Transpose", perm=[0, 1, 2])),
    ("a size baked in", of.RESHAPED, replaced("Reshape", lambda nodes, node: nodes(
        "Reshape", node.input[0], nodes.constant([2, 2, 6], "int64")))),
    ("scores that are not scaled", of.ATTENTION, left_out("Div")),
    ("gates in another order", of.LSTM, constant("LSTM", 1, lambda values: np.roll(values, 3, axis=1))),
    ("samples clamped to the border, where the evaluator abstains", of.GRID,
     edits.attribute("GridSample", padding_mode="border")),
    ("softmax over another axis, by the rules below opset 13", of.OLD_SOFTMAX, edits.attribute("Softmax", axis=1)),
    ("a tangent behind a node where the evaluator abstains", of.SAMPLED, exchanged("Erf", "Tanh")),
    ("an index off by one", of.EMBEDDING, constant("Gather", 0, lambda values: np.roll(values, 1, axis=0))),
    ("a slope for another channel", of.PRELU, constant("PRelu", 1, lambda values: values * 2)),
    ("the approximation of GELU", of.GELU, edits.attribute("Gelu", approximate="tanh")),
    ("one output too many", of.SIN, _twice_the_output),
]  # fmt: skip
CHECKED: list[tuple[str, Written, Edit, str]] = [
    ("not a number for infinity", of.SIGMOID, behind("Sigmoid", lambda nodes, name: nodes(
        "Where", nodes("Equal", name, nodes.constant(1.0)), nodes.constant(np.nan), name)), "specials"),
    ("a node reads what nobody makes", of.SIN, _dead_input, "export"),
    ("an attribute that does not exist", of.SIN, edits.attribute("Sin", planted=1), "export"),
    ("an operator of a later opset", of.SIN, exchanged("Sin", "Gelu"), "export"),
]  # fmt: skip


def _changes_weights(reference: Any) -> None:
    import torch

    with torch.no_grad():
        reference.module.layer.weight += 1


EXPORTING = {"exporting changes the weights": exporting(_changes_weights), "exporting raises": exporting_raises}

SYMBOLICS = [
    ("own symbolic: attribute left out", _own("aten::leaky_relu", "F.leaky_relu(x, 0.2)"),
     "g.op('LeakyRelu', x)", "g.op('LeakyRelu', x, alpha_f=0.2)"),
    ("own symbolic: operands swapped", _own("aten::sub", "x - y", f"{of.X}, {of.Y}"),
     "g.op('Sub', rest[0], x)", "g.op('Sub', x, rest[0])"),
    ("own symbolic: another axis", _own("aten::softmax", "torch.softmax(x, 1)"),
     "g.op('Softmax', x, axis_i=2)", "g.op('Softmax', x, axis_i=1)"),
    ("own symbolic: a node that the opset does not have", _own("aten::asinh", "torch.asinh(x)"),
     "g.op('Swish', x)", "g.op('Asinh', x)"),
    ("own symbolic: raises", _own("aten::asinh", "torch.asinh(x)"), "g.op('Asinh', x).nothing", "g.op('Asinh', x)"),
]  # fmt: skip
