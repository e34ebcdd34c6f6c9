"""Failing examples node by node: kernels that are wrong, models that are, rules that are broken."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.culprits.edits import behind, plus, times
from benchmarks.culprits.planting import kernel, refusing
from conformance.runtimes import openvino
from conformance.verdict.rules import RULES, broken
from conformance.verdict.walk import decided, walk
from tests.kit.cases import details, say, verdict, with_symbolic
from tests.kit.models import model_of
from tests.kit.planting import planted
from tests.kit.runtimes import wrong_runtime

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


@pytest.mark.parametrize("operator, attributes, sound, wrong", [
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
])  # fmt: skip
def test_what_breaks_the_rules_of_an_operator_is_told_and_what_keeps_them_passes(operator, attributes, sound, wrong):
    assert broken(operator, attributes, sound) is None
    assert broken(operator, attributes, wrong)


def test_every_rule_is_of_an_operator_and_lets_missing_inputs_be():
    for operator in RULES:
        assert onnx.defs.has(operator)
        assert broken(operator, {}, []) is None


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
    assert shown is not None and shown[:2] == ("exporter", "rules")
    assert shown[2] is not None and (shown[2].operator, shown[2].how) == (operator, "breaks")


def test_a_sound_model_breaks_nothing_and_parts_nowhere(tmp_path):
    branch = "{name} () => (float[a, 5] {name}) {{ {name} = Mul (t, t) }}"
    branches = f"then_branch = {branch.format(name='p')}, else_branch = {branch.format(name='q')}"
    body = f"t = MatMul (x, w) s = Softmax (t) u = If (c) <{branches}> y = Add (s, u)"
    constants = {"w": np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5), "c": np.array(True)}
    walked = walk(saved(tmp_path, f"(float[a, b] x) => (float[a, 5] y) {{ {body} }}", **constants), (), X)
    assert (walked.parted, walked.open, walked.ended, walked.refused) == ([], [], None, None)
    right = onnx.reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, X)
    assert walked.first is not None and np.allclose(walked.first[0], right[0], rtol=1e-5)
    assert decided(walked, lambda outputs: True, "compare") == ("exporter", "nodes", None)
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
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.conclusion == "kernel"
    assert record.loss is None  # by these kernels all would be lost by the export
    place = record.parts_at
    assert (place["operator"], place["how"], place["by"]) == ("Cos", "parts", "onnx-reference")
    assert any(line.startswith("at the node Cos") and "specification" in line for line in details(record))


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
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.parts_at is None


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


def test_a_model_that_breaks_the_rules_is_the_exporters_fault_though_the_evaluator_runs_it(bench):
    record = bench.run(say(OPEN.format(forward="torch.asinh(x)"), with_symbolic("aten::asinh")), SCALAR_SUM)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "exporter")
    assert (record.conclusion, record.parts_at["operator"]) == ("rules", "CumSum")
    assert any("a scalar has no axis to run along" in line for line in details(record))
