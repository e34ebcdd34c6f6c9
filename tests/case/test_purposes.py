"""Inputs of a file that are sizes, axes or indices have values by the rules of the operators that read them."""

import numpy as np
import pytest
from onnx import ModelProto, helper, save

from conformance.case.draw.draw import Draw, Maker
from conformance.case.files.case_file import load
from conformance.case.files.onnx_header import header
from conformance.case.files.onnx_interface import exactly
from conformance.case.plan.catalogue import plan
from conformance.front.cli import main
from conformance.runtimes.onnxgraph.purposes import uses
from conformance.runtimes.onnxreference import ReferenceSession
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of


def case_of(folder, made: ModelProto, more: str = ""):
    save(made, folder / "net.onnx")
    (folder / "net.yaml").write_text(f"net:\n  about: a file\n  onnx: net.onnx\n{more}", encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return case


MODELS = {
    "the shape of Reshape": "(float[2, 3, 4] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }",
    "a shape to expand to": "(float[3, 1] x, int64[3] s) => (float[a, b, c] y) { y = Expand (x, s) }",
    "an axis": "(float[4, 3] x, int64 axis) => (float[4, 3] y) { y = CumSum (x, axis) }",
    "axes": "(float[4, 3, 2] x, int64[2] axes) => (float[a, b, c] y) { y = ReduceMean (x, axes) }",
    "new axes": "(float[4, 3] x, int64[2] axes) => (float[a, b, c, d] y) { y = Unsqueeze (x, axes) }",
    "axes of size 1": "(float[1, 3, 1] x, int64[1] axes) => (float[a, b] y) { y = Squeeze (x, axes) }",
    "indices": "(float[4, 3] x, int64[5] i) => (float[4, 5] y) { y = Gather <axis = 1> (x, i) }",
    "tuples of indices": "(float[4, 3] x, int64[5, 2] i) => (float[5] y) { y = GatherND (x, i) }",
    "sizes of pieces": "(float[7, 2] x, int64[2] s) => (float[a, 2] y, float[b, 2] z) { y, z = Split (x, s) }",
    "k": "(float[4, 3] x, int64[1] k) => (float[4, a] y, int64[4, a] z) { y, z = TopK (x, k) }",
    "repeats": "(float[2, 2] x, int64[2] r) => (float[a, b] y) { y = Tile (x, r) }",
    "pads": "(float[2, 2] x, int64[4] p) => (float[a, b] y) { y = Pad <mode = \"reflect\"> (x, p) }",
    "a grid": "(float[2, 2, 3] t, int64[4] s) => (float[a, b, c, 2] y) { y = AffineGrid (t, s) }",
    "an image and a block": "(float[1, 12, 6] x, int64[2] i, int64[2] b) => (float[1, c, h, w] y) "
                            "{ y = Col2Im (x, i, b) }",
    "bounds and steps": "(float[5, 4] x, int64[2] s, int64[2] e, int64[2] axes, int64[2] steps) => (float[a, b] y) "
                        "{ y = Slice (x, s, e, axes, steps) }",
    "a depth": "(int64[4] i, int64 depth, float[2] v) => (float[4, a] y) { y = OneHot (i, depth, v) }",
    "a divisor": "(int32[6] x, int32[6] by) => (int32[6] y) { y = Div (x, by) }",
    "scales": "(float[1, 2, 4, 4] x, float[4] s) => (float[a, b, c, d] y) { y = Resize (x, , s) }",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_inputs_keep_the_rules_of_the_operator_that_reads_them(tmp_path, name):
    made = model_of(f"net {MODELS[name]}", 20)
    case = case_of(tmp_path, made)
    maker, different = Maker(case, lambda _: None), set()
    for seed in range(12):
        inputs = maker(Draw({}, "plain", seed))
        outputs = ReferenceSession(made).run(inputs)
        different.add(tuple(array.tobytes() for key, array in inputs.items() if array.dtype.kind == "i"))
        assert all(array.ndim for array in outputs)
    assert len(different) > 1 or name in ("axes of size 1", "scales"), "other values in other draws"


def test_what_an_input_is_for_is_found_through_other_nodes_bodies_and_functions():
    made = model_of(
        """net (float[2, 6] x, int32 n) => (float[a, b] y) {
        wide = Cast <to = 7> (n)
        zero = Constant <value_ints = [0]> ()
        one = Unsqueeze (wide, zero)
        rest = Constant <value_ints = [-1]> ()
        s = Concat <axis = 0> (rest, one)
        y = Reshape (x, s)
    }""",
        20,
    )
    reshape = [use for use in uses(made)["n"] if use.node.op_type == "Reshape"]
    assert [(use.place, use.part) for use in reshape] == [(1, True)]
    made = model_of("net (float[2, 6] x, int64 axis) => (float[2, 6] y) { y = own.sums (x, axis) }", 20)
    nodes = [helper.make_node("CumSum", ["a", "b"], ["c"])]
    made.functions.append(
        helper.make_function("own", "sums", ["a", "b"], ["c"], nodes, [helper.make_opsetid("", 20)])
    )
    assert [use.node.op_type for use in uses(made)["axis"]] == ["sums", "CumSum"]


def test_a_file_with_an_axis_is_checked_and_a_wrong_axis_is_found(tmp_path, bench):
    made = model_of("net (float[3, 4] x, int64 axis) => (float[3, 4] y) { y = CumSum (x, axis) }", 20)
    accuracy = next(cell for cell in plan(case_of(tmp_path, made)) if cell.check == "accuracy")
    assert verdict(bench.run_cell(accuracy, examples=2)) == PASSED


def test_whole_numbers_that_are_computed_with_are_more_than_0_and_1(tmp_path):
    made = model_of("net (int32[50] x, uint8[50] z) => (int32[50] y) { w = Cast <to = 6> (z) y = Add (x, w) }", 20)
    inputs = Maker(case_of(tmp_path, made), lambda _: None)(Draw({}, "plain", 0))
    assert np.unique(inputs["x"]).size > 5 and inputs["x"].min() < 0
    assert inputs["z"].max() > 1


# ---- what is given -------------------------------------------------------------------------------------------
def test_the_values_of_an_input_can_be_given(tmp_path, capsys):
    made = model_of("net (float[2, 6] x, int64[n] s) => (float[a, b] y) { y = Reshape (x, s) }", 20)
    save(made, tmp_path / "net.onnx")
    assert exactly(header(tmp_path / "net.onnx"), {"s": "3,-1"}) == {
        "s": {"type": "int64[2]", "values": {"exactly": [3, -1]}}
    }
    case = case_of(tmp_path, made, "  inputs: {s: {type: 'int64[2]', values: {exactly: [3, -1]}}}\n")
    assert Maker(case, lambda _: None)(Draw({}, "large", 3))["s"].tolist() == [3, -1]


@pytest.mark.parametrize(("given", "said"), [
    ("t=1", "there is no input 't'"), ("s=one", "the values of an input are numbers, as in s=1,3,4"),
    ("s", "write NAME=VALUE"),
])  # fmt: skip
def test_values_that_no_input_can_have_are_refused(tmp_path, capsys, given, said):
    save(model_of("net (float[2] x, int64[1] s) => (float[a] y) { y = Reshape (x, s) }"), tmp_path / "net.onnx")
    assert main(["check", str(tmp_path / "net.onnx"), "--input", given]) == 2
    assert said in capsys.readouterr().err
