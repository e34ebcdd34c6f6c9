"""ONNX Runtime's kernels are wrong, with its optimizer on and off alike."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.plants import edits
from tests.plants import sound as of
from tests.plants.edits import Edit, Nodes, before, behind, replaced, rounded_to, times
from tests.plants.plant import Plant, Written
from tests.plants.planting import kernel, refusing, running


def accumulated(operator: str, weight_terms: int, step: int, dtype: str) -> Edit:
    """Products summed in blocks of ``step`` terms, with the sum so far rounded to ``dtype`` after each."""

    def build(nodes: Nodes, node: Any) -> str:
        total = ""
        for start in range(0, weight_terms, step):
            cut = [nodes.constant([value], "int64") for value in (start, start + step)]
            left = nodes("Slice", node.input[0], *cut, nodes.constant([-1], "int64"))
            right = nodes("Slice", node.input[1], *cut, nodes.constant([0], "int64"))
            part = nodes("MatMul", left, right)
            total = nodes.rounded(nodes("Add", total, part) if total else part, dtype)
        return total

    return replaced(operator, build)


def _no_maximum_taken_off(nodes: Nodes, node: Any) -> str:
    powers = nodes("Exp", node.input[0])
    return nodes("Div", powers, nodes("ReduceSum", powers, nodes.constant([1], "int64"), keepdims=1))


def _half_away_from_zero(nodes: Nodes, node: Any) -> str:
    size = nodes("Floor", nodes("Add", nodes("Abs", node.input[0]), nodes.constant(0.5)))
    return nodes("Mul", nodes("Sign", node.input[0]), size)


def _last_missing(axis: int, name: str, slot: int = 0) -> Edit:
    """The last element along an axis is not read."""

    def shortened(nodes: Nodes, name: str) -> str:
        limits = [nodes.constant([value], "int64") for value in (0, -1, axis)]
        return nodes("Slice", name, *limits)

    return before(name, shortened, slot)


def _nan_becomes_zero(nodes: Nodes, name: str) -> str:
    return nodes("Where", nodes("IsNaN", name), nodes.constant(0.0), name)


def _overflowing_sigmoid(nodes: Nodes, node: Any) -> str:
    power = nodes("Exp", node.input[0])
    return nodes("Div", power, nodes("Add", power, nodes.constant(1.0)))


def _wrong_at(rows: int) -> Any:
    """One part in a hundred more where the first axis has so many."""

    def change(nodes: Nodes, name: str) -> str:
        from onnx import TensorProto

        size = nodes("Gather", nodes("Shape", name), nodes.constant(0, "int64"), axis=0)
        here = nodes("Cast", nodes("Equal", size, nodes.constant(rows, "int64")), to=TensorProto.FLOAT)
        more = nodes("Add", nodes("Mul", here, nodes.constant(0.01)), nodes.constant(1.0))
        return nodes("Mul", name, more)

    return change


def _floor_division(nodes: Nodes, node: Any) -> str:
    from onnx import TensorProto

    left, right = (nodes("Cast", name, to=TensorProto.FLOAT) for name in node.input)
    return nodes("Cast", nodes("Floor", nodes("Div", left, right)), to=TensorProto.INT64)


def _saturated_tanh(nodes: Nodes, node: Any) -> str:
    bounded = nodes("Max", nodes("Min", node.input[0], nodes.constant(2.0)), nodes.constant(-2.0))
    return nodes("Tanh", bounded)


def _not_below_zero(nodes: Nodes, name: str) -> str:
    return nodes("Max", name, nodes.constant(0, "int64"))


def _noisy(nodes: Nodes, name: str) -> str:
    noise = nodes("RandomNormalLike", name, scale=0.1)
    return nodes("Add", name, noise)


KERNELS: list[tuple[str, Written, Edit]] = [
    ("products cut to 10 bits, 64 terms", of.WIDE[64], before("MatMul", rounded_to("FLOAT16"), 0, 1)),
    ("products cut to 10 bits, 1024 terms", of.WIDE[1024], before("MatMul", rounded_to("FLOAT16"), 0, 1)),
    ("products cut to 7 bits in a convolution", of.CONV, before("Conv", rounded_to("BFLOAT16"), 0, 1)),
    ("sums in fp16, 64 terms", of.WIDE[64], accumulated("MatMul", 64, 4, "FLOAT16")),
    ("sums in fp16, 256 terms", of.WIDE[256], accumulated("MatMul", 256, 16, "FLOAT16")),
    ("sums in fp16, 1024 terms", of.WIDE[1024], accumulated("MatMul", 1024, 64, "FLOAT16")),
    ("softmax without its maximum taken off", of.SOFTMAX, replaced("Softmax", _no_maximum_taken_off)),
    ("softmax without its maximum taken off, dynamo", of.SOFTMAX_DYNAMO, replaced("Softmax", _no_maximum_taken_off)),
    ("an error function one part in ten thousand off", of.ERF, behind("Erf", times(1.0001))),
    ("an error function off, dynamo", of.ERF_DYNAMO, behind("Erf", times(1.0001))),
    ("a tangent cut off too early", of.TANH, replaced("Tanh", _saturated_tanh)),
    ("halves rounded away from zero", of.ROUND, replaced("Round", _half_away_from_zero)),
    ("a mean without the last element", of.MEAN, _last_missing(-1, "ReduceMean")),
    ("a sum without the last element", of.SUM, _last_missing(1, "ReduceSum")),
    ("a running sum without the element itself", of.CUMSUM, edits.attribute("CumSum", exclusive=1)),
    ("the last of tied elements", of.ARGMAX, edits.attribute("ArgMax", select_last_index=1)),
    ("a sigmoid that overflows", of.SIGMOID, replaced("Sigmoid", _overflowing_sigmoid)),
    ("wrong for a batch of two", of.LINEAR, behind("Gemm", _wrong_at(2))),
    ("wrong for a batch of three in a convolution", of.CONV_DYNAMO, behind("Conv", _wrong_at(3))),
    ("epsilon is not used", of.LAYER_NORM, edits.attribute("LayerNormalization", epsilon=0.01)),
    ("duplicates are not added up", of.SCATTER, edits.attribute("ScatterElements", reduction="none")),
    ("negative indices are taken for zero", of.LAST, before("Gather", _not_below_zero, 1)),
    ("integers divided downwards", of.TRUNCATED, replaced("Div", _floor_division)),
    ("integers rounded where they are cut off", of.TO_INTEGER,
     before("Cast", lambda nodes, name: nodes("Round", name))),
    ("pixels centred otherwise", of.BILINEAR,
     edits.attribute("Resize", coordinate_transformation_mode="align_corners")),
    ("samples beyond the border, where the evaluator abstains", of.GRID,
     edits.attribute("GridSample", padding_mode="border")),
    ("padding counted in a mean", of.AVG_POOL, edits.attribute("AveragePool", count_include_pad=0)),
    ("one element in a recurrent state", of.LSTM, behind("LSTM", times(1.001))),
    ("regions of interest one percent off", of.ROI_ALIGN,
     behind("RoiAlign", times(1.01))),
    ("softmax one percent off, by the rules below opset 13", of.OLD_SOFTMAX, behind("Softmax", times(1.01))),
    ("an error function off behind a node where the evaluator abstains", of.SAMPLED, behind("Erf", times(1.001))),
    ("a large value off in a product of three axes", of.MATMUL, behind("MatMul", times(1.0001))),
    ("another sign of a remainder", of.MODULO, behind("Mod", lambda nodes, name: nodes("Abs", nodes(
        "Sub", name, nodes.constant(1, "int64"))))),
    ("random at each call", of.SIN, behind("Sin", _noisy)),
]  # fmt: skip
SPECIAL: list[tuple[str, Written, Edit]] = [
    ("a minimum that forgets NaN", of.CLAMP, before("Clip", _nan_becomes_zero)),
    ("an activation that forgets NaN", of.RELU, before("Relu", _nan_becomes_zero)),
    ("a negative infinity is positive", of.ELU, before("Elu", lambda nodes, name: nodes(
        "Where", nodes("IsInf", name), nodes("Abs", name), name))),
]  # fmt: skip


def _raises_for_three(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    if len(outputs[0]) == 3:
        raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : planted: shape {3} is not supported")
    return outputs


def _crashes(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return outputs


def _hangs(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    time.sleep(1000)
    return outputs


def _other_dtype(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    return [output.astype(np.float64) for output in outputs]


def _tail_missing(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    """The last values of a buffer that is not a whole number of vectors are not written."""
    made = []
    for output in outputs:
        output = output.copy()
        rest = output.size % 8
        if rest:
            output.reshape(-1)[-rest:] = 0
        made.append(output)
    return made


def plants() -> Iterator[Plant]:
    for name, case, edit in KERNELS:
        yield Plant(name, "kernel", case, kernel(edit))
    for name, case, edit in SPECIAL:
        yield Plant(name, "kernel", case, kernel(edit), check="specials")
    yield Plant("8-bit weights read too large", "kernel", of.NET, kernel(behind("DequantizeLinear", times(1.2))),
                check="fidelity", precision="int8", settings={"examples": 2})  # fmt: skip
    for operator, case in {"Sin": of.SIN, "CumSum": of.CUMSUM, "ConvTranspose": of.TRANSPOSED}.items():
        text = f"[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for {operator}(11) node"
        yield Plant(f"{operator} is not implemented", "kernel", case, refusing(operator, "NotImplemented", text))
    yield Plant("raises at one size", "kernel", of.TANH, running("Tanh", _raises_for_three))
    yield Plant("the tail is not written", "kernel", of.EXP, running("Exp", _tail_missing))
    yield Plant("another dtype comes out", "kernel", of.LOG, running("Log", _other_dtype))
    yield Plant("ends the process", "kernel", of.SQRT, running("Sqrt", _crashes))
    yield Plant("hangs", "kernel", of.SQRT, running("Sqrt", _hangs), timeout=15.0)
