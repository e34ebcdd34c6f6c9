"""fp16 conversion by itself, on graphs that are written by hand: what it keeps, what it rounds, what it names."""

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnxruntime.transformers.float16 import convert_np_to_float16

from conformance.case.files.precision import PrecisionSettings
from conformance.models.precision import convert, fp16
from conformance.models.precision.calibration import Feeds
from conformance.runtimes import inferred
from conformance.runtimes.onnxruntime import open_literal
from tests.kit.models import model_of

pytestmark = pytest.mark.smoke

RNG = np.random.default_rng(0)
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def source(model: onnx.ModelProto, folder: Path, *kept: str) -> convert.ConversionSource:
    """The model as the converters take it: named nodes, plain constants, what ``kept`` says in fp32."""
    onnx.save(model, folder / "exported.onnx")
    return convert.source(folder / "exported.onnx", "fp16", PrecisionSettings(exclude=list(kept)), "torchscript")


def to_fp16(model: onnx.ModelProto, folder: Path, *kept: str) -> onnx.ModelProto:
    """Converted, valid by the full check, and with the inputs and outputs that it had."""
    given = source(model, folder, *kept)
    copy = onnx.ModelProto.FromString(given.model.SerializeToString())
    made = fp16.convert(copy, given.kept)
    onnx.checker.check_model(made, full_check=True)
    now, before = ((*one.graph.input, *one.graph.output) for one in (made, model))
    for value, other in zip(now, before, strict=True):
        assert (value.name, value.type.tensor_type.elem_type) == (other.name, other.type.tensor_type.elem_type)
    return made


def computed(model: onnx.ModelProto, **inputs: Any) -> list[np.ndarray]:
    """What the graph means: each node by itself, fp16 rounded after it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        onnx.save(model, file)
        with open_literal(file, []) as session:
            return session.run({name: np.asarray(array) for name, array in inputs.items()})


def types_in(model: onnx.ModelProto) -> dict[str, int]:
    """The dtype of every value of the outermost graph that shape inference knows."""
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    return {one.name: one.type.tensor_type.elem_type for one in values}


def makes(model: onnx.ModelProto, operator: str) -> int:
    """The dtype of what the only node of this operator makes."""
    (node,) = (one for one in model.graph.node if one.op_type == operator)
    return types_in(model)[node.output[0]]


def assert_like_fp32(model: onnx.ModelProto, made: onnx.ModelProto, tolerance: float = 4e-3, **inputs: Any) -> None:
    """The same outputs but for the roundings of fp16; integers exactly."""
    for got, right in zip(computed(made, **inputs), computed(model, **inputs), strict=True):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        if right.dtype.kind == "f":
            largest = float(np.abs(right).max(initial=0))
            np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance * largest)
        else:
            np.testing.assert_array_equal(got, right)


def assert_converts(model: onnx.ModelProto, folder: Path, *kept: str, tolerance: float = 4e-3, **inputs: Any) -> None:
    assert_like_fp32(model, to_fp16(model, folder, *kept), tolerance, **inputs)


X = RNG.normal(size=(2, 4)).astype("float32")
ROWS, IMAGE = "float[2, 4] x", "float[1, 1, 2, 4] x"


def of_rows(
    body: str, outputs: str = "float[2, 4] y", opset: int = 17, **initializers: np.ndarray
) -> onnx.ModelProto:
    """The model of a graph that takes ``X``."""
    return model_of(f"g ({ROWS}) => ({outputs}) {{ {body} }}", opset, **initializers)


def of_samples(body: str, **initializers: np.ndarray) -> onnx.ModelProto:
    """The model of a graph that takes any number of rows."""
    return model_of(f"g (float[n, 4] x) => (float[n, 4] y) {{ {body} }}", **initializers)


# ---- inputs and outputs -----------------------------------------------------------------------------------------
def test_inside_is_fp16_and_the_outside_is_as_it_was(tmp_path):
    model = of_rows("a = Sin (x) y = Abs (a)")
    made = to_fp16(model, tmp_path)
    assert makes(made, "Sin") == HALF and computed(made, x=X)[0].dtype == np.float32
    np.testing.assert_array_equal(computed(made, x=X)[0], np.abs(np.sin(X.astype("float16"))))
    assert_like_fp32(model, made, x=X)


@pytest.mark.parametrize("graph", [
    pytest.param(f"g ({ROWS}) => (float[2, 4] y, int64[2] n, double[2, 4] d) {{ y = Sin (x) "
                 "n = ArgMax <axis = 1, keepdims = 0> (y) d = Cast <to = 11> (y) }", id="integers and float64"),
    pytest.param(f"g ({ROWS}) => (float[2, 4] a, float[2, 4] b) {{ a = Sin (x) b = Exp (a) }}", id="read by others"),
    pytest.param(f"g ({ROWS}) => (float[2, 4] y, float[2, 4] x) {{ y = Sin (x) }}", id="an input"),
    pytest.param(f"g ({ROWS}) => (float[2, 4] y, float[4] w) {{ y = Sin (x) }}", id="a constant"),
])  # fmt: skip
def test_outputs_of_all_kinds_are_as_they_were(tmp_path, graph):
    """Those that no node computes are not rounded."""
    model = model_of(graph, **({"w": X[0]} if " w)" in graph else {}))
    made = to_fp16(model, tmp_path)
    assert makes(made, "Sin") == HALF
    assert_like_fp32(model, made, x=X)
    computed_by_a_node = {name for node in model.graph.node for name in node.output}
    for output, got, right in zip(model.graph.output, computed(made, x=X), computed(model, x=X), strict=True):
        if output.name not in computed_by_a_node:
            np.testing.assert_array_equal(got, right)


# ---- nodes that stay in fp32 ---------------------------------------------------------------------------------
CHAIN = of_rows("[one] a = Sin (x) [two] b = Exp (a) [three] y = Tanh (b)")


@pytest.mark.parametrize("kept", ["two", "Exp", "tw?"])
def test_a_node_that_is_kept_computes_in_fp32_and_its_neighbours_do_not(tmp_path, kept):
    made = to_fp16(CHAIN, tmp_path, kept)
    types = types_in(made)
    by_name = {node.name: node for node in made.graph.node}
    assert types[by_name["two"].input[0]] == types[by_name["two"].output[0]] == FLOAT
    assert types[by_name["one"].output[0]] == types[by_name["three"].output[0]] == HALF


@pytest.mark.parametrize("model, kept", [
    pytest.param(CHAIN, ["one", "two", "three"], id="between them"),
    pytest.param(of_rows("a = Sin (x) half = Cast <to = 10> (a) whole = Cast <to = 1> (half) y = Exp (whole)"),
                 ["Sin", "Exp"], id="but by a cast of the module itself"),
    pytest.param(of_rows("[kept] y = Mul (x, w)", w=X[0]), ["kept"], id="of a constant"),
])  # fmt: skip
def test_nothing_is_rounded_for_nodes_that_are_kept(tmp_path, model, kept):
    made = to_fp16(model, tmp_path, *kept)
    np.testing.assert_array_equal(computed(made, x=X)[0], computed(model, x=X)[0])
    computing = {kind for name, kind in types_in(made).items() if name not in ("x", "y")}
    assert model is not CHAIN or (computing and HALF not in computing)


SHARED = """g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) {
    [kept] y = Mul (x, w)
    [other] z = Add (x, w)
}"""


def test_a_constant_is_not_rounded_for_nodes_that_are_kept_though_another_reads_it_rounded(tmp_path):
    shared = model_of(SHARED, w=X[0])
    made = to_fp16(shared, tmp_path, "kept")
    kept, other = computed(made, x=X)
    right, rounded = computed(shared, x=X)
    np.testing.assert_array_equal(kept, right)
    assert (other != rounded).any()
    assert fp16.wrongly_rounded(shared, made) == []
    (copy,) = (one for one in made.graph.initializer if one.data_type == HALF)
    copy.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(copy) * np.float16(1.05), copy.name))
    assert len(fp16.wrongly_rounded(shared, made)) == 1


# ---- operators that have no fp16 form ----------------------------------------------------------------------------
@pytest.mark.parametrize("opset, given, text", [
    pytest.param(11, ROWS, "(float[2, 4] y) { a = Sin (x) b = CumSum (a, axis) y = Abs (b) }", id="CumSum before 14"),
    pytest.param(14, ROWS, "(float[2, 4] y) { a = Sin (x) b = CumSum (a, axis) y = Abs (b) }", id="CumSum"),
    pytest.param(13, ROWS, "(float[n] y) { a = ReduceMax <keepdims = 0> (x) b = Abs (a) c = Range (zero, b, step) "
                           "y = Exp (c) }", id="Range"),
    pytest.param(10, IMAGE, "(float[1, 1, 4, 8] y) { a = Sin (x) y = Resize (a, scales) }", id="Resize 10"),
    pytest.param(13, IMAGE, "(float[a, b, c, d] y) { a = Sin (x) s = Add (scales, scales) y = Resize (a, , s) }",
                 id="Resize by computed scales"),
    pytest.param(11, ROWS, "(float[2, 2] y, int64[2, 2] i) { a = Sin (x) y, i = TopK (a, k) }", id="TopK"),
    pytest.param(11, ROWS, "(float[2, 4] y) { a = Sin (x) b = Max (a, x) y = Min (b, w) }", id="Max and Min"),
])  # fmt: skip
def test_operators_that_fp16_is_hard_on_convert_and_compute(tmp_path, opset, given, text):
    constants = {
        "axis": np.int64(1), "zero": np.float32(0), "step": np.float32(0.25), "k": np.array([2]), "w": X[0],
        "scales": np.array([1, 1, 2, 2], "float32"),
    }  # fmt: skip
    used = {name: array for name, array in constants.items() if re.search(rf"\b{name}\b", text)}
    model = model_of(f"g ({given}) => {text}", opset, **used)
    assert_converts(model, tmp_path, x=X if given == ROWS else X.reshape(1, 1, 2, 4))


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 22, 23])
def test_every_opset_converts_and_stays(tmp_path, opset):
    weights = {"w": RNG.normal(size=(4, 5)).astype("float32"), "c": RNG.normal(size=5).astype("float32")}
    layer = "{ a = MatMul (x, w) b = Add (a, c) d = Relu (b) y = Softmax <axis = 1> (d) }"
    model = model_of(f"g (float[2, 4] x) => (float[2, 5] y) {layer}", opset, **weights)
    made = to_fp16(model, tmp_path)
    assert [one.version for one in made.opset_import] == [opset]
    assert makes(made, "MatMul") == makes(made, "Softmax") == HALF
    if opset <= 22:  # what every supported ONNX Runtime runs
        assert_like_fp32(model, made, x=X)


# ---- branches and bodies ---------------------------------------------------------------------------------------
BRANCH = """g (float[2, 4] x) => (float[2, 4] y) {
    total = ReduceSum <keepdims = 0> (x)
    positive = Greater (total, zero)
    s = Sin (x)
    y = If (positive) <
        then_branch = t () => (float[2, 4] yt) { [inside] t1 = Mul (s, w) [far] yt = Exp (t1) },
        else_branch = e () => (float[2, 4] ye) { [other] ye = Neg (x) }
    >
}"""
WITHOUT_FP16 = BRANCH.replace("yt = Exp (t1)", "t2 = CumSum (t1, axis) yt = Exp (t2)")
LOOP = """g (float[2, 4] x) => (float[2, 4] y) {
    s = Sin (x)
    y = Loop (count, go, s) <
        body = b (int64 i, bool before, float[2, 4] v) => (bool after, float[2, 4] w) {
            after = Identity (before) [grow] grown = Mul (v, factor) [bound] w = Tanh (grown)
        }
    >
}"""


def branch(text: str = BRANCH, opset: int = 17, **more: np.ndarray) -> onnx.ModelProto:
    return model_of(text, opset, zero=np.float32(0), w=X[0], **more)


@pytest.mark.parametrize("model, tolerance, kept", [
    pytest.param(branch(), 4e-3, [(), ("inside",), ("far",), ("inside", "far"), ("other",), ("If",),
                            ("Sin", "inside", "far", "other"), ("Sin", "If", "ReduceSum", "Greater")], id="If"),
    pytest.param(branch(WITHOUT_FP16, 13, axis=np.int64(1)), 4e-3, [()], id="If with an operator without fp16"),
    pytest.param(model_of(LOOP, count=np.int64(3), go=np.bool_(True), factor=np.float32(1.5)),
                 1e-2, [(), ("grow",), ("bound",), ("grow", "bound"), ("Loop",), ("Loop", "Sin")], id="Loop"),
])  # fmt: skip
@pytest.mark.parametrize("sign", [1, -1])
def test_a_body_converts_whatever_stays_in_fp32(tmp_path, model, tolerance, kept, sign):
    """The sign of the values decides on the branch of If."""
    for names in kept:
        assert_converts(model, tmp_path, *names, tolerance=tolerance, x=sign * np.abs(X))


# ---- beyond what fp16 holds -------------------------------------------------------------------------------------
def told(model: onnx.ModelProto, folder: Path, *kept: str, **inputs: np.ndarray) -> tuple[list[str], list[str]]:
    """What overflows and what underflows, by ``convert`` on these inputs."""
    feeds = Feeds([inputs], "a test", 8, 8, "")
    found = convert.convert(source(model, folder, *kept), feeds)[1]
    assert found["overflow_at"] == [text for text in found["overflow_at"] if text]
    return found["overflow"], found["underflow"]


WIDE = RNG.uniform(300, 400, (8, 4)).astype("float32")
SQUARES = of_samples("[square] a = Mul (x, x) [back] y = Sqrt (a)")


def test_an_overflow_is_named_by_the_node_that_makes_it_unless_all_around_it_stay_in_fp32(tmp_path):
    overflow, underflow = told(SQUARES, tmp_path, x=WIDE)
    (text,) = overflow
    assert text.startswith("Mul square reaches 1") and not underflow
    assert told(SQUARES, tmp_path, x=WIDE / 10) == ([], [])
    assert told(SQUARES, tmp_path, "square", "back", x=WIDE) == ([], [])
    assert told(SQUARES, tmp_path, "square", x=WIDE)[0] and told(SQUARES, tmp_path, "back", x=WIDE)[0]


@pytest.mark.parametrize("constant", [
    "c = Constant <value = float {90000.0}> ()", "c = Constant <value_float = 90000.0> ()", "",
])  # fmt: skip
def test_a_constant_beyond_fp16_is_named_unless_its_reader_stays_in_fp32(tmp_path, constant):
    text = f"g (float[n, 4] x) => (float[n, 4] y) {{ {constant} [add] a = Add (x, c) [take] y = Sub (a, c) }}"
    model = model_of(text, **({} if constant else {"c": np.float32(90000)}))
    small = WIDE / 100
    assert any("reaches 9" in one for one in told(model, tmp_path, x=small)[0])
    assert told(model, tmp_path, "add", "take", x=small) == ([], [])
    np.testing.assert_array_equal(
        computed(to_fp16(model, tmp_path, "add", "take"), x=small)[0], computed(model, x=small)[0]
    )


@pytest.mark.parametrize("value, overflows", [
    (65504.0, False), (65519.0, True), (65536.0, True), (-65504.0, False), (-7e4, True), (-3.4e38, False),
])  # fmt: skip
def test_where_fp16_ends(tmp_path, value, overflows):
    """What stands for minus infinity in a mask may become that."""
    for constant in (value, [value, -1e9, 0, 0]):
        model = of_samples("y = Max (x, c)", c=np.float32(constant))
        found = told(model, tmp_path, x=np.abs(WIDE) / 100)
        assert bool(found[0]) is overflows


def test_what_is_infinite_in_fp32_already_is_no_overflow(tmp_path):
    model = of_samples("a = Div (x, zero) y = Tanh (a)", zero=np.float32(0))
    assert told(model, tmp_path, x=WIDE)[0] == []


@pytest.mark.parametrize("value, said", [(1e-9, "6e-08"), (2e-5, None), (0.0, None)])
def test_a_constant_that_is_too_small_is_told_with_what_it_becomes(tmp_path, value, said):
    model = of_samples("y = Add (x, c)", c=np.float32(value))
    found = told(model, tmp_path, x=WIDE / 100)[1]
    assert bool(found) is (said is not None)
    (weight,) = (one for one in to_fp16(model, tmp_path).graph.initializer if one.name == "c")
    becomes = float(numpy_helper.to_array(weight))
    assert becomes == pytest.approx(max(value, fp16.SMALLEST) if value else 0, rel=1e-2)
    if said is not None:
        assert said in found[0] and float(said) == pytest.approx(becomes, rel=0.1)


@pytest.mark.parametrize("factor, said", [(1e-9, "all become 0"), (1e-7, "lose digits"), (1e-2, None)])
def test_values_that_vanish_are_told_by_the_node_that_makes_them(tmp_path, factor, said):
    model = of_samples("[small] a = Mul (x, x) [large] y = Div (a, c)", c=np.float32(0.001))  # fmt: skip
    found = told(model, tmp_path, x=WIDE / 300 * np.float32(factor**0.5))[1]
    mine = [one for one in found if "Mul small" in one]
    assert [said in one for one in mine] == ([] if said is None else [True])


# ---- constants are the exported ones ----------------------------------------------------------------------------
WEIGHTS = "g (float[n, 4] x) => (float[n, 5] y) { [layer] y = MatMul (x, w) }"


@pytest.mark.parametrize("change", [
    lambda w: np.nextafter(w, np.float16(9)), lambda w: np.roll(w, 1),
    lambda w: np.where(np.arange(w.size).reshape(w.shape) == 7, np.float16(np.nan), w),
], ids=["rounded up", "moved", "one NaN"])  # fmt: skip
def test_a_constant_that_is_not_the_exported_one_rounded_is_found(tmp_path, change):
    model = model_of(WEIGHTS, w=RNG.normal(size=(4, 5)).astype("float32"))
    made = to_fp16(model, tmp_path)
    assert fp16.wrongly_rounded(model, made) == []
    (weight,) = (one for one in made.graph.initializer if one.name == "w")
    wrong = np.asarray(change(numpy_helper.to_array(weight)), "float16")
    weight.CopyFrom(numpy_helper.from_array(wrong, "w"))
    (text,) = fp16.wrongly_rounded(model, made)
    assert "of 20 values of the constant w" in text


def test_constants_beyond_both_ends_of_fp16_may_become_these(tmp_path):
    values = np.array([1e-12, -1e-12, 1e30, -1e30, np.inf, -np.inf, np.nan, 0, 3e-8, 65519, 1e-7], "float32")
    model = model_of("g (float[n, 11] x) => (float[n, 11] y) { y = Add (x, w) }", w=values)
    assert fp16.wrongly_rounded(model, to_fp16(model, tmp_path)) == []


ENDS = np.array([65504, 65519.99, 65520, 1e30, np.inf, 0, 2**-24, 2**-25, 2**-26, 1e-45, 3e-8, np.nan], "float32")


def test_weights_are_rounded_as_the_converter_rounds_them():
    patterns = RNG.integers(0, 2**32, 2**20, dtype=np.uint32).view("float32")
    values = np.concatenate([ENDS, -ENDS, patterns, RNG.normal(size=2**16).astype("float32") * 1e-4])
    right = convert_np_to_float16(values, fp16.SMALLEST, fp16.LARGEST)
    got, number = fp16.rounded(values), ~np.isnan(right)
    np.testing.assert_array_equal(got, right)
    np.testing.assert_array_equal(got[number].view("uint16"), right[number].view("uint16"))  # zeros have signs
    assert fp16.rounded(np.float32(2.5)).tobytes() == np.float16(2.5).tobytes()  # of no dims


LARGE = """g (float[2, 16] x, int64[2] i) => (float[2, 16] y, float[2, 16] z, float[2, 4] rows) {
    [scale] h = Mul (x, alone) [one] y = MatMul (h, w) [other] z = MatMul (x, w)
    places = Gather (table, i) rows = Gather (many, places)
}"""


@pytest.mark.parametrize("kept", [["scale"], ["one"], []])
def test_large_weights_come_out_as_small_ones_do(tmp_path, monkeypatch, kept):
    model = model_of(
        LARGE, w=RNG.normal(size=(16, 16)).astype("float32"), alone=np.float32([ENDS[0]] * 16),
        many=RNG.normal(size=(300, 4)).astype("float32") * 1e-6, table=np.arange(300)[::-1].copy(),
    )  # fmt: skip
    given = source(model, tmp_path, *kept)
    before = given.model.SerializeToString(deterministic=True)
    made = []
    for small in (10**6, 8):
        monkeypatch.setattr(inferred, "SMALL", small)
        made.append(fp16.convert(given.model, given.kept).SerializeToString(deterministic=True))
        assert given.model.SerializeToString(deterministic=True) == before
    by_the_converter, by_us = made
    assert by_us == by_the_converter
