"""A file that is not what it was made of: the node at which they part, by its weight, attribute or operator."""

import numpy as np
import onnx
import pytest

from conformance.case.plan.catalogue import plan
from conformance.diagnose.nodes.second_file import parting
from conformance.results.records.finding_block import describe
from conformance.results.records.findings import findings
from tests.kit.cases import details, load_case
from tests.kit.models import model_of

RANDOM = np.random.default_rng(3)
WA, WB = RANDOM.standard_normal((8, 8)).astype(np.float32), RANDOM.standard_normal((8, 4)).astype(np.float32)
BIAS = RANDOM.standard_normal(8).astype(np.float32)
NET = """net (float[n, 8] x) => (float[n, 4] y) {
    a = MatMul (x, wa)
    b = LeakyRelu <alpha = 0.1> (a)
    c = MatMul (b, wb)
    y = Softmax <axis = -1> (c)
}"""
RENAMED = """net (float[n, 8] x) => (float[n, 4] y) {
    t1 = MatMul (x, wa)
    t2 = LeakyRelu <alpha = 0.1> (t1)
    t3 = MatMul (t2, wb)
    y = Softmax <axis = -1> (t3)
}"""
FUSED = """net (float[n, 8] x) => (float[n, 4] y) {
    a2 = Gemm (x, wa, zero)
    s = Mul (a2, slope)
    b2 = Max (a2, s)
    c2 = Gemm (b2, wb)
    e = Exp (c2)
    t = ReduceSum <keepdims = 1> (e, last)
    y = Div (e, t)
}"""
MORE = {"zero": np.zeros(8, np.float32), "slope": np.array(0.1, np.float32), "last": np.array([-1], np.int64)}


def saved(folder, name, text, wa=WA, wb=WB, **more):
    onnx.save(model_of(text, wa=wa, wb=wb, **more), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def place_of(folder, text, **constants):
    x = {"x": np.random.default_rng(4).standard_normal((3, 8)).astype(np.float32)}
    found = parting(saved(folder, "net", NET), saved(folder, "second", text, **constants), [], x)
    return found and (found.operator, found.why)


def changed(array, at, value):
    copy = array.copy()
    copy[at] = value
    return copy


WRONG_B = changed(WB, (3, 1), 9)
WRONG = {
    "a weight": (NET, {"wb": WRONG_B}, "MatMul", "its weight wb[3, 1] is 9, in net.onnx"),
    "an attribute": (NET.replace("0.1", "0.2"), {}, "LeakyRelu", "its alpha is 0.2, in net.onnx 0.1"),
    "an operator": (NET.replace("LeakyRelu <alpha = 0.1>", "Abs"), {}, "Abs", "net.onnx has LeakyRelu b of the same"),
    "renamed, a weight": (RENAMED, {"wb": WRONG_B}, "MatMul", "its weight wb[3, 1] is 9"),
    "renamed, an attribute": (RENAMED.replace("0.1", "0.3"), {}, "LeakyRelu", "its alpha is 0.3, in net.onnx 0.1"),
    "renamed, an operator": (RENAMED.replace("LeakyRelu <alpha = 0.1>", "Neg"), {}, "Neg", "net.onnx has LeakyRelu"),
    "rewritten, a weight": (FUSED, {"wb": WRONG_B, **MORE}, "Gemm", "net.onnx has MatMul c of the same inputs"),
    "rewritten, a constant": (FUSED, {**MORE, "slope": np.array(0.2, np.float32)}, "Mul", "net.onnx has"),
    "a weight transposed": (NET, {"wa": WA.T.copy()}, "MatMul", "its weight wa[0, 1] is"),
    "the last node": (NET.replace("axis = -1", "axis = 0"), {}, "Softmax", "its axis is 0, in net.onnx -1"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_the_first_node_that_parts_is_named_with_what_is_another(tmp_path, what):
    text, constants, operator, why = WRONG[what]
    found = place_of(tmp_path, text, **constants)
    assert found is not None and found[0] == operator and why in found[1], found


ZEROS = """net (float[n, 4] x) => (float[n, 4] y) {
    a = Relu (x)
    b = Neg (a)
    c = Reciprocal (b)
    y = Mul (c, two)
}"""


@pytest.mark.parametrize("second, operator", [
    (ZEROS.replace("Neg (a)", "Sub (zero, a)"), "Sub"),
    (ZEROS.replace("Reciprocal (b)", "Div (three, b)"), "Div"),
    (ZEROS, None),
])  # fmt: skip
def test_the_sign_of_an_infinity_is_followed_to_that_of_a_zero(tmp_path, second, operator):
    constants = {name: np.array(value, np.float32) for value, name in enumerate(["zero", "one", "two", "three"])}
    files = [tmp_path / "net.onnx", tmp_path / "second.onnx"]
    for file, text in zip(files, (ZEROS, second), strict=True):
        onnx.save(model_of(text, **constants), file)
    found = parting(*files, [], {"x": np.array([[-1, 0, 2, 4]], np.float32)})
    assert (found and found.operator) == operator, found


@pytest.mark.parametrize("text, constants", [(NET, {}), (RENAMED, {}), (FUSED, MORE)])
def test_a_file_that_computes_the_same_parts_nowhere(tmp_path, text, constants):
    assert place_of(tmp_path, text, **constants) is None


def test_inputs_in_another_order_are_told(tmp_path):
    text = "net (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) { a = Abs (x) y = Sub (%s) }"
    values = {name: np.random.default_rng(at).standard_normal((2, 4)).astype(np.float32) for at, name in
              enumerate("xz")}  # fmt: skip
    files = []
    for name, order in (("net", "a, z"), ("second", "z, a")):
        onnx.save(model_of(text % order), tmp_path / f"{name}.onnx")
        files.append(tmp_path / f"{name}.onnx")
    found = parting(*files, [], values)
    assert found is not None and found.why == "its input 0 is z, in net.onnx a"


RESHAPED = """net (float[2,3,4] x) => (float[a,2] y)
    { t = Reshape (x, s) [pairs] r = Reshape (%s, p) y = ReduceMean <axes = [1], keepdims = 0> (r) }"""


def test_an_input_of_another_tensor_is_one_finding_with_the_shapes_that_are_refused_for_it(bench, tmp_path):
    """The node of that name is meant, though another one of the first file reads what it reads."""
    sizes = {"s": np.array([6, 4]), "p": np.array([0, 2, -1])}
    for name, read in (("net", "t"), ("second", "x")):
        onnx.save(model_of(RESHAPED % read, 17, **sizes), tmp_path / f"{name}.onnx")
    body = BODY.replace("dims: {n: 1..5}\n", "")
    records = [bench.run_cell(cell, examples=2) for cell in plan(load_case(tmp_path, body))]
    red = [record for record in records if record.status == "failed" and record.precision == "fp32"]
    (found,) = findings(red)
    assert {record.check for record in red} == {"export", "accuracy"}
    assert describe(found).what == "Reshape pairs: its input 0 is x, in net.onnx t"


BODY = """
onnx: net.onnx
export: {onnx: {opsets: [17], file: second.onnx}}
dims: {n: 1..5}
runtimes: [onnxruntime, openvino]
specials: false
"""


@pytest.mark.parametrize("what", ["a weight", "renamed, an attribute", None])
def test_every_runtime_of_a_case_names_the_node_in_one_finding(bench, tmp_path, what):
    text, constants, operator, why = WRONG[what] if what else (RENAMED, {}, "", "")
    saved(tmp_path, "net", NET), saved(tmp_path, "second", text, **constants)
    cells = [cell for cell in plan(load_case(tmp_path, BODY)) if cell.check == "accuracy"]
    records = [bench.run_cell(cell, examples=2) for cell in cells]
    assert [record.status for record in records] == ["failed" if what else "passed"] * 2
    if what:
        assert all(record.parts_at["operator"] == operator and why in record.parts_at["why"] for record in records)
        (found,) = findings(records)
        assert found.key.component == "exporter" and not any("traced" in line for line in details(records[0]))
