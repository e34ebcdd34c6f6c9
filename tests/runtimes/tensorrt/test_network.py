"""Networks that TensorRT's parser makes, read back and computed in NumPy: what it makes right, what it makes wrong,
and what a change of the network shows."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from conformance.process.errors import NoVerdict
from conformance.runtimes import outputs_of
from conformance.runtimes.registry import LITERAL
from conformance.runtimes.tensorrt.build import make_log, parse
from conformance.runtimes.tensorrt.network import looks
from conformance.runtimes.tensorrt.network.evaluation import NetworkEvaluator
from conformance.runtimes.tensorrt.network.layer_call import UncoveredLayer
from conformance.runtimes.tensorrt.network.looks import OtherOutputs, UnreadAttribute, UnreadInput
from conformance.runtimes.tensorrt.network.network_session import RenamedInput, open_network
from conformance.runtimes.tensorrt.network.parsed_network import (
    NetworkLayer,
    NetworkTensor,
    ParsedNetwork,
    read_network,
)
from conformance.runtimes.tensorrt.rtx import MODULE, absence
from tests.kit.models import model_of

real = pytest.mark.skipif(absence() is not None, reason=f"{absence()}")
Change = Callable[[Any, Any, Any], object]
"""Changes a layer of a network; given TensorRT, the layer and the network."""
POOL = "(float[1,2,5,5] x) => (float y) {{ y = {0}<kernel_shape=[3,3], strides=[3,3], pads=[1,1,1,1]{1}>(x) }}"
LSTM = """(float[{0}] x) => (float y, float h) {{ y, h = LSTM<hidden_size=2{1}>(x, w, r) }}"""
ATTENTION = "(float[1,1,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v, int64[1] n) => (float y) {{ y = Attention({0}) }}"


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Values for all inputs of a model, whose sizes are fixed: whole numbers are 1, and floats are drawn."""
    rng, given = np.random.default_rng(3), {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        dtype, shape = helper.tensor_dtype_to_np_dtype(tensor.elem_type), [dim.dim_value for dim in tensor.shape.dim]
        drawn = rng.normal(size=shape) if np.issubdtype(dtype, np.floating) else np.ones(shape)
        given[value.name] = drawn.astype(dtype)
    return given


def in_network(
    folder: Path, model: onnx.ModelProto, by: str = "onnx-reference"
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return what the parsed network gives for a model, and what ONNX's evaluator gives, or ONNX Runtime."""
    file, inputs = folder / "model.onnx", inputs_of(model)
    onnx.save(model, file)
    right = outputs_of(model, by, (), inputs)
    with open_network(file, ()) as session:
        return session.run(inputs), right


def alike(got: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return all(
        one.dtype == other.dtype and one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=1e-6)
        for one, other in zip(got, right, strict=True)
    )


def weights(*shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype("float32") for name, shape in zip("wrb", shapes, strict=False)}


RIGHT = {
    "sums and products": "(float[2,3] x, float[3] z) => (float y) { a = Mul(x, z)  b = Sub(a, x)  y = Div(b, z) }",
    "an activation": "(float[2,3] x) => (float y) { a = Elu<alpha=0.5>(x)  b = HardSigmoid(a)  y = Softplus(b) }",
    "SELU as it is written out": "(float[4] x) => (float y) { y = Selu<alpha=1.67326, gamma=1.0507>(x) }",
    "whole numbers": "(int64[3] x) => (int64 y) { m = Constant<value_ints=[-7,7,2]>()  y = Div(m, x) }",
    "reductions": "(float[2,3,4] x) => (float y) { a = ReduceMean<axes=[1]>(x)  y = Softmax<axis=0>(a) }",
    "shapes": """(float[2,6] x) => (float y) { s = Constant<value_ints=[0,3,-1]>()
        a = Reshape(x, s)  y = Transpose(a) }""",
    "a slice": """(float[4,6] x) => (float y) { s = Constant<value_ints=[3]>()  e = Constant<value_ints=[-100]>()
        a = Constant<value_ints=[0]>()  p = Constant<value_ints=[-2]>()  y = Slice(x, s, e, a, p) }""",
    "padding": """(float[4,6] x) => (float y) { p = Constant<value_ints=[1,0,2,3]>()
        y = Pad<mode="reflect">(x, p) }""",
    "a gather": "(float[4,6] x, int64[2] i) => (float y) { y = Gather<axis=1>(x, i) }",
    "a pool": POOL.format("MaxPool", ""),
    "a mean that leaves the padding out": POOL.format("AveragePool", ""),
    "a mean that counts the padding": POOL.format("AveragePool", ", count_include_pad=1"),
    "a resize": """(float[1,1,4,4] x) => (float y) { s = Constant<value_ints=[1,1,7,3]>()
        y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , , s) }""",
    "a loop": """(float[3] x) => (float y, float z) { n = Constant<value_int=4>()  c = Constant<value=bool {1}>()
        y, z = Loop(n, c, x) <body = b (int64 i, bool k, float[3] s) => (bool l, float[3] t, float[3] u)
        { l = Identity(k)  j = CastLike(i, s)  t = Add(s, j)  u = Mul(t, s) }> }""",
    "a loop that ends by itself": """(float[1] x) => (float y) { n = Constant<value_int=9>()
        c = Constant<value=bool {1}>()  y = Loop(n, c, x)
        <body = b (int64 i, bool k, float[1] s) => (bool l, float[1] t)
        { two = Constant<value_int=2>()  l = Less(i, two)  t = Add(s, s) }> }""",
    "a branch": """(float[2] x, bool[1] c) => (float y) { one = ReduceMax<keepdims=0>(x)  z = Sub(one, one)
        k = Greater(one, z)  y = If(k) < then_branch = t () => (float[2] p) { p = Neg(x) },
        else_branch = e () => (float[2] q) { q = Abs(x) }> }""",
    "quantized": """(float[2] x) => (float y) <float s = {0.5}, int8 o = {0}>
        { q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }""",
    "topk": "(float[2,5] x) => (float y, int64 i) { k = Constant<value_ints=[2]>()  y, i = TopK<largest=0>(x, k) }",
}  # fmt: skip
WITH_WEIGHTS = {
    "a convolution": (
        "(float[1,4,7,7] x) => (float y) { y = Conv<group=2, dilations=[2,1], strides=[1,2], pads=[1,2,0,1]>(x, w) }",
        [(6, 2, 3, 3)],
    ),
    "a convolution that pads by itself": (
        '(float[1,2,7,8] x) => (float y) { y = Conv<auto_pad="SAME_UPPER", strides=[2,3]>(x, w) }',
        [(3, 2, 3, 4)],
    ),
    "a transposed convolution": (
        "(float[1,4,5] x) => (float y) "
        "{ y = ConvTranspose<group=2, strides=[2], output_padding=[1], pads=[1,0]>(x, w) }",
        [(4, 3, 3)],
    ),
    "an LSTM in both directions": (
        LSTM.format("5,3,4", ', direction="bidirectional"'), [(2, 8, 4), (2, 8, 2)],
    ),
}  # fmt: skip


@real
@pytest.mark.parametrize("name", RIGHT)
def test_the_network_of_a_model_that_is_understood_gives_what_onnx_says(tmp_path, name):
    assert alike(*in_network(tmp_path, model_of(f"g {RIGHT[name]}", 21 if name == "quantized" else 17)))


@real
@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_so_does_that_of_a_model_with_weights(tmp_path, name):
    text, shapes = WITH_WEIGHTS[name]
    assert alike(*in_network(tmp_path, model_of(f"g {text}", **weights(*shapes)), LITERAL))


WRONG = {
    "a largest value of windows that begin in the padding": (POOL.format("MaxPool", ", ceil_mode=1"), 17),
    "a mean of windows that begin in the padding": (
        POOL.format("AveragePool", ", ceil_mode=1, count_include_pad=1"),
        19,
    ),
    "SELU by its defaults": ("(float[4] x) => (float y) { y = Selu(x) }", 17),
    "the triangle by default": ("(float[3,4] x) => (float y) { y = Trilu(x) }", 17),
    "lengths of keys": (ATTENTION.format('q, k, v, "", "", "", n'), 24),
}
TWINS = {
    "a pool that is rounded up": (POOL.format("MaxPool", ", ceil_mode=1").replace("1,2,5,5", "1,2,6,6"), 17),
    "the triangle by name": ("(float[3,4] x) => (float y) { y = Trilu<upper=1>(x) }", 17),
    "all keys": (ATTENTION.format("q, k, v"), 24),
}


@real
@pytest.mark.parametrize("name", WRONG)
def test_what_the_parser_reads_otherwise_is_seen(tmp_path, name):
    text, opset = WRONG[name]
    assert not alike(*in_network(tmp_path, model_of(f"g {text}", opset)))


@real
@pytest.mark.parametrize("name", TWINS)
def test_its_neighbours_are_right(tmp_path, name):
    text, opset = TWINS[name]
    assert alike(*in_network(tmp_path, model_of(f"g {text}", opset)))


@real
@pytest.mark.parametrize("layout, right", [(0, True), (1, False)])
def test_the_layout_of_a_recurrent_layer_is_not_read(tmp_path, layout, right):
    model = model_of(f"g {LSTM.format('3,3,4', f', layout={layout}')}", **weights((1, 8, 4), (1, 8, 2)))
    assert alike(*in_network(tmp_path, model)) is right


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 17, "a" : 1, "b" : 1]>
    g (float[3] x) => (float y) {{ t = a.{0}(x)  y = b.{1}(t) }}
    <domain: "a", opset_import: ["" : 17]> {0} (p) => (q) {{ q = Neg(p) }}
    <domain: "b", opset_import: ["" : 17]> {1} (p) => (q) {{ q = Abs(p) }}"""


@real
@pytest.mark.parametrize("first, second, right", [("F", "G", True), ("F", "F", False), ("Relu", "G", False)])
def test_functions_of_one_name_and_of_a_name_of_onnx_are_mixed_up(tmp_path, first, second, right):
    model = parser.parse_model(FUNCTIONS.format(first, second))
    assert alike(*in_network(tmp_path, model)) is right


@real
def test_overloads_of_a_function_are_taken_for_the_first(tmp_path):
    text = FUNCTIONS.format("F", "F").replace("b.F(t)", "a.F:two(t)")
    text = text.replace('domain: "b"', 'domain: "a", overload: "two"')
    assert not alike(*in_network(tmp_path, parser.parse_model(text), LITERAL))


@real
def test_an_input_that_is_called_otherwise_is_named(tmp_path):
    body = "b (int64 i, bool k, float[3] s) => (bool l, float[3] t) { l = Identity(k)  t = Add(s, s) }"
    text = f"g (float[3] x, bool c) => (float y) {{ n = Constant<value_int=4>()  y = Loop(n, c, x) <body = {body}> }}"
    with pytest.raises(RenamedInput, match="calls an input k; the model's are c, x"):
        in_network(tmp_path, model_of(text))


@real
@pytest.mark.parametrize("text, said", [
    ("(float[2,2] x) => (float y) { y = Det(x) }", "refuses the model, which the check parse is about"),
    ("(double[2] x) => (double y) { y = Neg(x) }", "x is float64, which TensorRT computes in float32"),
    ("(float[2] x) => (float y) { y = RandomUniformLike(x) }", r"\(FILL\): random values, RANDOM_UNIFORM"),
])  # fmt: skip
def test_what_cannot_be_judged_is_said(tmp_path, text, said):
    with pytest.raises(NoVerdict, match=said):
        in_network(tmp_path, model_of(f"g {text}"))


RANDOM = """(float[3,5,2] x) => (float[{0}] y) {{ a, h = LSTM<hidden_size=2, layout={1}>(x, w, r)
    u = RandomUniformLike(h)  y = Add(h, u) }}"""
KEYS = """(float[1,1,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v, int64[1] n, float[1] x)
    => (float y, float8e4m3fn z) {{ y = Attention(q, k, v, "", "", "", {})
    t = Constant<value=float[1] {{1e9}}>()  s = Mul(x, t)  z = Cast<to=17>(s) }}"""


@real
@pytest.mark.parametrize("sizes, layout, error, said", [
    ("1,5,2", 0, NoVerdict, "random values"),
    ("3,1,2", 1, OtherOutputs, r"y has the sizes \(1, .+\) in TensorRT's network, and \(3, 1, 2\) in the model"),
])  # fmt: skip
def test_of_what_cannot_be_computed_the_sizes_are_looked_at(tmp_path, sizes, layout, error, said):
    model = model_of(f"g {RANDOM.format(sizes, layout)}", **weights((1, 8, 2), (1, 8, 2)))
    with pytest.raises(error, match=said):
        in_network(tmp_path, model)


@real
@pytest.mark.parametrize("name, error", [('""', NoVerdict), ("n", UnreadInput)])
def test_and_inputs_that_no_layer_reads(tmp_path, name, error):
    """Without a reader an input that decides nothing is no mistake."""
    with pytest.raises(error, match="no layer of TensorRT's network reads n" if name == "n" else "does not hold"):
        in_network(tmp_path, model_of(f"g {KEYS.format(name)}", 24))


DRAWN = "(float[{0}] x) => (float[{0}] y) {{ u = RandomUniformLike(x)  a = {1}(x)  y = Add(a, u) }}"
WIDE = """(float[1,2,4,4] x) => (float[1,8,2,2] y, float8e4m3fn[1,2,4,4] z) {{ y = {0}(x)
    t = Constant<value=float[1] {{1e9}}>()  s = Mul(x, t)  z = Cast<to=17>(s) }}"""
MODE = 'SpaceToDepth<blocksize=2, mode="{0}">'


@real
@pytest.mark.parametrize("text, opset, error, said", [
    (DRAWN.format("4", "Selu"), 17, UnreadAttribute, "another where gamma of Selu is written out"),
    (DRAWN.format("4", "Selu<alpha=1.67326, gamma=1.0507>"), 17, NoVerdict, "random values"),
    (DRAWN.format("4", "LeakyRelu"), 17, NoVerdict, "random values"),
    (DRAWN.format("0,5", "Trilu"), 17, NoVerdict, "random values"),
    (WIDE.format(MODE.format("CRD")), 28, UnreadAttribute, "depends on mode of SpaceToDepth, on which the model's"),
    (WIDE.format(MODE.format("DCR")), 28, NoVerdict, "does not hold"),
])  # fmt: skip
def test_and_attributes_that_no_layer_shows(tmp_path, text, opset, error, said):
    """Of an output that has no values nothing is said."""
    with pytest.raises(error, match=said):
        in_network(tmp_path, model_of(f"g {text}", opset), LITERAL)


@real
def test_a_parser_that_ends_its_process_for_a_changed_model_accuses_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(looks, "_described", lambda file, model: os.abort())
    with pytest.raises(NoVerdict, match="random values"):
        in_network(tmp_path, model_of(f"g {DRAWN.format('4', 'Selu')}"), LITERAL)


def test_a_kind_of_layer_that_is_not_known_is_named():
    tensors = (NetworkTensor("x", "FLOAT", (2,)), NetworkTensor("y", "FLOAT", (2,)))
    network = ParsedNetwork(tensors, (NetworkLayer("MOE", "experts", (0,), (1,)),), (0,), (1,))
    with pytest.raises(UncoveredLayer, match=r"layer experts \(MOE\)"):
        NetworkEvaluator(network).run({"x": np.zeros(2)})


CONV = "(float[1,1,4,4] x) => (float y) { y = Conv<pads=[1,1,1,1]>(x, w) }"
GATHER = "(float[4,4] x, int64[2] i) => (float y) { y = Gather<axis=1>(x, i) }"


def _set(**values: Any) -> Change:
    def change(trt: Any, layer: Any, network: Any) -> None:
        for name, value in values.items():
            setattr(layer, name, value(trt) if callable(value) else value)

    return change


def _unread(trt: Any, layer: Any, network: Any) -> None:
    layer.set_input(1, network.get_input(1))


PLANTED: dict[str, tuple[str, str, Change]] = {
    "a padding": (CONV, "IConvolutionLayer", _set(post_padding=(0, 1), pre_padding=(2, 1))),
    "a stride": (CONV, "IConvolutionLayer", _set(stride_nd=(2, 2))),
    "a dilation": (CONV, "IConvolutionLayer", _set(dilation_nd=(2, 2), pre_padding=(2, 2), post_padding=(2, 2))),
    "a constant": (CONV, "IConvolutionLayer", _set(kernel=lambda trt: np.ones(9, np.float32))),
    "an axis": (GATHER, "IGatherLayer", _set(axis=0)),
    "axes": ("(float[4,4] x) => (float y) { y = Softmax<axis=1>(x) }", "ISoftMaxLayer", _set(axes=1)),
    "an operation": (
        "(float[4] x, float[4] z) => (float y) { y = Add(x, z) }", "IElementWiseLayer",
        _set(op=lambda trt: trt.ElementWiseOperation.SUB),
    ),
    "an input": ("(float[4] x, float[4] z) => (float y) { y = Sub(z, x) }", "IElementWiseLayer", _unread),
    "an attribute": ("(float[4] x) => (float y) { y = LeakyRelu(x) }", "IActivationLayer", _set(alpha=0.02)),
    "a permutation": (
        "(float[2,2,2] x) => (float y) { y = Transpose<perm=[2,0,1]>(x) }", "IShuffleLayer",
        _set(first_transpose=(1, 2, 0)),
    ),
    "a mode": (
        "(float[1,1,4,4] x) => (float y) { y = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1]>(x) }", "IPoolingLayer",
        _set(average_count_excludes_padding=False),
    ),
    "a window": (
        "(float[1,1,4,4] x) => (float y) { y = MaxPool<kernel_shape=[2,2]>(x) }", "IPoolingLayer",
        _set(window_size_nd=(3, 2)),
    ),
    "a reduction": (
        "(float[2,4] x) => (float y) { y = ReduceMax<axes=[1]>(x) }", "IReduceLayer",
        _set(op=lambda trt: trt.ReduceOperation.SUM),
    ),
    "a transposition": (
        "(float[3,3] x, float[3,3] z) => (float y) { y = MatMul(x, z) }", "IMatrixMultiplyLayer",
        _set(op1=lambda trt: trt.MatrixOperation.TRANSPOSE),
    ),
}  # fmt: skip


@real
@pytest.mark.parametrize("name", PLANTED)
def test_a_network_that_was_changed_gives_other_values(tmp_path, name):
    text, kind, change = PLANTED[name]
    model, file = model_of(f"g {text}", **(weights((1, 1, 3, 3)) if "Conv" in text else {})), tmp_path / "model.onnx"
    onnx.save(model, file)
    trt, inputs = importlib.import_module(MODULE), inputs_of(model)
    right = outputs_of(model, "onnx-reference", (), inputs)
    log = make_log(trt)
    builder = trt.Builder(log)
    network = parse(trt, log, builder, file)
    before = read_network(trt, network)
    assert alike(list(NetworkEvaluator(before).run(inputs).values()), right)
    own = getattr(trt, kind)
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    word = kind[1:].removesuffix("Layer").upper()
    (layer,) = (one for one in layers if str(one.type).rpartition(".")[2].replace("_", "") == word)
    layer.__class__ = own
    change(trt, layer, network)
    after = list(NetworkEvaluator(read_network(trt, network)).run(inputs).values())
    assert not alike(after, right)
    assert (name == "an input") == (read_network(trt, network).unread_inputs() != before.unread_inputs())
