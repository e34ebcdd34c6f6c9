"""Kernels that take the place of the evaluator's slow ones give what these give, and leave to them what they do not
cover."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from conformance.models.otherwise.undefined_file import OpenSession
from conformance.runtimes import evaluator_kernels
from conformance.runtimes.onnxreference import ReferenceSession
from tests.kit.models import model_of as model_from

KINDS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
         "bfloat16": TensorProto.BFLOAT16}  # fmt: skip


def model_of(operator: str, inputs: dict[str, np.ndarray], outputs: int = 1, **attributes: object) -> ModelProto:
    """A model of one node."""
    names = [f"y{number}" for number in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, list(inputs), names, **attributes)], "net",
        [helper.make_tensor_value_info(name, KINDS[str(one.dtype)], one.shape) for name, one in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in names],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def both(operator: str, inputs: dict[str, np.ndarray], outputs: int = 1, **attributes: object):
    """The outputs of this package's session, and those of onnx's evaluator."""
    model = model_of(operator, inputs, outputs, **attributes)
    return OpenSession(model).run(inputs), ReferenceEvaluator(model).run(None, inputs)


def alike(got, wanted) -> None:
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        tolerance = {"float64": 1e-12, "float32": 1e-4, "float16": 1e-2, "bfloat16": 2e-2}.get(str(one.dtype), 0)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@st.composite
def windows(draw, dims: int):
    """Sizes, and attributes of a window over them."""
    sizes = [draw(st.integers(3, 9)) for _ in range(dims)]
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    dilations = [draw(st.integers(1, 2)) for _ in range(dims)]
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, min(far - 1, 2))) for far in reach * 2]
    sizes = [max(size, far) for size, far in zip(sizes, reach, strict=True)]
    strides = [draw(st.integers(1, 3)) for _ in range(dims)]
    return sizes, {"kernel_shape": kernel, "dilations": dilations, "pads": pads, "strides": strides}


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.sampled_from(["float32", "float64"]))
def test_convolutions_are_those_of_the_evaluator(data, dims, group, has_bias, dtype):
    sizes, attributes = data.draw(windows(dims))
    rng = np.random.default_rng(0)
    inputs = {
        "x": rng.standard_normal((2, 2 * group, *sizes)).astype(dtype),
        "w": rng.standard_normal((3 * group, 2, *attributes["kernel_shape"])).astype(dtype),
    }
    if has_bias:
        inputs["b"] = rng.standard_normal(3 * group).astype(dtype)
    alike(*both("Conv", inputs, group=group, **attributes))


def one_by_one(x: np.ndarray, operator: str, counts: bool, window: dict[str, list[int]]) -> np.ndarray:
    """A pool by the words of the specification, an element at a time. (ONNX's own gives one value too few where a
    row is padded on one side alone, in onnx 1.23.)"""
    dims, (kernel, steps, strides) = x.ndim - 2, (window[name] for name in ("kernel_shape", "dilations", "strides"))
    pads = [*zip(window["pads"][:dims], window["pads"][dims:], strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=np.nan)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, steps, strict=True)]
    out = [(size - far) // by + 1 for size, far, by in zip(padded.shape[2:], reach, strides, strict=True)]
    result = np.empty((*x.shape[:2], *out), x.dtype)
    for place in np.ndindex(*out):
        spans = [slice(at * by, at * by + far, step)
                 for at, by, far, step in zip(place, strides, reach, steps, strict=True)]  # fmt: skip
        values = padded[(slice(None), slice(None), *spans)].reshape(*x.shape[:2], -1)
        made = np.nanmax(values, -1) if operator == "MaxPool" else np.nanmean(values, -1)
        made = np.nansum(values, -1) / values.shape[-1] if operator == "AveragePool" and counts else made
        result[(slice(None), slice(None), *place)] = made
    return result


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3), st.booleans(), st.sampled_from(["MaxPool", "AveragePool"]))
def test_pools_are_those_of_the_specification(data, dims, counts, operator):
    sizes, attributes = data.draw(windows(dims))
    x = np.random.default_rng(0).standard_normal((2, 3, *sizes)).astype(np.float32)
    more = {"count_include_pad": int(counts)} if operator == "AveragePool" else {}
    got = OpenSession(model_of(operator, {"x": x}, **attributes, **more)).run({"x": x})
    alike(got, [one_by_one(x, operator, counts, attributes)])


def test_a_convolution_is_computed_in_blocks(monkeypatch):
    monkeypatch.setattr(evaluator_kernels, "COLUMNS", 100)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((1, 2, 17, 5)), "w": rng.standard_normal((4, 2, 3, 3))}
    alike(*both("Conv", inputs, pads=[1, 1, 1, 1]))


@pytest.mark.parametrize("operator, dtype, outputs, attributes", [
    ("Conv", "float16", 1, {}),
    ("MaxPool", "float32", 1, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", "float32", 2, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", "float32", 1, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", "float16", 1, {"kernel_shape": [2, 2]}),
])  # fmt: skip
def test_what_is_not_covered_the_evaluator_computes_itself(operator, dtype, outputs, attributes):
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((1, 2, 8, 8)).astype(dtype)}
    if operator == "Conv":
        inputs["w"] = rng.standard_normal((3, 2, 3, 3)).astype(dtype)
    alike(*both(operator, inputs, outputs, **attributes))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 2), st.sampled_from(["MaxPool", "AveragePool"]),
       st.sampled_from(["VALID", "SAME_UPPER", "SAME_LOWER"]))  # fmt: skip
def test_padding_by_a_mode_is_that_of_the_specification(data, dims, operator, mode):
    sizes, window = data.draw(windows(dims))
    x = np.random.default_rng(0).standard_normal((2, 3, *sizes)).astype(np.float32)
    got = OpenSession(model_of(operator, {"x": x}, auto_pad=mode, **{**window, "pads": None})).run({"x": x})
    kernel, steps, strides = (np.array(window[name]) for name in ("kernel_shape", "dilations", "strides"))
    due = np.ceil(sizes / strides).astype(int)
    lack = [0] * dims if mode == "VALID" else np.maximum((due - 1) * strides + (kernel - 1) * steps + 1 - sizes, 0)
    less, more = [one // 2 for one in lack], [one - one // 2 for one in lack]
    window["pads"] = [*less, *more] if mode == "SAME_UPPER" else [*more, *less]
    alike(got, [one_by_one(x, operator, False, window)])


def test_channels_are_normalized_by_those_around_them():
    """Of ONNX's own there are as many as the batch has rows, so that it is right where these are as many."""
    for dtype in ("float32", "float64", "float16"):
        x = np.random.default_rng(0).standard_normal((4, 4, 3, 2)).astype(dtype)
        ours, wanted = both("LRN", {"x": x}, size=2, alpha=0.7, beta=0.6, bias=1.5)
        alike(ours, wanted)
        (part,) = OpenSession(model_of("LRN", {"x": x[:1]}, size=2, alpha=0.7, beta=0.6, bias=1.5)).run({"x": x[:1]})
        np.testing.assert_array_equal(part, ours[0][:1])


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_are_those_of_the_evaluator(operator, special):
    x = np.zeros((1, 1, 6, 6), np.float32)
    x[0, 0, 2, 3] = special
    got, wanted = both(operator, {"x": x}, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    np.testing.assert_array_equal(got[0], wanted[0])


def test_a_convolution_passes_on_special_values_where_they_are_and_nowhere_else():
    x, w = np.zeros((1, 1, 7), np.float32), np.ones((1, 1, 2), np.float32)
    x[0, 0, 3] = np.inf
    inputs = {"x": x, "w": w}  # ONNX's own kernel multiplies by the zeros in between, and so makes NaN
    (got,) = OpenSession(model_of("Conv", inputs, dilations=[2])).run(inputs)
    assert [*np.flatnonzero(np.isinf(got))] == [1, 3] and not np.isnan(got).any()


def test_shapes_that_do_not_fit_are_refused_by_the_evaluator():
    inputs = {"x": np.zeros((1, 3, 5, 5), np.float32), "w": np.zeros((2, 2, 3, 3), np.float32)}
    with pytest.raises(ValueError, match="Shape inconsistencies"):
        OpenSession(model_of("Conv", inputs)).run(inputs)


def test_a_node_of_another_domain_is_left_alone():
    class Node:
        op_type, onnx_node = "Conv", helper.make_node("Conv", [], [], domain="com.example")

    def compute(*inputs: object) -> tuple[np.ndarray, ...]:
        return ()

    assert evaluator_kernels.quicker(Node(), compute) is compute


def test_the_mean_of_a_large_window_over_a_small_image_leaves_the_padding_out():
    x = np.random.default_rng(0).standard_normal((3, 4, 3, 3)).astype(np.float32)
    window = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2], "dilations": [1, 1]}
    (got,) = OpenSession(model_of("AveragePool", {"x": x}, **window)).run({"x": x})
    np.testing.assert_allclose(got, one_by_one(x, "AveragePool", False, window), rtol=1e-5, atol=1e-6)


def test_the_runtime_that_is_judged_is_onnxs_own_evaluator():
    x, w = np.zeros((1, 1, 7), np.float32), np.ones((1, 1, 2), np.float32)
    x[0, 0, 3] = np.inf
    inputs = {"x": x, "w": w}
    with np.errstate(all="ignore"):
        (got,) = ReferenceSession(model_of("Conv", inputs, dilations=[2])).run(inputs)
    assert np.isnan(got).any()


GRAPHS = {
    "a result that a loop's body reads by name": """(float[3] x) => (float[3] y) <int64 n = {2}, bool go = {1}> {
        t = Neg (x)
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[3] s) => (bool d, float[3] r)
            { d = Identity (c)  r = Add (s, t) }> }""",
    "a result that is read twice, and one that is an output too": """(float[3] x) => (float[3] y, float[3] z)
        { z = Mul (x, x)  t = Add (z, x)  y = Div (t, z) }""",
    "an input and a constant as outputs": """(float[3] x) => (float[3] a, float[3] b)
        <float[3] w = {1, 2, 3}> { a = Identity (x)  unread = Add (x, w)  b = Identity (w) }""",
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_result_is_kept_as_long_as_somebody_reads_it(graph):
    x = np.float32([1, -2, 4])
    session = OpenSession(model_from(f"g {GRAPHS[graph]}", 19))
    for _ in range(2):
        alike(session.run({"x": x}), ReferenceEvaluator(model_from(f"g {GRAPHS[graph]}", 19)).run(None, {"x": x}))


def test_the_error_function_keeps_the_digits_of_its_type():
    """ONNX's own rounds float64 to float32 in between."""
    x = np.random.default_rng(0).standard_normal((4, 5)) * 2
    alike(*both("Erf", {"x0": x.astype(np.float32)}))
    ours, _ = both("Erf", {"x0": x})
    np.testing.assert_array_equal(ours[0], np.vectorize(math.erf)(x))


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "MatMul", "Neg", "Sqrt", "Exp", "Tanh", "Relu"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("float32", (3, 3)), ("float64", (3, 3)), ("float16", (3, 3)), ("float32", ()), ("bfloat16", (3, 3))],
)
def test_functions_of_numpy_are_those_of_the_evaluator(operator, dtype, shape):
    count = 2 if operator in ("Add", "Sub", "Mul", "Div", "MatMul") else 1
    if operator == "MatMul" and not shape:
        shape = (3,)
    rng = np.random.default_rng(0)
    inputs = {f"x{number}": np.asarray(rng.standard_normal(shape) ** 2, dtype) for number in range(count)}
    with np.errstate(all="ignore"):
        alike(*both(operator, inputs))
