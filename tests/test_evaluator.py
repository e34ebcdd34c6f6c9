"""On which operators ONNX's evaluator has a say: by the table that holds each version of each of them against ONNX
Runtime, and in models."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from conformance.errors import Unavailable
from conformance.runtimes import evaluator_rules, onnxreference, openvino
from conformance.runtimes.evaluator_rules import doubts, judgement_of, uses, versions_of
from conformance.runtimes.evaluator_table import MADE_WITH, ROWS

OLDEST = 7

# ---- the table -----------------------------------------------------------------------------------------------------


def versions() -> list[tuple[str, int, int]]:
    """Each operator, each of its versions that some opset from 7 on has, and the last of these opsets."""
    newest = defs.onnx_opset_version()
    every = []
    for operator, schemas in versions_of().items():
        for schema, after in zip(schemas, [*schemas[1:], None], strict=True):
            until = newest if after is None else after.since_version - 1
            if until >= OLDEST and not schema.deprecated:
                every.append((operator, schema.since_version, until))
    return every


def test_every_version_that_has_no_class_of_its_own_is_in_the_table_or_abstained_from():
    open_ones = []
    for operator, version, opset in versions():
        used = uses(operator, opset)
        row = ROWS.get((operator, version))
        known = row is not None and row[0] == used and row[1] in ("agrees", "differs")
        own = evaluator_rules._is_own(used, operator, version)
        if not (known or own or evaluator_rules.doubt(helper.make_node(operator, [], []), opset)):
            open_ones.append((operator, version, used))
    assert open_ones == []


@pytest.mark.skipif(onnx.__version__ != MADE_WITH["onnx"], reason="the table is of another version of ONNX")
def test_the_table_has_every_version_with_the_class_that_is_used():
    assert {(operator, version): uses(operator, opset) for operator, version, opset in versions()} == {
        name: row[0] for name, row in ROWS.items()
    }


def test_every_version_that_differs_is_judged_or_left_out_as_a_whole():
    for (operator, version), (_, verdict, _) in ROWS.items():
        if verdict == "differs" and judgement_of(operator, version) is None:
            assert evaluator_rules.doubt(helper.make_node(operator, [], []), version)


def test_a_judgement_is_about_an_operator_of_the_table():
    assert {*evaluator_rules.JUDGED} <= {operator for operator, _ in ROWS}


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    file = Path(__file__).parent.parent / "docs" / "make_evaluator_table.py"
    spec = importlib.util.spec_from_file_location("make_evaluator_table", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SOFT = ("Softmax", {"axis": 1}, [(2, 3, 4)])
NORM = ("BatchNormalization", {}, [(3, 2), 2, 2, 2, 2])
ALIGN = ("RoiAlign", {"output_height": 3, "output_width": 3, "sampling_ratio": 2}, [(1, 1, 8, 8), (2, 4), "int64"])


@pytest.mark.parametrize("model, opset, version", [
    (SOFT, 12, 11), (SOFT, 13, 13), (NORM, 13, 9), (NORM, 15, 15), (ALIGN, 15, 10), (ALIGN, 16, 16),
])  # fmt: skip
def test_the_verdict_of_the_table_comes_out_again(maker, model, opset, version):
    operator, attributes, shapes = model
    rng = np.random.default_rng(0)
    values = {
        f"x{place}": np.zeros(2, np.int64) if shape == "int64" else rng.uniform(0.5, 4, shape).astype(np.float32)
        for place, shape in enumerate(shapes)
    }
    inputs = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in values.items()
    }
    output = helper.make_tensor_value_info("y", 1, None)
    node = helper.make_node(operator, [*values], ["y"], **attributes)
    trial = maker.Trial("planted", [node], inputs, [output], [], values)
    assert maker.answer(trial, opset) == (ROWS[operator, version][1], "")


@pytest.mark.parametrize("operator, opset, misread", [
    ("LogSoftmax", 11, False), ("LogSoftmax", 13, False), ("GlobalLpPool", 17, True),
    ("RandomNormalLike", 17, False), ("Resize", 11, True), ("GridSample", 16, True),
])  # fmt: skip
def test_a_cell_of_the_evaluator_is_skipped_only_where_it_has_other_rules(tmp_path, operator, opset, misread):
    """Elsewhere it runs, and only testifies nothing."""
    model = model_of(helper.make_node(operator, ["x"], ["y"]), opset=opset)
    (doubt,) = doubts(model)
    onnx.save(model, tmp_path / "model.onnx")
    assert onnxreference.no_witness(tmp_path / "model.onnx", {}) == f"it has no say on {doubt}"
    if misread:
        with pytest.raises(Unavailable), onnxreference.open_model(tmp_path / "model.onnx", ()):
            pass
    else:
        with onnxreference.open_model(tmp_path / "model.onnx", ()) as session:
            assert session.arithmetic["provider"] == "onnx.reference"


# ---- models --------------------------------------------------------------------------------------------------------


def model_of(*nodes: Any, opset: int = 17, inputs: tuple[str, ...] = ("x",), functions: Any = (), **more: Any) -> Any:
    graph = helper.make_graph(
        list(nodes), "planted",
        [helper.make_tensor_value_info(name, 1, None) for name in inputs],
        [helper.make_tensor_value_info("y", 1, None)], **more,
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


SAMPLED = helper.make_node("GridSample", ["x", "x"], ["y"])
SOFTMAX = helper.make_node("Softmax", ["x"], ["y"])


def in_the_graph(opset: int, operator: Any = SAMPLED) -> Any:
    return model_of(operator, opset=opset)


def in_a_subgraph(opset: int, operator: Any = SAMPLED) -> Any:
    branch = helper.make_graph([operator], "branch", [], [helper.make_tensor_value_info("y", 1, None)])
    condition = numpy_helper.from_array(np.array(True), "condition")
    node = helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch)
    return model_of(node, opset=opset, initializer=[condition])


def in_a_function(opset: int, operator: Any = SAMPLED) -> Any:
    """The function's own opset counts, whatever the model's is."""
    function = helper.make_function("own", "Planted", ["x"], ["y"], [operator], [helper.make_opsetid("", opset)])
    return model_of(helper.make_node("Planted", ["x"], ["y"], domain="own"), functions=[function])


@pytest.mark.parametrize("make", [in_the_graph, in_a_subgraph, in_a_function])
def test_an_operator_with_rules_of_another_opset_is_found_wherever_it_is(make, tmp_path):
    onnx.save(make(16), tmp_path / "old.onnx")
    refused = pytest.raises(Unavailable, match="no say on GridSample of opset 16")
    with refused, onnxreference.open_model(tmp_path / "old.onnx", ()):
        pass
    assert doubts(make(20)) == []


def together(operator: str, x: Any, axis: int) -> Any:
    """What the specification says of opset 11, in float64."""
    matrix = x.astype(np.float64).reshape(int(np.prod(x.shape[: axis % x.ndim])), -1)
    if operator == "Hardmax":
        return np.eye(matrix.shape[1])[matrix.argmax(1)].reshape(x.shape)
    logarithm = matrix - np.log(np.exp(matrix).sum(1, keepdims=True))
    return (logarithm if operator == "LogSoftmax" else np.exp(logarithm)).reshape(x.shape)


@pytest.mark.parametrize("make", [in_the_graph, in_a_subgraph, in_a_function])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [None, 0, 2, -1])
def test_all_axes_together_are_computed_by_the_old_rules_by_evaluator_and_openvino(make, operator, axis, tmp_path):
    """Wherever the node is; the opset of a function is its own."""
    node = helper.make_node(operator, ["x"], ["y"], **({} if axis is None else {"axis": axis}))
    model, file = make(11, node), tmp_path / "old.onnx"
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [2, 3, 4, 5]))  # OpenVINO needs to know
    onnx.save(model, file)
    x = {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)}
    right = together(operator, x["x"], 1 if axis is None else axis)
    with onnxreference.open_model(file, ()) as session:
        (got,) = session.run(x)
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)
    if make is in_a_function:  # OpenVINO has no local functions
        return
    (got,) = openvino.OpenVinoSession(file, ()).run(x)
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)
    assert openvino.no_witness(file, x) is None


def test_normalisation_as_opset_9_has_it_is_computed_as_in_training_and_so_abstained_from(tmp_path):
    def model(opset: int) -> Any:
        return model_of(
            helper.make_node("BatchNormalization", list("xsbmv"), ["y"]), opset=opset, inputs=tuple("xsbmv")
        )

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    inputs = {
        "x": x,
        **{name: np.full(2, value, np.float32) for name, value in zip("sbmv", (1, 0, 0, 1), strict=True)},
    }
    (as_in_training,) = ReferenceEvaluator(model(9)).run(None, inputs)
    (right,) = ReferenceEvaluator(model(15)).run(None, inputs)
    assert np.allclose(right, x, atol=1e-3) and not np.allclose(as_in_training, x, atol=0.1)
    assert doubts(model(9)) and doubts(model(13)) and not doubts(model(15))


@pytest.mark.parametrize("node, doubtful", [
    (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), False),
    (helper.make_node("MaxPool", ["x"], ["y", "indices"], kernel_shape=[2, 2]), True),
    (helper.make_node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode="align_corners"), True),
    (helper.make_node("Resize", ["x", "", "", "s"], ["y"], coordinate_transformation_mode="align_corners"), False),
    (helper.make_node("Resize", ["x", "", "s"], ["y"]), False),
    (helper.make_node("Dropout", ["x"], ["y"]), False),
    (helper.make_node("Dropout", ["x", "r", "t"], ["y"]), True),
    (helper.make_node("RandomNormalLike", ["x"], ["y"]), True),
    (helper.make_node("GlobalLpPool", ["x"], ["y"]), True),
    (helper.make_node("LogSoftmax", ["x"], ["y"]), True),
    (helper.make_node("NoSuchOperator", ["x"], ["y"]), False),  # whoever wrote it is wrong, whatever the version
])  # fmt: skip
def test_only_the_nodes_that_a_judgement_is_about_are_abstained_from(node, doubtful):
    assert bool(doubts(model_of(node))) is doubtful


def test_what_an_earlier_onnx_computes_wrongly_is_abstained_from_there(monkeypatch):
    celu = model_of(helper.make_node("Celu", ["x"], ["y"]))
    assert (doubts(celu) == []) is (evaluator_rules._installed() >= (1, 23))
    monkeypatch.setattr(evaluator_rules, "_installed", lambda: (1, 20, 0))
    assert [*map(str, doubts(celu))] == ["Celu of opset 12 (it loses small values to cancellation)"]
    assert doubts(model_of(helper.make_node("Relu", ["x"], ["y"]))) == []


def test_a_version_that_the_table_does_not_know_counts_only_with_a_class_of_its_own(monkeypatch):
    monkeypatch.setattr(evaluator_rules, "ROWS", {})
    assert doubts(model_of(helper.make_node("Clip", ["x"], ["y"]), opset=6)) == []  # Clip_6
    assert doubts(model_of(helper.make_node("Clip", ["x"], ["y"]), opset=12)) != []  # Clip_11 for version 12
    assert doubts(model_of(helper.make_node("Relu", ["x"], ["y"]), opset=14)) == []  # the newest
    assert doubts(model_of(helper.make_node("Relu", ["x"], ["y"]), opset=13)) != []
