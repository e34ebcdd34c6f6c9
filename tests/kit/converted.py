"""A small network, and what others make of it: the same in fewer bits, sound or with a planted mistake."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from conformance.front.cli import main

Weights = dict[str, Any]
INPUT, OUTPUT = 64, 16


def weights() -> Weights:
    rng = np.random.default_rng(7)
    return {
        "W1": (rng.standard_normal((INPUT, 128)) / 8).astype(np.float32),
        "b1": (rng.standard_normal(128) / 10).astype(np.float32),
        "W2": (rng.standard_normal((128, OUTPUT)) / 11).astype(np.float32),
    }


def network(
    nodes: list[onnx.NodeProto], tensors: Mapping[str, Any], kind: int = TensorProto.FLOAT, opset: int = 21
) -> ModelProto:
    ends = [helper.make_tensor_value_info(name, kind, ["n", size])
            for name, size in (("x", INPUT), ("y", OUTPUT))]  # fmt: skip
    kept = [numpy_helper.from_array(values, name) for name, values in tensors.items()]
    graph = helper.make_graph(nodes, "network", [ends[0]], [ends[1]], kept)
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=helper.OP_SET_ID_VERSION_MAP["ai.onnx", opset])
    onnx.checker.check_model(model, full_check=True)
    return model


def layers(given: str = "x", gives: str = "y") -> list[onnx.NodeProto]:
    return [
        helper.make_node("MatMul", [given, "W1"], ["product"], "fc1"),
        helper.make_node("Add", ["product", "b1"], ["sum"], "bias"),
        helper.make_node("Relu", ["sum"], ["kept"], "relu"),
        helper.make_node("MatMul", ["kept", "W2"], [gives], "fc2"),
    ]  # fmt: skip


def original() -> ModelProto:
    return network(layers(), weights())


def cast(dtype: int, numpy_dtype: Any) -> ModelProto:
    """All in another float type, between two casts."""
    inside = {name: values.astype(numpy_dtype) for name, values in weights().items()}
    to, back = (helper.make_node("Cast", [one], [other], to=kind)
                for one, other, kind in (("x", "given", dtype), ("made", "y", TensorProto.FLOAT)))  # fmt: skip
    return network([to, *layers("given", "made"), back], inside)


def halved() -> ModelProto:
    """All in float16, its inputs and outputs too."""
    inside = {name: values.astype(np.float16) for name, values in weights().items()}
    return network(layers(), inside, TensorProto.FLOAT16)


def quantized(spoil: Callable[[Weights], None] = lambda parts: None, bits: int = 8) -> ModelProto:
    """Weights as integers with a scale for each column, and a DequantizeLinear before each MatMul."""
    parts: Weights = {}
    dtype = {8: np.int8, 4: ml_dtypes.int4, 2: ml_dtypes.int2}[bits]
    for name, values in weights().items():
        if values.ndim == 1:
            parts[name] = values
            continue
        scale = (np.abs(values).max(axis=0) / (2 ** (bits - 1) - 1)).astype(np.float32)
        parts |= {f"{name}_q": np.round(values / scale).astype(dtype), f"{name}_s": scale}
    spoil(parts)
    return dequantized(parts, opset=25 if bits == 2 else 21)


def dequantized(parts: Weights, opset: int = 21) -> ModelProto:
    opening = [
        helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s"], [name], f"{name}_dq", axis=1)
        for name in ("W1", "W2")
    ]
    return network([*opening, *layers()], parts, opset=opset)


def floats(dtype: Any, largest: float, opset: int = 21) -> ModelProto:
    """Weights as floats of few bits with a scale for each column, and a DequantizeLinear before each MatMul."""
    parts: Weights = {}
    for name, values in weights().items():
        if values.ndim == 1:
            parts[name] = values
            continue
        scale = (np.abs(values).max(axis=0) / largest).astype(np.float32)
        parts |= {f"{name}_q": (values / scale).astype(dtype), f"{name}_s": scale}
    return dequantized(parts, opset)


def fp8() -> ModelProto:
    parts: Weights = {}
    for name, values in weights().items():
        if values.ndim == 1:
            parts[name] = values
            continue
        scale = np.float32(np.abs(values).max() / 448)
        parts |= {f"{name}_q": (values / scale).astype(ml_dtypes.float8_e4m3fn), f"{name}_s": np.asarray(scale)}
    opening = [
        helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s"], [name], f"{name}_dq")
        for name in ("W1", "W2")
    ]
    return network([*opening, *layers()], parts)


SOUND: dict[str, tuple[str, Callable[[], ModelProto]]] = {
    "fp16": ("fp16", lambda: cast(TensorProto.FLOAT16, np.float16)),
    "fp16 at its ends too": ("fp16", halved),
    "bf16": ("bf16", lambda: cast(TensorProto.BFLOAT16, ml_dtypes.bfloat16)),
    "int8 weights": ("int8", quantized), "int4 weights": ("int4", lambda: quantized(bits=4)), "fp8": ("fp8", fp8),
    "fp8 of 5 bits of exponent": ("fp8", lambda: floats(ml_dtypes.float8_e5m2, 57344)),
    "fp4": ("fp4", lambda: floats(ml_dtypes.float4_e2m1fn, 6, opset=23)),
}  # fmt: skip


def scaled(name: str, by: float, column: int | None = None) -> Callable[[Weights], None]:
    def spoil(parts: Weights) -> None:
        parts[name] = parts[name].copy()
        parts[name][slice(None) if column is None else column] *= np.float32(by)

    return spoil


def mirrored(parts: Weights) -> None:
    parts["W1_q"] = np.ascontiguousarray(parts["W1_q"][::-1])


def shifted(parts: Weights) -> None:
    parts["b1"] = parts["b1"] + np.float32(0.02)


def pair(folder: Path, converted: ModelProto) -> tuple[str, str]:
    first, second = folder / "net.onnx", folder / "net_small.onnx"
    onnx.save(original(), first)
    onnx.save(converted, second)
    return str(first), str(second)


def check(capsys: Any, folder: Path, model: ModelProto, *more: str, runtime: str = "onnxruntime") -> tuple[int, str]:
    """Run ``conformance check`` on the network and a conversion of it; its exit code, and what it prints."""
    store = ["--store", str(folder / "store")]
    code = main(["check", *pair(folder, model), "--runtime", runtime, *store, *more])
    return code, capsys.readouterr().out


def folded(form: str, spoil: Callable[[Weights], None] = lambda parts: None, bits: int = 8) -> ModelProto:
    """Weights in few bits as torchao's exports have them, by names of the exporter: as ``levels`` in float32 with
    their scales behind the product, or multiplied out by the scales of ``channels`` or of ``blocks`` of 16."""
    parts, tensors, nodes = {}, {"b1": weights()["b1"]}, layers()
    for name in ("W1", "W2"):
        values = weights()[name]
        rows = values.reshape(-1, 16, values.shape[1]) if form == "blocks" else values[None]
        scale = np.abs(rows).max(axis=1, keepdims=True) / np.float32(2 ** (bits - 1) - 1)
        parts |= {f"{name}_q": np.round(rows / scale).reshape(values.shape), f"{name}_s": scale[:, 0]}
    spoil(parts)
    for name, node in (("W1", nodes[0]), ("W2", nodes[3])):
        levels, scale, node.input[1] = parts[f"{name}_q"], parts[f"{name}_s"], f"val_{name[1]}"
        if form == "levels":
            tensors |= {f"val_{name[1]}": levels, f"scale_{name[1]}": scale[0]}
            made, node.output[0] = node.output[0], f"mm_{name[1]}"
            scaling = helper.make_node("Mul", [f"mm_{name[1]}", f"scale_{name[1]}"], [made], f"scaled_{name[1]}")
            nodes.insert(nodes.index(node) + 1, scaling)
        else:
            tensors[f"val_{name[1]}"] = levels * np.repeat(scale, len(levels) // len(scale), axis=0)
    return network(nodes, {name: np.asarray(values, np.float32) for name, values in tensors.items()})
