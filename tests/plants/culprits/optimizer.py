"""ONNX Runtime's graph optimizer is wrong: the kernels are right, and with the optimizer off all is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.plants import edits
from tests.plants import sound as of
from tests.plants.edits import Edit, behind, constant, exchanged, left_out, swapped, times
from tests.plants.plant import Plant, Written
from tests.plants.planting import optimizer, refusing, running

OPTIMIZED: list[tuple[str, Written, Edit]] = [
    ("a fused product and sum forgets the bias", of.LINEAR, constant("Gemm", 2, edits.scaled(0))),
    ("a fused activation is left out", of.PERCEPTRON, left_out("Relu")),
    ("a fused activation is another", of.PERCEPTRON, exchanged("Relu", "LeakyRelu")),
    ("a weight folded with the wrong factor", of.CONV, constant("Conv", 1, edits.scaled(1.001))),
    ("one channel folded with the wrong factor", of.CONV, constant("Conv", 1, edits.first_channel(0.9))),
    ("a normalization folded without epsilon", of.BATCH_NORM, edits.attribute("BatchNormalization", epsilon=0.02)),
    ("a transposition moved past where it may be", of.TURNED, edits.attribute("Transpose", perm=[0, 1, 2])),
    ("operands exchanged as if they commuted", of.SUB, swapped("Sub")),
    ("a division made a product that is rounded", of.DIV, behind("Div", edits.rounded_to("BFLOAT16"))),
    ("a scale lost in a fused attention", of.ATTENTION, left_out("Div")),
    ("a padding merged in another mode", of.REFLECT, edits.attribute("Pad", mode="edge")),
    ("an approximation of GELU, dynamo", of.GELU, edits.attribute("Gelu", approximate="tanh")),
    ("products in 10 bits once fused", of.WIDE[256], edits.before("MatMul", edits.rounded_to("FLOAT16"), 0, 1)),
    ("a softmax that is one part in a thousand off", of.SOFTMAX, behind("Softmax", times(1.001))),
]


def _add(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    """Wrong at one size only."""
    import numpy as np

    return [output + np.float32(0.01) if len(output) == 4 else output for output in outputs]


def _raise(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    raise RuntimeError("planted: a fused kernel does not take this shape")


def plants() -> Iterator[Plant]:
    for name, case, edit in OPTIMIZED:
        yield Plant(name, "optimizer", case, optimizer(edit))
    for precision in ("int8", "fp16"):
        name = f"an activation lost in a converted model, {precision}"
        yield Plant(
            name, "optimizer", of.NET, optimizer(left_out("Relu")), precision=precision, settings={"examples": 2}
        )
    yield Plant("wrong at one size", "optimizer", of.TANH, running("Tanh", _add, optimized=True))
    yield Plant("a fused kernel raises", "optimizer", of.ERF, running("Erf", _raise, optimized=True))
    text = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : planted: no kernel for what was fused"
    none = refusing("Tanh", "NotImplemented", text, optimized=True)
    yield Plant("no kernel for what was fused", "optimizer", of.TANH, none)
