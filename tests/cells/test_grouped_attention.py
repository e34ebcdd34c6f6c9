"""GroupQueryAttention of ONNX Runtime, into which its tools fuse a decoder's attention: four heads that share two of
keys and values, at one new token, beside the same in ONNX's own operators."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from conformance.front.cli import main

HIDDEN, HEADS, SHARED, SIZE, MOST = 32, 4, 2, 16, 32
Tensors = dict[str, Any]


def tensors() -> Tensors:
    rng = np.random.default_rng(1)
    widths = {"Wq": HEADS * SIZE, "Wk": SHARED * SIZE, "Wv": SHARED * SIZE}
    found = {name: (rng.standard_normal((HIDDEN, width)) / 3).astype(np.float32) for name, width in widths.items()}
    return {**found, **table(np.arange(MOST))}


def table(positions: Any, base: float = 100.0) -> Tensors:
    """The rotary cache of positions."""
    angles = np.outer(positions, base ** -(np.arange(SIZE // 2) * 2 / SIZE))
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def parts() -> ModelProto:
    """RotaryEmbedding and Attention of opset 23, the positions those behind the past."""
    heads = {"q_num_heads": HEADS, "kv_num_heads": SHARED}
    nodes = [
        *_products(), *_lengths(),
        helper.make_node("Expand", ["past", "rows"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "one"], ["positions"]),
        helper.make_node("RotaryEmbedding", ["q", "cos", "sin", "positions"], ["turned_q"], num_heads=HEADS),
        helper.make_node("RotaryEmbedding", ["k", "cos", "sin", "positions"], ["turned_k"], num_heads=SHARED),
        helper.make_node("Attention", ["turned_q", "turned_k", "v", "", "past_key", "past_value"],
                         ["y", "present_key", "present_value"], **heads),
    ]  # fmt: skip
    return _model(nodes, tensors())


def fused(spoil: Callable[[Tensors], None] = lambda kept: None, **changed: Any) -> ModelProto:
    """The same as one node; ``spoil`` plants something in its weights and tables, ``changed`` in its attributes."""
    kept = tensors()
    spoil(kept)
    says = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1, **changed}
    nodes = [
        *_products(), *_lengths(),
        helper.make_node("Expand", ["past", "rows"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["seen"], to=TensorProto.INT32),
        helper.make_node("Add", ["past", "one"], ["all"]),
        helper.make_node("Cast", ["all"], ["most"], to=TensorProto.INT32),
        helper.make_node("GroupQueryAttention",
                         ["q", "k", "v", "past_key", "past_value", "seen", "most", "cos", "sin"],
                         ["y", "present_key", "present_value"], domain="com.microsoft", **says),
    ]  # fmt: skip
    return _model(nodes, kept)


def _products() -> list[Any]:
    return [helper.make_node("MatMul", ["x", f"W{name}"], [name]) for name in "qkv"]


def _lengths() -> list[Any]:
    return [helper.make_node("Shape", ["past_key"], ["past"], start=2, end=3),
            helper.make_node("Shape", ["x"], ["rows"], start=0, end=1)]  # fmt: skip


def _model(nodes: list[Any], kept: Tensors) -> ModelProto:
    shapes = {"x": ["batch", 1, HIDDEN], "y": ["batch", 1, HEADS * SIZE],
              **{f"past_{name}": ["batch", SHARED, "past", SIZE] for name in ("key", "value")},
              **{f"present_{name}": ["batch", SHARED, "all", SIZE] for name in ("key", "value")}}  # fmt: skip
    given, made = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names]
                   for names in (["x", "past_key", "past_value"], ["y", "present_key", "present_value"]))  # fmt: skip
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in {**kept, "one": [1]}.items()]
    graph = helper.make_graph(nodes, "grouped", given, made, constants)
    domains = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def check(capsys, *files, record=None):
    more = ["--output", f"json={record}"] if record else []
    code = main(["check", *map(str, files), "--dim", "past=1..6", "--dim", "batch=1..3", "--precision", "fp32",
                 "--runtime", "onnxruntime", "--store", str(files[0].parent / "store"), *more])  # fmt: skip
    return code, capsys.readouterr().out


def of_one_head(kept: Tensors) -> None:
    """All heads share the first of keys and values."""
    for name in ("Wk", "Wv"):
        kept[name] = np.tile(kept[name][:, :SIZE], (1, SHARED))


PLANTED: dict[str, tuple[Callable[[Tensors], None], dict[str, Any]]] = {
    "another base of angles": (lambda kept: kept.update(table(np.arange(MOST), 110.0)), {}),
    "angles of the position before": (lambda kept: kept.update(table(np.arange(MOST) - 1)), {}),
    "one head of keys and values": (of_one_head, {}),
    "neighbours turned": (lambda kept: None, {"rotary_interleaved": 1}),
    "no rotation": (lambda kept: None, {"do_rotary": 0}),
    "a window": (lambda kept: None, {"local_window_size": 2}),
    "another scale": (lambda kept: None, {"scale": 0.2}),
}


@pytest.mark.parametrize("planted", [None, *(pytest.param(name, marks=pytest.mark.thorough) for name in PLANTED)])
def test_heads_fused_into_one_node_are_compared_with_the_parts(tmp_path, capsys, planted):
    spoil, changed = PLANTED[planted] if planted else (lambda kept: None, {})
    onnx.save(parts(), tmp_path / "parts.onnx")
    onnx.save(fused(spoil, **changed), tmp_path / "fused.onnx")
    code, out = check(capsys, tmp_path / "parts.onnx", tmp_path / "fused.onnx")
    assert code == (1 if planted else 0), out
    assert not planted or "wrong in ONNX Runtime without its optimizer" in out, out


def test_what_the_node_means_is_onnx_runtimes_own_word_and_the_record_says_so(tmp_path, capsys):
    onnx.save(fused(), tmp_path / "fused.onnx")
    code, out = check(capsys, tmp_path / "fused.onnx", record=tmp_path / "found.json")
    assert "ONNX Runtime is compared with itself here" in out, (code, out)
    (model,) = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["models"]
    told = [one["text"] for record in model["records"] for one in record["warnings"]]
    (said,) = (one for one in told if "what is right was computed by" in one)
    assert "'GroupQueryAttention' from domain 'com.microsoft' is unknown" in said
    assert said.endswith("what is right was computed by ONNX Runtime node by node, with its optimizer off")
