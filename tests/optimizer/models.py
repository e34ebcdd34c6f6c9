"""Small models that some pass of ONNX Runtime's optimizer rewrites; of the known ones it makes something wrong."""

from __future__ import annotations

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
    rank: int | None = None,
) -> ModelProto:
    """A model from x, of that shape, to y, with constants of float32 unless they are arrays of another type."""
    kind = _TYPES[dtype]
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", kind, [None] * (len(shape) if rank is None else rank))
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


def layer_norm(power: float = 4.0) -> ModelProto:
    """Centred values to a power that is not 2, which the fusion does not look at."""
    nodes = [
        node("ReduceMean", "x", "mean", axes=[-1]), node("Sub", "x mean", "centred"),
        node("Pow", "centred p", "power"), node("ReduceMean", "power", "variance", axes=[-1]),
        node("Add", "variance eps", "moved"),
        node("Sqrt", "moved", "deviation"), node("Div", "centred deviation", "normal"),
        node("Mul", "normal weight", "scaled"), node("Add", "scaled bias", "y"),
    ]  # fmt: skip
    return model(nodes, [3, 8], {"p": power, "eps": 1e-5, "weight": np.ones(8, "f"), "bias": np.zeros(8, "f")})


def rms_norm(power: float = 4.0) -> ModelProto:
    nodes = [
        node("Pow", "x p", "power"), node("ReduceMean", "power", "mean", axes=[-1]), node("Add", "mean eps", "moved"),
        node("Sqrt", "moved", "root"), node("Div", "x root", "normal"), node("Mul", "normal weight", "y"),
    ]  # fmt: skip
    return model(nodes, [3, 8], {"p": power, "eps": 1e-5, "weight": np.ones(8, "f")})


def integer_division(between: str | None = "Identity") -> ModelProto:
    """1 // x * 6 made 6 // x; what stands between the two keeps them from fusing until it is taken away."""
    middle = {"Identity": [node("Identity", "part", "same")], "Dropout": [node("Dropout", "part", "same")],
              "Cast": [node("Cast", "part", "same", to=TensorProto.INT64)], None: []}[between]  # fmt: skip
    last = "same" if middle else "part"
    return model([node("Div", "one x", "part"), *middle, node("Mul", f"{last} six", "y")], [6], {"one": 1, "six": 6},
                 dtype="i")  # fmt: skip


def padded_pool(operator: str = "MaxPool", value: float = 0.0, **attributes: Any) -> ModelProto:
    """Zeros put around values that are all below zero are the largest of a window; a pool's own padding never is."""
    pads = np.asarray([0, 0, 1, 1, 0, 0, 1, 1])
    nodes = [node("Pad", "x pads v", "padded"), node(operator, "padded", "y", kernel_shape=[3, 3], **attributes)]
    return model(nodes, [1, 2, 5, 5], {"pads": pads, "v": value})


def gelu(root: float = 1.5) -> ModelProto:
    nodes = [node("Div", "x root", "part"), node("Erf", "part", "erf"), node("Add", "erf one", "sum"),
             node("Mul", "x sum", "product"), node("Mul", "product half", "y")]  # fmt: skip
    return model(nodes, [3, 8], {"root": root, "one": 1.0, "half": 0.5})


def scaled_product(scale: Any) -> ModelProto:
    nodes = [node("Mul", "x scale", "scaled"), node("MatMul", "scaled w", "y")]
    return model(nodes, [3, 4], {"scale": scale, "w": normal(4, 5)})


def twice_quantized(second: float = 0.3) -> ModelProto:
    """Quantized twice, by two scales."""
    nodes = [
        node("QuantizeLinear", "x s0 z", "q0"), node("DequantizeLinear", "q0 s0 z", "d0"),
        node("QuantizeLinear", "d0 s1 z", "q1"), node("DequantizeLinear", "q1 s1 z", "d1"), node("Relu", "d1", "y"),
    ]  # fmt: skip
    return model(nodes, [4, 16], {"s0": 0.05, "s1": second, "z": np.asarray(3, np.uint8)})


# ---- models for planted defects: each is rewritten by the pass that it is named for ---------------------------


def _matmul_add() -> ModelProto:
    return model([node("MatMul", "x w", "p"), node("Add", "p b", "y")], [3, 4], {"w": normal(4, 5), "b": normal(5)})


def _conv(*after: Any, **constants: Any) -> ModelProto:
    conv = node("Conv", "x w", "c", kernel_shape=[3, 3])
    return model([conv, *after], [1, 3, 6, 6], {"w": normal(4, 3, 3, 3), **constants})


def _gelu(*before: Any, **constants: Any) -> ModelProto:
    nodes = [node("Div", "h root", "part"), node("Erf", "part", "erf"), node("Add", "erf one", "sum"),
             node("Mul", "h sum", "product"), node("Mul", "product half", "y")]  # fmt: skip
    return model([*before, *nodes], [3, 8], {"root": 2.0**0.5, "one": 1.0, "half": 0.5, **constants})


_FOUR = normal(4, 1, 1)

PLANTED: dict[str, ModelProto] = {
    "MatMulAddFusion": _matmul_add(),
    "ConvAddFusion": _conv(node("Add", "c b", "y"), b=_FOUR),
    "ConvMulFusion": _conv(node("Mul", "c b", "y"), b=_FOUR),
    "ConvBNFusion": _conv(
        node("BatchNormalization", "c s b m v", "y"), s=normal(4), b=normal(4), m=normal(4), v=np.ones(4, "f")
    ),
    "ConvActivationFusion": _conv(node("Relu", "c", "y")),
    "FuseReluClip": model(
        [node("Relu", "x", "r"), node("Clip", "r low high", "y")], [3, 4], {"low": -1.0, "high": 0.5}
    ),
    "EliminateIdentity": model([node("Abs", "x", "a"), node("Identity", "a", "i"), node("Neg", "i", "y")], [3, 4]),
    "EliminateDropout": model([node("Abs", "x", "a"), node("Dropout", "a", "d"), node("Neg", "d", "y")], [3, 4]),
    "CastElimination": model(
        [node("Abs", "x", "a"), node("Cast", "a", "c", to=TensorProto.FLOAT), node("Neg", "c", "y")], [3, 4]
    ),
    "ExpandElimination": model(
        [node("Abs", "x", "a"), node("Expand", "a s", "e"), node("Neg", "e", "y")], [3, 4],
        {"s": np.asarray([3, 4])},
    ),
    "NoopElimination": model([node("Abs", "x", "a"), node("Add", "a z", "n"), node("Neg", "n", "y")], [3, 4],
                             {"z": np.zeros((), "f")}),
    "DivMulFusion": model(
        [node("Div", "one x", "d"), node("Mul", "d k", "y")], [3, 4], {"one": 1.0, "k": np.asarray([[3.0]], "f")}
    ),
    "GemmTransposeFusion": model(
        [node("Transpose", "x", "t", perm=[1, 0]), node("Gemm", "t w", "y")], [4, 3], {"w": normal(4, 5)}
    ),
    "GemmSumFusion": model(
        [node("Gemm", "x w", "g"), node("Sum", "g b", "y")], [3, 4], {"w": normal(4, 5), "b": normal(3, 5)}
    ),
    "MatMul_BatchNormalization_Fusion": model(
        [node("MatMul", "x w", "p"), node("BatchNormalization", "p s b m v", "y")], [3, 4],
        {"w": normal(4, 5), "s": normal(5), "b": normal(5), "m": normal(5), "v": np.ones(5, "f")},
    ),
    "ConstantFolding": model([node("Neg", "k", "n"), node("Add", "x n", "y")], [3, 4], {"k": normal(4)}),
    "CommonSubexpressionElimination": model(
        [node("Sin", "x", "a"), node("Sin", "x", "b"), node("Mul", "a b", "y")], [3, 4]
    ),
    "ReshapeFusion": model(
        [node("Shape", "x", "shape"), node("Gather", "shape zero", "size", axis=0),
         node("Unsqueeze", "size axes", "first"), node("Concat", "first rest", "to", axis=0),
         node("Reshape", "x to", "r"), node("Neg", "r", "y")], ["batch", 2, 4],  # type: ignore[list-item]
        {"zero": np.asarray(0), "axes": np.asarray([0]), "rest": np.asarray([8])}, rank=2,
    ),
    "TransposeOptimizer": model(
        [node("Transpose", "x", "t", perm=[0, 2, 1]), node("Relu", "t", "r"),
         node("Transpose", "r", "y", perm=[0, 2, 1])], [2, 3, 4],
    ),
    "GeluFusionL2": _gelu(node("Abs", "x", "h")),
    "BiasGeluFusion": _gelu(node("Add", "x bias", "h"), bias=normal(8)),
    "MatmulTransposeFusion": model(
        [node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "t w", "y")], [2, 4, 3], {"w": normal(2, 4, 5)}
    ),
    "MatMulScaleFusion": scaled_product(2.0),
    "GemmActivationFusion": model(
        [node("Gemm", "x w b", "g"), node("Relu", "g", "y")], [3, 4], {"w": normal(4, 5), "b": normal(5)}
    ),
    "LayerNormFusionL1": layer_norm(2.0),
    "SimplifiedLayerNormFusion": rms_norm(2.0),
    "QuickGeluFusion": model(
        [node("Abs", "x", "h"), node("Mul", "h k", "s"), node("Sigmoid", "s", "g"), node("Mul", "h g", "y")], [3, 4],
        {"k": 1.702},
    ),
}  # fmt: skip
