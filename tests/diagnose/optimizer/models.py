"""Small models that some pass of ONNX Runtime's optimizer rewrites; of the known ones it makes something wrong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

_TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}


def node(operator: str, inputs: str, output: str, domain: str = "", **attributes: Any) -> Any:
    """A node of the inputs that are named, apart by spaces; its name is that of its output."""
    return helper.make_node(operator, inputs.split(), output.split(), f"n_{output}", domain=domain, **attributes)


def model(
    nodes: Sequence[Any],
    shape: Sequence[int],
    constants: dict[str, Any] | None = None,
    *,
    dtype: str = "f",
    opset: int = 17,
) -> ModelProto:
    """A model from x, of that shape, to y, with constants of float32 unless they are arrays of another type."""
    kind = _TYPES[dtype]
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", kind, [None] * len(shape))
    given = {
        name: value if isinstance(value, np.ndarray) else np.asarray(value, np.float32 if dtype == "f" else np.int64)
        for name, value in (constants or {}).items()
    }
    tensors = [numpy_helper.from_array(value, name) for name, value in given.items()]
    graph = helper.make_graph(list(nodes), "small", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def integers(*shape: int) -> Any:
    return np.random.default_rng(0).integers(2, 9, shape)


# ---- known defects of ONNX Runtime 1.31 ----------------------------------------------------------------------
def layer_norm() -> ModelProto:
    """Centred values to a power that is not 2, which the fusion does not look at."""
    nodes = [
        node("ReduceMean", "x", "mean", axes=[-1]), node("Sub", "x mean", "centred"),
        node("Pow", "centred p", "power"), node("ReduceMean", "power", "variance", axes=[-1]),
        node("Add", "variance eps", "moved"),
        node("Sqrt", "moved", "deviation"), node("Div", "centred deviation", "normal"),
        node("Mul", "normal weight", "scaled"), node("Add", "scaled bias", "y"),
    ]  # fmt: skip
    return model(nodes, [3, 8], {"p": 4.0, "eps": 1e-5, "weight": np.ones(8, "f"), "bias": np.zeros(8, "f")})


def integer_division() -> ModelProto:
    """1 // x * 6 made 6 // x; an Identity between the two keeps them from fusing until it is taken away."""
    nodes = [node("Div", "one x", "part"), node("Identity", "part", "same"), node("Mul", "same six", "y")]
    return model(nodes, [6], {"one": 1, "six": 6}, dtype="i")


def twice_quantized() -> ModelProto:
    """Quantized twice, by two scales."""
    nodes = [
        node("QuantizeLinear", "x s0 z", "q0"), node("DequantizeLinear", "q0 s0 z", "d0"),
        node("QuantizeLinear", "d0 s1 z", "q1"), node("DequantizeLinear", "q1 s1 z", "d1"), node("Relu", "d1", "y"),
    ]  # fmt: skip
    return model(nodes, [4, 16], {"s0": 0.05, "s1": 0.3, "z": np.asarray(3, np.uint8)})


# ---- models for planted defects: each is rewritten by the pass that it is named for ---------------------------
PLANTED: dict[str, ModelProto] = {
    "MatMulAddFusion": model(
        [node("MatMul", "x w", "p"), node("Add", "p b", "y")], [3, 4], {"w": normal(4, 5), "b": normal(5)}
    ),
    "ConstantFolding": model([node("Neg", "k", "n"), node("Add", "x n", "y")], [3, 4], {"k": normal(4)}),
    "CommonSubexpressionElimination": model(
        [node("Sin", "x", "a"), node("Sin", "x", "b"), node("Mul", "a b", "y")], [3, 4]
    ),
    "QuickGeluFusion": model(
        [node("Abs", "x", "h"), node("Mul", "h k", "s"), node("Sigmoid", "s", "g"), node("Mul", "h g", "y")], [3, 4],
        {"k": 1.702},
    ),
}  # fmt: skip
