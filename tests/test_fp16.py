"""fp16 conversion by itself, on graphs that are written by hand: what it keeps, what it rounds, what it names."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser

from conformance.case.precision import PrecisionSettings
from conformance.disk.onnx_models import serialized
from conformance.export.graph import read
from conformance.precision import convert, fp16
from conformance.precision.calibration import Feeds
from conformance.runtimes import inferred
from conformance.runtimes.onnxruntime import open_literal

RNG = np.random.default_rng(0)
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def model_of(text: str, opset: int = 17, **initializers: np.ndarray) -> onnx.ModelProto:
    """The graph ``text`` as a model; ``initializers`` by name."""
    version = 8 if opset < 19 else 10
    made = parser.parse_model(f'<ir_version: {version}, opset_import: ["" : {opset}]> {text}')
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in initializers.items()
    )
    return made


def source(model: onnx.ModelProto, folder: Path, *kept: str) -> convert.Source:
    """The model as the converters take it: named nodes, plain constants, what ``kept`` says in fp32."""
    onnx.save(model, folder / "exported.onnx")
    return convert.source(folder / "exported.onnx", "fp16", PrecisionSettings(exclude=list(kept)), "torchscript")


def to_fp16(model: onnx.ModelProto, folder: Path, *kept: str) -> onnx.ModelProto:
    """Converted, valid by the full check, and with the inputs and outputs that it had."""
    given = source(model, folder, *kept)
    copy = onnx.ModelProto.FromString(given.model.SerializeToString())
    made = fp16.convert(copy, given.kept)
    onnx.checker.check_model(made, full_check=True)
    for what in ("input", "output"):
        assert [_declared(one) for one in getattr(made.graph, what)] == [
            _declared(one) for one in getattr(model.graph, what)
        ]
    return made


def _declared(value: onnx.ValueInfoProto) -> tuple[str, int]:
    return value.name, value.type.tensor_type.elem_type


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


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in fp16.nodes(model.graph))


def assert_like_fp32(model: onnx.ModelProto, made: onnx.ModelProto, tolerance: float = 4e-3, **inputs: Any) -> None:
    """The same outputs but for the roundings of fp16; integers exactly."""
    for got, right in zip(computed(made, **inputs), computed(model, **inputs), strict=True):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        if right.dtype.kind == "f":
            largest = float(np.abs(right).max(initial=0))
            np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance * largest)
        else:
            np.testing.assert_array_equal(got, right)


X = RNG.normal(size=(2, 4)).astype("float32")


# ---- inputs and outputs -----------------------------------------------------------------------------------------


def test_inside_is_fp16_and_the_outside_is_as_it_was(tmp_path):
    model = model_of("g (float[2, 4] x) => (float[2, 4] y) { a = Sin (x) y = Abs (a) }")
    made = to_fp16(model, tmp_path)
    assert makes(made, "Sin") == HALF
    assert computed(made, x=X)[0].dtype == np.float32
    np.testing.assert_array_equal(computed(made, x=X)[0], np.abs(np.sin(X.astype("float16"))))
    assert_like_fp32(model, made, x=X)


@pytest.mark.parametrize("graph, inputs", [
    pytest.param("g (int64[2, 4] x) => (int64[2, 4] y) { y = Add (x, x) }", {"x": np.arange(8).reshape(2, 4)},
                 id="integers alone"),
    pytest.param("g (double[2, 4] x) => (double[2, 4] y) { y = Sin (x) }", {"x": X.astype("float64")}, id="float64"),
    pytest.param("g (bool[2, 4] x) => (bool[2, 4] y) { y = Not (x) }", {"x": X > 0}, id="bools"),
])  # fmt: skip
def test_what_has_nothing_in_float32_is_left_as_it_is(tmp_path, graph, inputs):
    model = model_of(graph)
    made = to_fp16(model, tmp_path)
    assert operators(made) == operators(model)
    np.testing.assert_array_equal(computed(made, **inputs)[0], computed(model, **inputs)[0])


def test_an_output_of_integers_and_one_of_float64_beside_one_of_float32(tmp_path):
    model = model_of("""g (float[2, 4] x) => (float[2, 4] y, int64[2] n, double[2, 4] d) {
        y = Sin (x)
        n = ArgMax <axis = 1, keepdims = 0> (y)
        d = Cast <to = 11> (y)
    }""")
    made = to_fp16(model, tmp_path)
    assert_like_fp32(model, made, x=X)
    assert makes(made, "Sin") == HALF


def test_a_middle_of_integers_is_not_rounded(tmp_path):
    model = model_of(
        """g (float[2, 4] x) => (float[2, 4] y) {
        whole = Cast <to = 7> (x)
        more = Add (whole, large)
        less = Sub (more, large)
        y = Cast <to = 1> (less)
    }""",
        large=np.int64(10**9),
    )
    values = np.array([[1, 2, 3, 4], [-5, 60, 700, 2000]], "float32")
    np.testing.assert_array_equal(computed(to_fp16(model, tmp_path), x=values)[0], values)


def test_an_output_that_others_read_too_is_the_same_for_all(tmp_path):
    model = model_of("g (float[2, 4] x) => (float[2, 4] a, float[2, 4] b) { a = Sin (x) b = Exp (a) }")
    assert_like_fp32(model, to_fp16(model, tmp_path), x=X)


def test_an_output_that_is_an_input_is_not_rounded(tmp_path):
    model = model_of("g (float[2, 4] x) => (float[2, 4] y, float[2, 4] x) { y = Sin (x) }")
    made = to_fp16(model, tmp_path)
    np.testing.assert_array_equal(computed(made, x=X)[1], X)
    assert makes(made, "Sin") == HALF


def test_an_output_that_is_a_constant_is_not_rounded(tmp_path):
    model = model_of("g (float[2, 4] x) => (float[2, 4] y, float[4] w) { y = Add (x, w) }", w=X[0])
    made = to_fp16(model, tmp_path)
    np.testing.assert_array_equal(computed(made, x=X)[1], X[0])
    assert makes(made, "Add") == HALF


def test_an_input_that_nobody_reads_stays(tmp_path):
    model = model_of("g (float[2, 4] x, float[2, 4] unused) => (float[2, 4] y) { y = Sin (x) }")
    assert_like_fp32(model, to_fp16(model, tmp_path), x=X, unused=X)


# ---- nodes that stay in fp32 ---------------------------------------------------------------------------------

CHAIN = "g (float[2, 4] x) => (float[2, 4] y) { [one] a = Sin (x) [two] b = Exp (a) [three] y = Tanh (b) }"


@pytest.mark.parametrize("kept", ["two", "Exp", "tw?"])
def test_a_node_that_is_kept_computes_in_fp32_and_its_neighbours_do_not(tmp_path, kept):
    made = to_fp16(model_of(CHAIN), tmp_path, kept)
    types = types_in(made)
    by_name = {node.name: node for node in made.graph.node}
    assert types[by_name["two"].input[0]] == types[by_name["two"].output[0]] == FLOAT
    assert types[by_name["one"].output[0]] == types[by_name["three"].output[0]] == HALF


def test_between_two_kept_nodes_nothing_is_rounded(tmp_path):
    made = to_fp16(model_of(CHAIN), tmp_path, "one", "two", "three")
    np.testing.assert_array_equal(computed(made, x=X)[0], computed(model_of(CHAIN), x=X)[0])
    computing = {name: kind for name, kind in types_in(made).items() if name not in ("x", "y")}
    assert computing
    assert HALF not in computing.values()


def test_a_cast_that_the_module_makes_rounds_though_both_sides_stay_in_fp32(tmp_path):
    model = model_of("""g (float[2, 4] x) => (float[2, 4] y) {
        a = Sin (x)
        half = Cast <to = 10> (a)
        whole = Cast <to = 1> (half)
        y = Exp (whole)
    }""")
    made = to_fp16(model, tmp_path, "Sin", "Exp")
    np.testing.assert_array_equal(computed(made, x=X)[0], computed(model, x=X)[0])


@pytest.mark.parametrize("chain", [(11, 1), (1, 1), (10, 1), (7, 1), (1, 11, 1), (10, 11, 10, 1)])
def test_chains_of_casts_convert(tmp_path, chain):
    lines = [f"v{place + 1} = Cast <to = {to}> (v{place})" for place, to in enumerate(chain)]
    text = f"g (float[2, 4] x) => (float[2, 4] y) {{ v0 = Sin (x) {' '.join(lines)} y = Abs (v{len(chain)}) }}"
    model = model_of(text)
    assert_like_fp32(model, to_fp16(model, tmp_path), x=X)


def test_two_kept_nodes_that_read_one_value_share_a_cast(tmp_path):
    model = model_of("""g (float[2, 4] x) => (float[2, 4] y) {
        a = Sin (x)
        b = Exp (a)
        c = Tanh (a)
        y = Add (b, c)
    }""")
    made = to_fp16(model, tmp_path, "Exp", "Tanh")
    (sine,) = (node for node in made.graph.node if node.op_type == "Sin")
    assert sum(node.op_type == "Cast" and node.input[0] == sine.output[0] for node in made.graph.node) == 1
    assert_like_fp32(model, made, x=X)


SHARED = """g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) {
    [kept] y = Mul (x, w)
    [other] z = Add (x, w)
}"""


def test_a_constant_that_only_kept_nodes_read_is_not_rounded(tmp_path):
    model = model_of("g (float[2, 4] x) => (float[2, 4] y) { [kept] y = Mul (x, w) }", w=X[0])
    np.testing.assert_array_equal(computed(to_fp16(model, tmp_path, "kept"), x=X)[0], computed(model, x=X)[0])


def test_a_constant_that_a_kept_node_shares_with_another_is_not_rounded_for_the_kept_one(tmp_path):
    model = model_of(SHARED, w=X[0])
    kept, other = computed(to_fp16(model, tmp_path, "kept"), x=X)
    right, rounded = computed(model, x=X)
    np.testing.assert_array_equal(kept, right)
    assert (other != rounded).any()
    made = to_fp16(model, tmp_path, "kept")
    assert fp16.wrongly_rounded(model, made) == []
    (copy,) = (one for one in made.graph.initializer if one.data_type == HALF)
    copy.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(copy) * np.float16(1.05), copy.name))
    assert len(fp16.wrongly_rounded(model, made)) == 1


# ---- operators that have no fp16 form ----------------------------------------------------------------------------


ROWS, IMAGE = "float[2, 4] x", "float[1, 1, 2, 4] x"


@pytest.mark.parametrize("opset, given, text", [
    pytest.param(11, ROWS, "(float[2, 4] y) { a = Sin (x) b = CumSum (a, axis) y = Abs (b) }", id="CumSum before 14"),
    pytest.param(14, ROWS, "(float[2, 4] y) { a = Sin (x) b = CumSum (a, axis) y = Abs (b) }", id="CumSum"),
    pytest.param(13, ROWS, "(float[n] y) { a = ReduceMax <keepdims = 0> (x) b = Abs (a) c = Range (zero, b, step) "
                           "y = Exp (c) }", id="Range"),
    pytest.param(10, IMAGE, "(float[1, 1, 4, 8] y) { a = Sin (x) y = Resize (a, scales) }", id="Resize 10"),
    pytest.param(13, IMAGE, "(float[1, 1, 4, 8] y) { a = Sin (x) y = Resize (a, , scales) }", id="Resize"),
    pytest.param(13, IMAGE, "(float[a, b, c, d] y) { a = Sin (x) s = Add (scales, scales) y = Resize (a, , s) }",
                 id="Resize by computed scales"),
    pytest.param(9, IMAGE, "(float[1, 1, 4, 8] y) { a = Sin (x) y = Upsample (a, scales) }", id="Upsample"),
    pytest.param(11, ROWS, "(float[2, 2] y, int64[2, 2] i) { a = Sin (x) y, i = TopK (a, k) }", id="TopK"),
    pytest.param(11, ROWS, "(float[2, 4] y) { a = Sin (x) b = Max (a, x) y = Min (b, w) }", id="Max and Min"),
    pytest.param(9, ROWS, "(float[2, 4] y) { a = Sin (x) y = Max (a, x) }", id="Max 8"),
])  # fmt: skip
def test_operators_that_fp16_is_hard_on_convert_and_compute(tmp_path, opset, given, text):
    constants = {
        "axis": np.int64(1), "zero": np.float32(0), "step": np.float32(0.25), "k": np.array([2]), "w": X[0],
        "scales": np.array([1, 1, 2, 2], "float32"),
    }  # fmt: skip
    used = {name: array for name, array in constants.items() if re.search(rf"\b{name}\b", text)}
    model = model_of(f"g ({given}) => {text}", opset, **used)
    assert_like_fp32(model, to_fp16(model, tmp_path), x=X if given == ROWS else X.reshape(1, 1, 2, 4))


def test_non_maximum_suppression_stays_in_fp32_between_fp16(tmp_path):
    model = model_of(
        """g (float[1, 8, 4] boxes, float[1, 1, 8] scores) => (int64[n, 3] chosen, float[1, 8, 4] y) {
        b = Abs (boxes)
        s = Sigmoid (scores)
        chosen = NonMaxSuppression (b, s, most, overlap)
        y = Exp (b)
    }""",
        11,
        most=np.array([3]),
        overlap=np.array([0.5], "float32"),
    )
    corners = np.sort(RNG.uniform(0, 1, (1, 8, 2, 2)), axis=2).reshape(1, 8, 4).astype("float32")
    made = to_fp16(model, tmp_path)
    assert makes(made, "Abs") == HALF
    assert_like_fp32(model, made, boxes=corners, scores=np.linspace(-2, 2, 8, dtype="float32").reshape(1, 1, 8))


LAYER_NORM = """g (float[2, 4] x) => (float[2, 4] y) {
    mean = ReduceMean <axes = [-1]> (x)
    centred = Sub (x, mean)
    squares = Pow (centred, two)
    variance = ReduceMean <axes = [-1]> (squares)
    shifted = Add (variance, eps)
    size = Sqrt (shifted)
    normal = Div (centred, size)
    scaled = Mul (normal, w)
    y = Add (scaled, b)
}"""


@pytest.mark.parametrize("opset", [9, 11, 13, 16, 17])
def test_a_decomposed_layer_norm_converts_at_every_opset(tmp_path, opset):
    constants = {"two": np.float32(2), "eps": np.float32(1e-5), "w": X[0], "b": X[1]}
    model = model_of(LAYER_NORM, opset, **constants)
    made = to_fp16(model, tmp_path)
    assert set(types_in(made).values()) == {FLOAT, HALF}
    assert_like_fp32(model, made, 2e-2, x=X)


@pytest.mark.parametrize("opset", range(9, 24))
def test_every_opset_converts_and_stays(tmp_path, opset):
    model = model_of(
        """g (float[2, 4] x) => (float[2, 5] y) {
        a = MatMul (x, w)
        b = Add (a, c)
        d = Relu (b)
        y = Softmax <axis = 1> (d)
    }""",
        opset,
        w=RNG.normal(size=(4, 5)).astype("float32"),
        c=RNG.normal(size=5).astype("float32"),
    )
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
BOTH = pytest.mark.parametrize("sign", [1, -1])


def branch(text: str = BRANCH) -> onnx.ModelProto:
    return model_of(text, zero=np.float32(0), w=X[0])


@BOTH
@pytest.mark.parametrize("kept", [
    (), ("inside",), ("far",), ("inside", "far"), ("other",), ("If",), ("Sin", "inside", "far", "other"),
    ("Sin", "If", "ReduceSum", "Greater"),
])  # fmt: skip
def test_a_branch_converts_whatever_stays_in_fp32(tmp_path, kept, sign):
    made = to_fp16(branch(), tmp_path, *kept)
    values = sign * np.abs(X)
    assert_like_fp32(branch(), made, x=values)


def test_of_an_if_that_is_kept_what_is_inside_computes_in_fp32(tmp_path):
    half, whole = (to_fp16(branch(), tmp_path, *kept) for kept in ((), ("If",)))
    values = np.abs(X)
    right = computed(branch(), x=values)[0]
    errors = [float(np.square(computed(made, x=values)[0] - right).mean()) for made in (half, whole)]
    assert 0 < errors[1] < errors[0]


@BOTH
def test_an_operator_without_fp16_inside_a_branch_stays_in_fp32(tmp_path, sign):
    text = BRANCH.replace("yt = Exp (t1)", "t2 = CumSum (t1, axis) yt = Exp (t2)")
    model = model_of(text, 13, zero=np.float32(0), w=X[0], axis=np.int64(1))
    assert_like_fp32(model, to_fp16(model, tmp_path), x=sign * np.abs(X))


LOOP = """g (float[2, 4] x) => (float[2, 4] y) {
    s = Sin (x)
    y = Loop (count, go, s) <
        body = b (int64 i, bool before, float[2, 4] v) => (bool after, float[2, 4] w) {
            after = Identity (before)
            [grow] grown = Mul (v, factor)
            [bound] w = Tanh (grown)
        }
    >
}"""


@pytest.mark.parametrize("kept", [(), ("grow",), ("bound",), ("grow", "bound"), ("Loop",), ("Loop", "Sin")])
def test_the_body_of_a_loop_converts_whatever_stays_in_fp32(tmp_path, kept):
    model = model_of(LOOP, count=np.int64(3), go=np.bool_(True), factor=np.float32(1.5))
    assert_like_fp32(model, to_fp16(model, tmp_path, *kept), 1e-2, x=X)


SCAN = """g (float[3, 4] x) => (float[4] last, float[3, 4] y) {
    last, y = Scan <
        num_scan_inputs = 1,
        body = b (float[4] before, float[4] row) => (float[4] after, float[4] out) {
            [add] after = Add (before, row)
            [act] out = Tanh (after)
        }
    > (start, x)
}"""


@pytest.mark.parametrize("kept", [(), ("add",), ("act",), ("Scan",)])
def test_the_body_of_a_scan_converts_whatever_stays_in_fp32(tmp_path, kept):
    model = model_of(SCAN, start=np.zeros(4, "float32"))
    made = to_fp16(model, tmp_path, *kept)
    assert_like_fp32(model, made, 1e-2, x=RNG.normal(size=(3, 4)).astype("float32"))


# ---- beyond what fp16 holds -------------------------------------------------------------------------------------


def told(model: onnx.ModelProto, folder: Path, *kept: str, **inputs: np.ndarray) -> tuple[list[str], list[str]]:
    """What overflows and what underflows, by ``convert`` on these inputs."""
    feeds = Feeds([inputs], "a test", 8, 8, "")
    found = convert.convert(source(model, folder, *kept), feeds)[1]
    assert found["overflow_at"] == [text for text in found["overflow_at"] if text]
    return found["overflow"], found["underflow"]


WIDE = RNG.uniform(300, 400, (8, 4)).astype("float32")
SQUARES = "g (float[n, 4] x) => (float[n, 4] y) { [square] a = Mul (x, x) [back] y = Sqrt (a) }"


def test_an_overflow_is_named_by_the_node_that_makes_it(tmp_path):
    overflow, underflow = told(model_of(SQUARES), tmp_path, x=WIDE)
    (text,) = overflow
    assert text.startswith("Mul square reaches 1")
    assert not underflow
    assert told(model_of(SQUARES), tmp_path, x=WIDE / 10) == ([], [])


def test_an_overflow_between_nodes_that_stay_in_fp32_is_none(tmp_path):
    assert told(model_of(SQUARES), tmp_path, "square", "back", x=WIDE) == ([], [])
    assert told(model_of(SQUARES), tmp_path, "square", x=WIDE)[0]
    assert told(model_of(SQUARES), tmp_path, "back", x=WIDE)[0]


def test_an_overflow_between_nodes_that_have_no_fp16_form_is_none(tmp_path):
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = CumSum (x, rows) y = CumSum (a, columns) }"
    data = np.full((400, 4), 300, "float32") + RNG.normal(size=(400, 4)).astype("float32")
    model = model_of(text, 11, rows=np.int64(0), columns=np.int64(1))
    assert told(model, tmp_path, x=data) == ([], [])
    got, right = (computed(one, x=data)[0] for one in (to_fp16(model, tmp_path), model))
    assert right.max() > fp16.LARGEST
    np.testing.assert_allclose(got, right, rtol=2e-3)


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
    model = model_of("g (float[n, 4] x) => (float[n, 4] y) { y = Max (x, c) }", c=np.float32(value))
    found = told(model, tmp_path, x=np.abs(WIDE) / 100)
    assert bool(found[0]) is overflows


def test_what_is_infinite_in_fp32_already_is_no_overflow(tmp_path):
    model = model_of("g (float[n, 4] x) => (float[n, 4] y) { a = Div (x, zero) y = Tanh (a) }", zero=np.float32(0))
    assert told(model, tmp_path, x=WIDE)[0] == []


@pytest.mark.parametrize("value, said", [(1e-9, "6e-08"), (2e-5, None), (0.0, None)])
def test_a_constant_that_is_too_small_is_told_with_what_it_becomes(tmp_path, value, said):
    model = model_of("g (float[n, 4] x) => (float[n, 4] y) { y = Add (x, c) }", c=np.float32(value))
    found = told(model, tmp_path, x=WIDE / 100)[1]
    assert bool(found) is (said is not None)
    (weight,) = (one for one in to_fp16(model, tmp_path).graph.initializer if one.name == "c")
    becomes = float(numpy_helper.to_array(weight))
    assert becomes == pytest.approx(max(value, fp16.SMALLEST) if value else 0, rel=1e-2)
    if said is not None:
        assert said in found[0]
        assert float(said) == pytest.approx(becomes, rel=0.1)


@pytest.mark.parametrize("factor, said", [(1e-9, "all become 0"), (1e-7, "lose digits"), (1e-2, None)])
def test_values_that_vanish_are_told_by_the_node_that_makes_them(tmp_path, factor, said):
    model = model_of("g (float[n, 4] x) => (float[n, 4] y) { [small] a = Mul (x, x) [large] y = Div (a, c) }",
                     c=np.float32(0.001))  # fmt: skip
    found = told(model, tmp_path, x=WIDE / 300 * np.float32(factor**0.5))[1]
    mine = [one for one in found if "Mul small" in one]
    assert [said in one for one in mine] == ([] if said is None else [True])


def test_a_constant_beyond_fp16_inside_a_branch_is_named(tmp_path):
    """Values there are not measured; constants can be read."""
    text = BRANCH.replace("[inside] t1", "c = Constant <value = float {90000.0}> () t0 = Add (s, c) t1")
    model = model_of(text.replace("Mul (s, w)", "Sub (t0, c)"), zero=np.float32(0))
    assert any("reaches 9" in one for one in told(model, tmp_path, x=X)[0])


# ---- constants are the exported ones ----------------------------------------------------------------------------

WEIGHTS = "g (float[n, 4] x) => (float[n, 5] y) { [layer] y = MatMul (x, w) }"


@pytest.mark.parametrize("change", [
    lambda w: w * np.float16(1.05), lambda w: np.nextafter(w, np.float16(9)), lambda w: -w, lambda w: np.roll(w, 1),
    lambda w: np.where(np.arange(w.size).reshape(w.shape) == 7, np.float16(np.nan), w),
], ids=["scaled", "rounded up", "negated", "moved", "one NaN"])  # fmt: skip
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
    from onnxruntime.transformers.float16 import convert_np_to_float16

    patterns = RNG.integers(0, 2**32, 2**20, dtype=np.uint32).view("float32")
    values = np.concatenate([ENDS, -ENDS, patterns, RNG.normal(size=2**16).astype("float32") * 1e-4])
    right = convert_np_to_float16(values, fp16.SMALLEST, fp16.LARGEST)
    got, number = fp16.rounded(values), ~np.isnan(right)
    np.testing.assert_array_equal(got, right)
    np.testing.assert_array_equal(got[number].view("uint16"), right[number].view("uint16"))  # zeros have signs
    assert fp16.rounded(np.float32(2.5)).tobytes() == np.float16(2.5).tobytes()  # of no dims


LARGE = """g (float[2, 16] x, int64[2] i) => (float[2, 16] y, float[2, 16] z, float[2, 4] rows, float[2, 16] old) {
    [scale] h = Mul (x, alone)
    [one] y = MatMul (h, w)
    [other] z = MatMul (x, w)
    old = MatMul (x, typed)
    places = Gather (table, i)
    rows = Gather (many, places)
}"""


@pytest.mark.parametrize("kept", [["scale"], ["MatMul"], ["one"], []])
def test_large_weights_come_out_as_small_ones_do(tmp_path, monkeypatch, kept):
    square = RNG.normal(size=(16, 16)).astype("float32")
    model = model_of(
        LARGE, w=square, alone=np.float32([ENDS[0]] * 16), many=RNG.normal(size=(300, 4)).astype("float32") * 1e-6,
        table=np.arange(300)[::-1].copy(),
    )  # fmt: skip
    typed = onnx.helper.make_tensor("typed", FLOAT, [16, 16], square.reshape(-1).tolist())  # not as raw bytes
    model.graph.initializer.append(typed)
    given = source(model, tmp_path, *kept)
    before = given.model.SerializeToString(deterministic=True)
    made = {}
    for small in (10**6, 8):
        monkeypatch.setattr(inferred, "SMALL", small)
        converted = fp16.convert(given.model, given.kept)
        onnx.checker.check_model(converted, full_check=True)
        made[small] = converted
        assert given.model.SerializeToString(deterministic=True) == before
    by_the_converter, by_us = made.values()
    assert fp16.wrongly_rounded(given.model, by_us) == []
    (before_,) = (one for one in by_the_converter.graph.initializer if one.name == "typed")
    (after,) = (one for one in by_us.graph.initializer if one.name == "typed")
    np.testing.assert_array_equal(*map(numpy_helper.to_array, (before_, after)))
    after.CopyFrom(before_)  # the same values, as numbers there and as bytes here
    assert by_us.SerializeToString(deterministic=True) == by_the_converter.SerializeToString(deterministic=True)


def test_a_small_constant_that_is_called_like_a_copy_of_a_large_one_keeps_its_values(tmp_path):
    """Copies for nodes that stay in fp32 are called so."""
    text = "g (float[2, 40] x) => (float[2, 40] y) { h = MatMul (x, w)\n y = Add (h, b) }"
    model = model_of(text, w=RNG.normal(size=(40, 40)).astype("float32"), b=RNG.normal(size=40).astype("float32"))
    model.graph.initializer[1].name = model.graph.node[1].input[1] = "w/fp16"
    x = RNG.normal(size=(2, 40)).astype("float32")
    (right,), (got,) = computed(model, x=x), computed(to_fp16(model, tmp_path), x=x)
    np.testing.assert_allclose(got, right, rtol=0.01, atol=0.05)


def test_a_cast_that_is_missing_makes_an_invalid_model(tmp_path):
    text = "g (float[2, 4] x) => (float[2, 4] y) { a = Sin (x) [kept] y = Mul (a, w) }"
    made = to_fp16(model_of(text, w=X[0]), tmp_path, "kept")
    (kept,) = (node for node in made.graph.node if node.op_type == "Mul")
    (cast,) = (node for node in made.graph.node if node.output[0] == kept.input[0])
    assert cast.op_type == "Cast"
    kept.input[0] = cast.input[0]
    assert read(made, serialized(made)).invalid is not None
