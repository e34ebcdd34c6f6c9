"""Failing examples node by node: kernels that are wrong, models that are, rules that are broken."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

from conformance.diagnose.nodes.forms import NUMBERS, VECTORS, WORDS
from conformance.diagnose.nodes.node_walk import decided, walk
from conformance.diagnose.nodes.operator_rules import RULES, broken, broken_by
from conformance.results.records.explanation import NodeByNode
from conformance.runtimes import openvino
from conformance.runtimes.onnxruntime import OnnxRuntimeSession
from tests.kit.cases import details, say, verdict, with_symbolic
from tests.kit.models import model_of
from tests.kit.planting import planted
from tests.kit.runtimes import wrong_runtime
from tests.plants.edits import behind, plus, times
from tests.plants.planting import kernel, refusing

pytestmark = pytest.mark.own_store


@pytest.fixture
def no_openvino(monkeypatch):
    """As on a host that has only what every host has."""
    monkeypatch.setitem(sys.modules, "openvino", None)


def zeros(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


def numbers(*values: Any) -> Any:
    return np.array(values, np.int64)


DATA = zeros(3, 4)
SCALAR = np.array(0, np.int64)


ONE, IMAGE = numbers(1), zeros(1, 2, 4, 4)
BOXES, SCORES = zeros(1, 3, 4), zeros(1, 2, 3)
KEPT_AND_BROKEN: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("ScatterElements", {"axis": 1}, [DATA, zeros(2, 3, dtype="i8"), zeros(2, 3)],
     [DATA, zeros(2, 3, dtype="i8"), zeros(2, 4)]),
    ("GatherElements", {"axis": 1}, [DATA, zeros(3, 9, dtype="i8")], [DATA, np.full((3, 9), 4)]),
    ("Gather", {"axis": 1}, [DATA, numbers(-4, 3)], [DATA, numbers(4)]),
    ("GatherND", {}, [DATA, numbers([2, 3])], [DATA, numbers([3, 0])]),
    ("ScatterND", {}, [DATA, numbers([2], [0]), zeros(2, 4)], [DATA, numbers([2], [0]), zeros(2, 3)]),
    ("CumSum", {}, [DATA, np.array(-2)], [DATA, np.array(2)]),
    ("Mod", {}, [numbers(1, 2), numbers(3)], [numbers(1, 2), numbers(1, 0)]),
    ("Div", {}, [DATA, zeros()], [numbers(1), numbers(0)]),
    ("Concat", {"axis": 0}, [DATA, zeros(1, 4)], [DATA, zeros(3, 3)]),
    ("Reshape", {}, [DATA, numbers(2, -1)], [DATA, numbers(5, -1)]),
    ("Reshape", {}, [DATA, numbers(0, 4)], [DATA, numbers(0, 3)]),
    ("Reshape", {"allowzero": 1}, [zeros(0, 4), numbers(0)], [DATA, numbers(0, 4)]),
    ("Expand", {}, [zeros(3, 1), numbers(2, 3, 4)], [DATA, numbers(3, 5)]),
    ("Transpose", {"perm": [1, 0]}, [DATA], [zeros(3, 4, 5)]),
    ("MatMul", {}, [DATA, zeros(4, 2)], [DATA, zeros(3, 2)]),
    ("Gemm", {"transB": 1}, [DATA, zeros(2, 4)], [DATA, zeros(4, 2)]),
    ("Split", {"axis": 1}, [DATA, numbers(1, 3)], [DATA, numbers(1, 2)]),
    ("Slice", {}, [DATA, numbers(0), numbers(9)], [DATA, numbers(0), numbers(9, 9)]),
    ("Squeeze", {}, [zeros(1, 3), numbers(0)], [zeros(1, 3), numbers(1)]),
    ("Tile", {}, [DATA, numbers(1, 2)], [DATA, numbers(2)]),
    ("TopK", {}, [DATA, numbers(4)], [DATA, numbers(5)]),
    ("Range", {}, [SCALAR, SCALAR, np.array(1)], [SCALAR, SCALAR, SCALAR]),
    ("Add", {}, [DATA, zeros(3, 1)], [DATA, zeros(3)]),
    # lists of numbers, and numbers
    *(("Slice", {}, [DATA, numbers(0), numbers(9), numbers(-1), numbers(2)], wrong) for wrong in (
        [DATA, SCALAR, np.array(9)], [DATA, numbers([0]), numbers([9])], [DATA, numbers(0), numbers(9), SCALAR],
        [DATA, numbers(0, 0), numbers(9, 9), numbers(1, -1)], [DATA, numbers(0), numbers(9), numbers(2)],
        [DATA, numbers(0), numbers(9), numbers(0, 1)], [DATA, numbers(0), numbers(9), numbers(0), SCALAR],
        [DATA, numbers(0), numbers(9), numbers(0), numbers(0)], [DATA, *[numbers(0, 0, 0)] * 2])),
    *((operator, {}, [DATA, *more], [DATA, *wrong]) for operator, more, wrong in (
        ("Reshape", [numbers(12)], [np.array(12)]), ("Reshape", [numbers(2, 6)], [numbers([2, 6])]),
        ("Expand", [numbers(3, 4)], [np.array(4)]), ("Expand", [numbers(1)], [numbers(-2)]),
        ("Tile", [numbers(1, 2)], [np.array(2)]), ("Tile", [numbers(0, 2)], [numbers(-1, 2)]),
        ("TopK", [numbers(2)], [np.array(2)]), ("TopK", [numbers(2)], [numbers(1, 2)]),
        ("Squeeze", [numbers()], [SCALAR]), ("Squeeze", [numbers()], [numbers(2)]),
        ("Unsqueeze", [numbers(-4, 1)], [np.array([[0]])]), ("Unsqueeze", [numbers(2)], [numbers(3)]),
        ("Unsqueeze", [numbers(0, 3)], [numbers(0, -4)]), ("Split", [numbers(3)], [np.array(3)]),
        ("Split", [numbers(3)], [numbers(4, -1)]), ("ReduceSum", [numbers(-2, 1)], [numbers(2)]),
        ("ReduceMax", [numbers(0)], [numbers([0])]), ("Trilu", [SCALAR], [numbers(0, 1)]),
        ("CumSum", [ONE], [numbers(0, 1)]), ("Compress", [np.ones(12, bool)], [np.ones((3, 4), bool)]),
        ("Compress", [np.ones(12, bool)], [np.ones(13, bool)]),
        ("Clip", [zeros(), zeros()], [zeros(), zeros(4)]), ("Dropout", [zeros()], [zeros(2)]),
        ("Dropout", [np.array(0.5, "f4")], [np.array(1, "f4")]))),
    ("Trilu", {}, [DATA], [zeros(3)]),
    ("EyeLike", {}, [DATA], [zeros(3)]),
    ("ConstantOfShape", {}, [numbers(2, 3)], [np.array(2)]),
    ("ConstantOfShape", {}, [numbers()], [numbers(2, -1)]),
    ("Range", {}, [SCALAR, np.array(3), ONE.reshape(())], [SCALAR, numbers(3, 4), np.array(1)]),
    ("Range", {}, [SCALAR, np.array(3), np.array(-1)], [SCALAR, numbers([3]), np.array(1)]),
    ("Gather", {}, [DATA, np.array(-3)], [zeros(), np.array(0)]),
    ("Gather", {"axis": 1}, [DATA, numbers()], [DATA, numbers(-5)]),
    ("GatherND", {}, [DATA, numbers(2)], [DATA, SCALAR]),
    ("GatherND", {"batch_dims": 1}, [DATA, numbers([0], [1], [3])], [DATA, numbers([0], [1])]),
    ("ScatterND", {}, [DATA, numbers([-1, 0]), zeros(1)], [DATA, numbers([0, 0, 0]), zeros(1)]),
    ("OneHot", {"axis": 1}, [numbers(0, 2), np.array(3), zeros(2)], [numbers(0, 2), numbers(3, 3), zeros(2)]),
    ("OneHot", {}, [numbers(0, 2), ONE, zeros(2)], [numbers(0, 2), np.array(3), zeros(3)]),
    ("OneHot", {"axis": -2}, [numbers(0, 2), ONE, zeros(2)], [numbers(0, 2), np.array(-3), zeros(2)]),
    ("Pad", {}, [DATA, numbers(0, 1, 0, 2)], [DATA, numbers(0, 1)]),
    ("Pad", {}, [DATA, numbers(0, -1, 0, -3)], [DATA, numbers(0, -2, 0, -3)]),
    ("Pad", {}, [DATA, numbers(1, 1), zeros(), numbers(-1)], [DATA, numbers(1, 1), zeros(), numbers(2)]),
    ("Pad", {}, [DATA, numbers(1, 1), None, numbers(0)], [DATA, numbers(1, 1), zeros(2), numbers(0)]),
    ("Resize", {}, [IMAGE, None, np.float32([1, 1, 2, 2])], [IMAGE, None, np.float32([2, 2])]),
    ("Resize", {"axes": [2, 3]}, [IMAGE, None, None, numbers(2, 2)], [IMAGE, None, None, numbers(1, 1, 2, 2)]),
    ("Resize", {}, [IMAGE, None, None, numbers(1, 2, 2, 2)], [IMAGE]),
    ("Resize", {}, [IMAGE, None, np.float32([1, 1, 0.5, 0.5])], [IMAGE, None, np.float32([1, 1, 0, 1])]),
    ("NonMaxSuppression", {}, [BOXES, SCORES, ONE], [BOXES, zeros(1, 2, 4), ONE]),
    ("NonMaxSuppression", {}, [BOXES, SCORES, np.array(2)], [zeros(3, 4), SCORES, ONE]),
    ("NonMaxSuppression", {}, [BOXES, SCORES], [zeros(1, 3, 5), SCORES]),
    ("Col2Im", {}, [zeros(1, 8, 9), numbers(4, 4), numbers(2, 2)], [zeros(1, 7, 9), numbers(4, 4), numbers(2, 2)]),
    ("Col2Im", {}, [zeros(1, 8, 9), numbers(4, 4), numbers(2, 2)], [zeros(1, 8, 9), numbers(4, 4), numbers(2)]),
    ("AffineGrid", {}, [zeros(1, 2, 3), numbers(1, 1, 2, 2)], [zeros(1, 3, 4), numbers(1, 1, 2, 2)]),
    ("AffineGrid", {}, [zeros(2, 3, 4), numbers(2, 1, 2, 2, 2)], [zeros(1, 2, 3), numbers(1, 2, 2)]),
    ("CenterCropPad", {"axes": [1]}, [DATA, numbers(7)], [DATA, numbers(7, 7)]),
    ("ReverseSequence", {}, [DATA, numbers(1, 2, 3, 3)], [DATA, numbers(1, 2, 3)]),
    ("ReverseSequence", {}, [DATA, numbers(1, 2, 3, 1)], [DATA, numbers(1, 2, 4, 1)]),
    ("RoiAlign", {}, [IMAGE, zeros(2, 4), numbers(0, 0)], [IMAGE, zeros(2, 4), numbers(0, 1)]),
    ("Softmax", {"axis": -2}, [DATA], [zeros(3)]),
    ("ArgMax", {"axis": 1}, [DATA], [zeros(3)]),
    ("Flatten", {"axis": 2}, [DATA], [zeros(3)]),
    ("BitShift", {"direction": "LEFT"}, [np.uint32([1, 2]), np.uint32([1])], [np.uint32([1, 2]), np.uint32([1] * 3)]),
]  # fmt: skip
"""An operator, its attributes, inputs that keep its rules, and inputs that break one."""


@pytest.mark.parametrize("operator, attributes, sound, wrong", KEPT_AND_BROKEN)
def test_what_breaks_the_rules_of_an_operator_is_told_and_what_keeps_them_passes(operator, attributes, sound, wrong):
    assert broken(operator, attributes, sound) is None and broken(operator, attributes, wrong)


def alone(operator: str, attributes: dict[str, Any], inputs: list[Any], opset: int = 20) -> onnx.ModelProto:
    """A model of one node."""
    names = ["" if value is None else f"x{place}" for place, value in enumerate(inputs)]
    made = {"TopK": 2, "Split": inputs[1].size if operator == "Split" else 0}.get(operator, 1)
    node = onnx.helper.make_node(operator, names, [f"y{place}" for place in range(made)], **attributes)
    given = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in zip(names, inputs, strict=True) if name]  # fmt: skip
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = onnx.helper.make_graph([node], "alone", given, outputs)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)


def test_what_keeps_the_rules_is_computed_by_onnx_runtime_or_the_evaluator():
    """So that no rule asks for more than ONNX does."""
    for operator, attributes, sound, _ in KEPT_AND_BROKEN:
        model = alone(operator, attributes, sound)
        feeds = {f"x{place}": value for place, value in enumerate(sound) if value is not None}
        assert broken(operator, attributes, sound, 20) is None, operator
        try:
            OnnxRuntimeSession(model.SerializeToString(), (), optimize=False).run(feeds)
        except Exception:
            onnx.reference.ReferenceEvaluator(model).run(None, feeds)


@pytest.mark.parametrize("operator, opset, sound, wrong", [
    ("Gather", 20, [DATA, np.int32([0])], [DATA, np.float32([0])]),
    ("Add", 20, [DATA, DATA], [DATA, DATA.astype("f8")]),
    ("Where", 20, [np.array([True]), DATA, DATA], [ONE, DATA, DATA]),
    ("Slice", 20, [DATA, ONE, ONE], [DATA, ONE, np.int32([1])]),
    ("BitShift", 20, [np.uint32([1]), np.uint32([1])], [ONE, ONE]),
    ("Loop", 20, [ONE, np.array(True), DATA, ONE], [np.float32([1]), np.array(True), DATA]),
    ("LayerNormalization", 17, [DATA, zeros(4)], [ONE, zeros(4)]),
    ("ReduceMax", 20, [np.array([True])], [np.array(["a"])]),
    ("Equal", 19, [np.array(["a"]), np.array(["b"])], [np.array(["a"]), ONE]),
    ("ReduceMax", 20, [np.array([True])], [np.array([1j], "c8")]),
])  # fmt: skip
def test_dtypes_are_those_that_the_operator_takes_at_the_opset(operator, opset, sound, wrong):
    assert broken(operator, {}, sound, opset) is None and "tensor(" in (broken(operator, {}, wrong, opset) or "")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_no_rule_is_broken_by_what_onnx_tests_its_operators_with():
    from onnx.backend.test.case.node import collect_testcases

    met, told = set(), []
    for case in collect_testcases(None):
        opset = {entry.domain: entry.version for entry in case.model.opset_import}.get("")
        for inputs, _ in case.data_sets if opset and len(case.model.graph.node) == 1 else ():
            (node,) = case.model.graph.node
            values = {value.name: array for value, array in zip(case.model.graph.input, inputs, strict=False)}
            if all(name in values for name in node.input if name):
                met.add(node.op_type)
                told.append((case.name, broken_by(node, [values.get(name) for name in node.input], opset)))
    assert [one for one in told if one[1] is not None] == []
    assert len(met & {*RULES, *VECTORS, *NUMBERS, *WORDS}) > 90


GRID = zeros(1, 2, 2, 2)
WORDED: list[tuple[str, str, list[Any]]] = [
    ("DepthToSpace", "mode", [zeros(1, 4, 2, 2)]), ("Gelu", "approximate", [DATA]),
    ("Pad", "mode", [DATA, numbers(0, 1, 0, 1)]), ("BitShift", "direction", [np.uint32([1]), np.uint32([1])]),
    ("GridSample", "padding_mode", [IMAGE, GRID]),
    ("ScatterElements", "reduction", [DATA, numbers([0]), zeros(1, 1)]),
    *(("Resize", name, [IMAGE, None, np.float32([1, 1, 2, 2])]) for name in ("mode", "nearest_mode")),
    ("MaxPool", "auto_pad", [IMAGE]), ("RoiAlign", "mode", [IMAGE, zeros(1, 4), numbers(0)]),
]  # fmt: skip


def test_a_word_that_an_attribute_may_be_loads_and_another_breaks_a_rule():
    more = {"DepthToSpace": {"blocksize": 2}, "MaxPool": {"kernel_shape": [2, 2]}}
    for operator, name, inputs in WORDED:
        for word in WORDS[operator][name].split():
            attributes = {**more.get(operator, {}), name: word}
            assert broken(operator, attributes, inputs, 20) is None
            OnnxRuntimeSession(alone(operator, attributes, inputs).SerializeToString(), (), optimize=False)
        assert f"{name} none_of_them is none of " in (broken(operator, {name: b"none_of_them"}, inputs, 20) or "")


def test_every_rule_is_of_an_operator_and_lets_missing_inputs_be():
    for operator in {*RULES, *VECTORS, *NUMBERS, *WORDS}:
        assert onnx.defs.has(operator) and broken(operator, {}, []) is None


def saved(tmp_path: Path, graph: str, **constants: Any) -> Path:
    onnx.save(onnx.shape_inference.infer_shapes(model_of(f"planted {graph}", **constants)), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


X = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}


@pytest.mark.parametrize("graph, constants, operator", [
    ("(float[a, b] x) => (float y) { t = ReduceSum <keepdims = 0> (x) y = CumSum (t, axis) }", {"axis": SCALAR},
     "CumSum"),
    ("(float[a, b] x) => (float[a, b] y) { t = Relu (x) y = ScatterElements <axis = 1> (t, i, x) }",
     {"i": np.zeros((3, 2), np.int64)}, "ScatterElements"),
    ("(float[a, b] x) => (int64[2] y) { t = Shape (x) y = Mod (t, z) }", {"z": numbers(2, 0)}, "Mod"),
])  # fmt: skip
def test_a_model_whose_values_break_an_operators_rules_is_wrong_however_lenient_the_evaluator_is(
    tmp_path, graph, constants, operator
):
    walked = walk(saved(tmp_path, graph, **constants), (), X)
    shown = decided(walked, lambda outputs: True, "run")
    assert shown is not None and shown.shown == "rules" and shown.place is not None
    assert (shown.place["operator"], shown.place["how"]) == (operator, "breaks")


def test_a_sound_model_breaks_nothing_and_parts_nowhere(tmp_path):
    branch = "{name} () => (float[a, 5] {name}) {{ {name} = Mul (t, t) }}"
    branches = f"then_branch = {branch.format(name='p')}, else_branch = {branch.format(name='q')}"
    body = f"t = MatMul (x, w) s = Softmax (t) u = If (c) <{branches}> y = Add (s, u)"
    constants = {"w": np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5), "c": np.array(True)}
    walked = walk(saved(tmp_path, f"(float[a, b] x) => (float[a, 5] y) {{ {body} }}", **constants), (), X)
    assert (walked.parted, walked.open, walked.ended, walked.refused) == ([], [], None, None)
    right = onnx.reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, X)
    assert walked.first is not None and np.allclose(walked.first[0], right[0], rtol=1e-5)
    assert decided(walked, lambda outputs: True, "compare") == NodeByNode("nodes")
    assert decided(walked, lambda outputs: False, "compare") is None
    assert decided(walked, lambda outputs: True, "run") is None


def test_the_rounding_of_a_nodes_inputs_is_no_parting(tmp_path):
    """ONNX Runtime and the evaluator add up in another order what adds up to almost nothing."""
    x = {"x": (np.linspace(-1, 1, 1200) * 1e3).astype(np.float32).reshape(30, 40)}
    graph = "(float[a, b] x) => (float y) { t = ReduceSum <keepdims = 0> (x) y = Exp (t) }"
    assert walk(saved(tmp_path, graph), (), x).parted == []


def test_another_order_of_the_same_sums_is_no_parting_and_narrow_arithmetic_is(tmp_path):
    """As by products that were cut to 10 bits."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    x = {"x": rng.standard_normal((1, 64, 12, 12)).astype(np.float32)}
    file = saved(tmp_path, "(float[a, 64, h, w] x) => (float[a, 64, i, j] y) { y = Conv (x, w) }", w=weight)
    assert walk(file, (), x).parted == []
    with planted(kernel(behind("Conv", times(1.0 + 2**-10)))):
        assert [place.operator for place in walk(file, (), x).parted] == ["Conv"]


def wrong(operator: str) -> Any:
    """ONNX Runtime gives 1.01 times what that operator does, in whole models and alone."""
    return planted(kernel(behind(operator, times(1.01))))


OPEN = 'forward: {forward}\ninputs: {{x: "float32[batch, 3]"}}\ndims: {{batch: 1..4}}\nspecials: false'
LATER = OPEN.format(forward="torch.cos(torch.sin(x)).log_softmax(-1)")


def test_a_wrong_kernel_is_found_though_the_evaluator_has_no_say_on_another_node(bench, no_openvino):
    with wrong("Cos"):
        record = bench.run(LATER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime") and record.conclusion == "kernel"
    assert record.loss is None  # by these kernels all would be lost by the export
    place = record.parts_at
    assert (place["operator"], place["how"], place["by"]) == ("Cos", "parts", "onnx-reference")
    assert any(line.startswith("at the node Cos") and "specification" in line for line in details(record))


def test_a_kernel_that_gives_the_wrong_infinity_is_found(tmp_path):
    file = saved(tmp_path, "(float[a] x) => (float[a] y) { y = Reciprocal (x) }")
    inputs = {"x": np.array([0.0, 0.5], np.float32)}
    assert walk(file, (), inputs).parted == []
    with planted(kernel(behind("Reciprocal", times(-1.0)))):
        inputs["x"] = inputs["x"][:1]
        assert [place.operator for place in walk(file, (), inputs).parted] == ["Reciprocal"]


def test_a_wrong_kernel_is_sought_only_among_nodes_that_the_failing_output_depends_on(tmp_path):
    """Two outputs share a node, and a body reads one from around it; the other output's own kernel is wrong too."""
    branch = "{name} () => (float[a, b] {name}) {{ {name} = Mul (t, t) }}"
    branches = f"then_branch = {branch.format(name='p')}, else_branch = {branch.format(name='q')}"
    body = f"s = Sin (x) t = Cos (s) u = Tan (s) y = Relu (u) z = If (c) <{branches}>"
    graph = f"(float[a, b] x) => (float[a, b] y, float[a, b] z) {{ {body} }}"
    file = saved(tmp_path, graph, c=np.array(True))

    def parted(*failing: int) -> list[str]:
        return [place.operator for place in walk(file, (), X, failing).parted]

    with wrong("Cos"), wrong("Tan"):
        assert (parted(0), parted(1), parted(0, 1), parted()) == (["Tan"], ["Cos"], ["Cos", "Tan"], ["Cos", "Tan"])


def test_a_wrong_kernel_is_no_loss_of_the_export(bench):
    with wrong("Cos"):
        record = bench.run(OPEN.format(forward="torch.cos(torch.sin(x))"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.loss.keys() == {"export", "runtime"} and record.loss["runtime"] < 60 < record.loss["export"]


@pytest.mark.skipif(openvino.absence() is not None, reason="openvino is not installed")
def test_openvino_is_asked_about_a_node_that_the_evaluator_has_no_say_on(bench, monkeypatch):
    with wrong("LogSoftmax"):
        record = bench.run(LATER)
        monkeypatch.setitem(sys.modules, "openvino", None)
        alone = bench.run(LATER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.parts_at["operator"] == "LogSoftmax"
    assert verdict(alone) == ("failed", "compare", "WrongValue", None)
    assert (alone.conclusion, alone.parts_at["operator"], alone.parts_at["how"]) == ("open", "LogSoftmax", "open")


def test_a_wrong_model_is_not_excused_by_a_kernel_that_is_wrong_elsewhere(bench):
    with wrong("Cos"):
        record = bench.run(OPEN.format(forward="torch.cos(torch.sin(x)) + int(x.shape[0])"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert (record.conclusion, record.parts_at["operator"]) == ("kernels", "Cos")


def test_a_model_that_is_wrong_either_way_is_nobodys_fault_where_its_substitute_is_none_of_pytorchs(bench):
    """The evaluator's kernel is wrong as well, in whole models and alone, and otherwise than ONNX Runtime's."""
    with wrong("Cos"), wrong_runtime(lambda _, outputs: [outputs[0] * np.float32(0.9)], "onnx-reference", "openvino"):
        record = bench.run(OPEN.format(forward="torch.cos(torch.sin(x))"))
    assert verdict(record) == ("failed", "compare", "WrongValue", None)
    assert (record.conclusion, record.parts_at["operator"]) == ("either", "Cos")


@pytest.mark.skipif(openvino.absence() is not None, reason="openvino is not installed")
def test_an_exporter_is_not_at_fault_beside_openvino_that_agrees(bench):
    """Though node by node the evaluator computes what ONNX Runtime does."""
    edit = behind("Cos", times(1.01))
    with planted(kernel(edit)), wrong_runtime(lambda _, outputs: [outputs[0] * np.float32(1.01)], "onnx-reference"):
        record = bench.run(OPEN.format(forward="torch.cos(x)"))
    assert {one["runtime"]: one["answer"] for one in record.witnesses}["openvino"] == "agrees"
    assert (record.status, record.fault, record.conclusion) == ("failed", None, "open")


def test_a_wrong_model_is_the_exporters_where_every_node_computes_what_others_do(bench, no_openvino):
    record = bench.run(OPEN.format(forward="torch.sin(x) + int(x.shape[0])"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert (record.conclusion, record.parts_at) == ("nodes", None)


def test_a_walk_that_crashes_leaves_what_the_whole_model_shows(bench):
    def edit(model: Any) -> int:
        if len(model.graph.node) == 1:  # a node alone
            os.kill(os.getpid(), signal.SIGSEGV)
        return behind("Sin", times(1.01))(model)

    with planted(kernel(edit)):
        record = bench.run(OPEN.format(forward="torch.cos(torch.sin(x))"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime") and record.parts_at is None


def test_a_rule_that_breaks_behind_a_wrong_integer_is_not_laid_to_the_model(tmp_path):
    """Also where a node between them, which is wrong in floats, parts too."""
    body = "i = ArgMax <keepdims = 0> (x) s = Sin (x) y = Gather (s, i)"
    file = saved(tmp_path, f"(float[a, b] x) => (float[b, b] y) {{ {body} }}")
    with wrong("Sin"), planted(kernel(behind("ArgMax", plus(100, "int64")))):
        walked = walk(file, (), X)
    assert [place.operator for place in walked.parted] == ["ArgMax", "Sin"]
    assert walked.ended is not None and (walked.ended.operator, walked.ended.how) == ("Gather", "stops")


@pytest.mark.parametrize("text, fault", [
    ("9 : NOT_IMPLEMENTED : Could not find an implementation for Sin(7)", "runtime"), ("1 : FAIL : planted", None),
])  # fmt: skip
def test_a_valid_model_that_the_runtime_has_no_kernel_for_is_the_runtimes_fault(bench, no_openvino, text, fault):
    with planted(refusing("Sin", "Fail", text)):
        record = bench.run(LATER)
    assert verdict(record) == ("failed", "load", "Fail", fault)
    assert (record.conclusion == "unsupported") is (fault == "runtime")


SCALAR_SUM = """
def symbolic(g, x):
    axis = g.op("Constant", value_t=__import__("torch").tensor(0))
    return g.op("Add", x, g.op("CumSum", g.op("ReduceSum", x, keepdims_i=0), axis))
"""


def test_a_model_that_breaks_the_rules_is_the_fault_of_who_made_it_though_the_evaluator_runs_it(bench):
    record = bench.run(say(OPEN.format(forward="torch.asinh(x)"), with_symbolic("aten::asinh")), SCALAR_SUM)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "case")  # whose symbolic made it
    assert (record.conclusion, record.parts_at["operator"]) == ("rules", "CumSum")
    assert any("a scalar has no axis to run along" in line for line in details(record))
