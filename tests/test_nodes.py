"""Failing examples node by node: kernels that are wrong, models that are, rules that are broken."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.runtimes import onnxruntime, openvino
from conformance.verdict import blame
from conformance.verdict import walk as walking
from conformance.verdict.nodes import Nodes, line_of
from conformance.verdict.rules import RULES, broken
from conformance.verdict.walk import decided, walk
from tests.support import Bench, details, say, verdict, with_symbolic


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


@pytest.fixture
def no_openvino(monkeypatch):
    """As on a host that has only what every host has."""
    monkeypatch.setattr(openvino, "absence", lambda: "planted")


# ---- rules of operators --------------------------------------------------------------------------------------------


def zeros(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


def numbers(*values: Any) -> Any:
    return np.array(values, np.int64)


DATA = zeros(3, 4)
SCALAR = np.array(0, np.int64)


@pytest.mark.parametrize("operator, attributes, sound, wrong", [
    ("ScatterElements", {"axis": 1}, [DATA, zeros(2, 3, dtype="i8"), zeros(2, 3)],
     [DATA, zeros(2, 3, dtype="i8"), zeros(2, 4)]),
    ("ScatterElements", {}, [DATA, zeros(2, 4, dtype="i8"), zeros(2, 4)],
     [DATA, zeros(2, 5, dtype="i8"), zeros(2, 5)]),
    ("GatherElements", {"axis": 1}, [DATA, zeros(3, 9, dtype="i8")], [DATA, np.full((3, 9), 4)]),
    ("Gather", {"axis": 1}, [DATA, numbers(-4, 3)], [DATA, numbers(4)]),
    ("GatherND", {}, [DATA, numbers([2, 3])], [DATA, numbers([3, 0])]),
    ("ScatterND", {}, [DATA, numbers([2], [0]), zeros(2, 4)], [DATA, numbers([2], [0]), zeros(2, 3)]),
    ("CumSum", {}, [DATA, SCALAR], [zeros(), SCALAR]),
    ("CumSum", {}, [DATA, np.array(-2)], [DATA, np.array(2)]),
    ("Mod", {}, [numbers(1, 2), numbers(3)], [numbers(1, 2), numbers(1, 0)]),
    ("Mod", {"fmod": 1}, [DATA, zeros()], [numbers(1), numbers(0)]),
    ("Div", {}, [DATA, zeros()], [numbers(1), numbers(0)]),
    ("Concat", {"axis": 0}, [DATA, zeros(1, 4)], [DATA, zeros(4)]),
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


# ---- walks ---------------------------------------------------------------------------------------------------------


def saved(tmp_path: Path, nodes: list[Any], inputs: dict[str, Any], constants: dict[str, Any]) -> Path:
    graph = helper.make_graph(
        nodes, "planted",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
         for name, array in inputs.items()],
        [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model)
    onnx.save(inferred, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


X = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}


@pytest.mark.parametrize("nodes, constants, operator", [
    ([helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0), helper.make_node("CumSum", ["t", "axis"], ["y"])],
     {"axis": SCALAR}, "CumSum"),
    ([helper.make_node("Relu", ["x"], ["t"]), helper.make_node("ScatterElements", ["t", "i", "x"], ["y"], axis=1)],
     {"i": np.zeros((3, 2), np.int64)}, "ScatterElements"),
    ([helper.make_node("Shape", ["x"], ["t"]), helper.make_node("Mod", ["t", "z"], ["y"])], {"z": numbers(2, 0)},
     "Mod"),
    ([helper.make_node("Gather", ["x", "i"], ["y"], axis=1)], {"i": numbers(7)}, "Gather"),
])  # fmt: skip
def test_a_model_whose_values_break_an_operators_rules_is_wrong_however_lenient_the_evaluator_is(
    tmp_path, nodes, constants, operator
):
    walked = walk(saved(tmp_path, nodes, X, constants), (), X)
    shown = decided(walked, lambda outputs: True, "run")
    assert shown is not None and shown[:2] == ("exporter", "rules")
    assert shown[2] is not None and (shown[2].operator, shown[2].how) == (operator, "breaks")


def test_a_sound_model_breaks_nothing_and_parts_nowhere(tmp_path):
    branch = helper.make_graph(
        [helper.make_node("Mul", ["t", "t"], ["b"])], "branch", [], [helper.make_tensor_value_info("b", 1, None)]
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Softmax", ["t"], ["s"]),
        helper.make_node("If", ["c"], ["u"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["s", "u"], ["y"]),
    ]  # fmt: skip
    constants = {"w": np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5), "c": np.array(True)}
    walked = walk(saved(tmp_path, nodes, X, constants), (), X)
    assert (walked.parted, walked.open, walked.ended, walked.refused) == ([], [], None, None)
    right = onnx.reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, X)
    assert walked.first is not None and np.allclose(walked.first[0], right[0], rtol=1e-5)
    assert decided(walked, lambda outputs: True, "compare") == ("exporter", "nodes", None)
    assert decided(walked, lambda outputs: False, "compare") is None
    assert decided(walked, lambda outputs: True, "run") is None


def test_a_subgraph_takes_its_values_from_around_it():
    branch = helper.make_graph([helper.make_node("Mul", ["t", "k"], ["b"])], "branch", [], [])
    branch.initializer.append(numpy_helper.from_array(np.float32(1), "k"))
    node = helper.make_node("If", ["c"], ["u"], then_branch=branch, else_branch=branch)
    assert Nodes(helper.make_model(helper.make_graph([node], "g", [], []))).needs(node) == ["c", "t"]


@pytest.mark.parametrize("text, line", [
    ('File "/a/torch/nn/module.py", line 3, in call\nFile "/home/me/net.py", line 12, in forward', "net.py:12"),
    ("/home/me/net.py(12): forward", "net.py:12"), ("", None), ("no place", None),
])  # fmt: skip
def test_the_line_of_python_that_a_node_comes_from_is_told_without_its_folder(text, line):
    node = helper.make_node("Relu", ["x"], ["y"])
    node.doc_string = text
    assert line_of(node) == line
    node.doc_string = ""
    node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=text)
    assert line_of(node) == line


# ---- planted kernels -----------------------------------------------------------------------------------------------


@pytest.fixture
def break_kernel(monkeypatch, tmp_path):
    """``break_kernel("Cos")``: ONNX Runtime gives 1.01 times what that operator does, in whole models and alone."""

    def break_(operator: str, module: Any = onnxruntime, *openers: str) -> None:
        def planted(original: Any) -> Any:
            @contextlib.contextmanager
            def open_planted(model: Any, libraries: Any, **options: Any) -> Iterator[Any]:
                loaded = onnx.load(model)
                nodes = []
                for node in loaded.graph.node:
                    made = onnx.NodeProto.FromString(node.SerializeToString())
                    nodes.append(made)
                    if node.op_type == operator:
                        name = made.output[0]
                        made.output[0] = f"{name}/planted"
                        nodes.append(helper.make_node("Mul", [made.output[0], "planted/by"], [name]))
                del loaded.graph.node[:]
                loaded.graph.node.extend(nodes)
                loaded.graph.initializer.append(numpy_helper.from_array(np.float32(1.01), "planted/by"))
                file = tmp_path / "planted.onnx"
                onnx.save(loaded, file)
                with original(file, libraries, **options) as session:
                    yield session

            return open_planted

        for name in openers or ("open_optimized", "open_unoptimized"):
            monkeypatch.setattr(module, name, planted(getattr(module, name)))

    return break_


OPEN = 'forward: {forward}\ninputs: {{x: "float32[batch, 3]"}}\ndims: {{batch: 1..4}}\nspecials: false'
LATER = OPEN.format(forward="torch.cos(torch.sin(x)).log_softmax(-1)")


def test_a_wrong_kernel_is_found_though_the_evaluator_has_no_say_on_another_node(bench, break_kernel, no_openvino):
    break_kernel("Cos")
    record = bench.run(LATER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.conclusion == "kernel"
    assert (record.parts_at["operator"], record.parts_at["how"], record.parts_at["by"]) == (
        "Cos", "parts", "onnx-reference",
    )  # fmt: skip
    assert any(line.startswith("at the node Cos") and "specification" in line for line in details(record))


def test_a_wrong_kernel_that_nobody_else_has_leaves_that_node_alone_open(bench, break_kernel, no_openvino):
    break_kernel("LogSoftmax")
    record = bench.run(LATER)
    assert verdict(record) == ("failed", "compare", "WrongValue", None)
    assert (record.conclusion, record.parts_at["operator"], record.parts_at["how"]) == ("open", "LogSoftmax", "open")


@pytest.mark.skipif(openvino.absence() is not None, reason="openvino is not installed")
def test_openvino_is_asked_about_a_node_that_the_evaluator_has_no_say_on(bench, break_kernel):
    break_kernel("LogSoftmax")
    record = bench.run(LATER)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.parts_at["operator"] == "LogSoftmax"


def test_a_wrong_model_is_not_excused_by_a_kernel_that_is_wrong_elsewhere(bench, break_kernel):
    break_kernel("Cos")
    record = bench.run(OPEN.format(forward="torch.cos(torch.sin(x)) + int(x.shape[0])"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert (record.conclusion, record.parts_at["operator"]) == ("kernels", "Cos")


def test_a_wrong_model_is_the_exporters_where_every_node_computes_what_others_do(bench, no_openvino):
    record = bench.run(OPEN.format(forward="torch.sin(x) + int(x.shape[0])"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert (record.conclusion, record.parts_at) == ("nodes", None)


def test_a_walk_that_crashes_leaves_what_the_whole_model_shows(bench, break_kernel, monkeypatch):
    def crash(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    monkeypatch.setattr(blame, "walk", crash)
    break_kernel("Sin")
    record = bench.run(OPEN.format(forward="torch.sin(x)"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


# ---- what is valid and what is not ---------------------------------------------------------------------------------


class NotImplemented_(Exception):
    """As ONNX Runtime raises it."""


@pytest.fixture
def refuse(monkeypatch):
    def refuse_(operator: str, text: str) -> None:
        def planted(original: Any) -> Any:
            @contextlib.contextmanager
            def open_planted(model: Any, libraries: Any, **options: Any) -> Iterator[Any]:
                if any(node.op_type == operator for node in onnx.load(model).graph.node):
                    raise NotImplemented_(text)
                with original(model, libraries, **options) as session:
                    yield session

            return open_planted

        for name in ("open_optimized", "open_unoptimized"):
            monkeypatch.setattr(onnxruntime, name, planted(getattr(onnxruntime, name)))

    return refuse_


@pytest.mark.parametrize("text, fault", [
    ("9 : NOT_IMPLEMENTED : Could not find an implementation for Sin(7)", "runtime"), ("1 : FAIL : planted", None),
])  # fmt: skip
def test_a_valid_model_that_the_runtime_has_no_kernel_for_is_the_runtimes_fault(
    bench, refuse, no_openvino, text, fault
):
    refuse("Sin", text)
    record = bench.run(LATER)
    assert verdict(record) == ("failed", "load", "NotImplemented_", fault)
    assert (record.conclusion == "unsupported") is (fault == "runtime")


SCALAR_SUM = """
def symbolic(g, x):
    axis = g.op("Constant", value_t=__import__("torch").tensor(0))
    return g.op("Add", x, g.op("CumSum", g.op("ReduceSum", x, keepdims_i=0), axis))
"""


def test_a_model_that_breaks_the_rules_is_the_exporters_fault_though_the_evaluator_runs_it(bench):
    own = 'forward: torch.asinh(x)\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}\nspecials: false'
    record = bench.run(say(own, with_symbolic("aten::asinh")), SCALAR_SUM)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "exporter")
    assert (record.conclusion, record.parts_at["operator"]) == ("rules", "CumSum")
    assert any("a scalar has no axis to run along" in line for line in details(record))


def test_the_rounding_of_a_nodes_inputs_is_no_parting(tmp_path):
    """ONNX Runtime and the evaluator add up in another order what adds up to almost nothing."""
    x = {"x": (np.linspace(-1, 1, 1200) * 1e3).astype(np.float32).reshape(30, 40)}
    nodes = [helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0), helper.make_node("Exp", ["t"], ["y"])]
    assert walk(saved(tmp_path, nodes, x, {}), (), x).parted == []


@pytest.mark.parametrize("factor, parts", [(1.0, False), (1.0 + 2**-10, True)])
def test_another_order_of_the_same_sums_is_no_parting_and_narrow_arithmetic_is(tmp_path, factor, parts):
    """``factor`` is by how much the other side's sums are off, as by products that were cut to 10 bits."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    x = {"x": rng.standard_normal((1, 64, 12, 12)).astype(np.float32)}
    file = saved(tmp_path, [helper.make_node("Conv", ["x", "w"], ["y"])], x, {"w": weight})
    nodes = Nodes(onnx.load(file))
    (node,), values = nodes, nodes.start(x)
    kernels = walking._Kernels(nodes, (), tmp_path)
    got = kernels.run("onnxruntime-unoptimized", node, values)
    right = kernels.run("onnx-reference", node, values)
    assert not np.array_equal(got[0], right[0])
    got = [array * np.float32(factor) for array in got]
    assert kernels.alike("onnx-reference", node, values, got, right) is not parts
