"""On which operators ONNX's evaluator has a say: by the table that holds each version of each of them against ONNX
Runtime, and in models."""

import runpy
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper

from conformance.models.otherwise.rounded_file import RoundedSession
from conformance.process.errors import Unavailable
from conformance.runtimes import onnxreference, openvino
from conformance.runtimes.evaluator_rules import ROWS, TABLE, doubt, doubts, judgement_of, uses
from conformance.runtimes.onnxreference import ReferenceSession
from tests.kit import models

OLDEST = 7
DOCS = Path(__file__).parent.parent.parent / "docs"


def versions() -> list[tuple[str, int, int]]:
    """Each operator, each of its versions that some opset from 7 on has, and the last of these opsets."""
    newest = defs.onnx_opset_version()
    versions_of = runpy.run_path(str(DOCS / "make_evaluator_table.py"))["versions_of"]
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
        node, used = helper.make_node(operator, [], []), uses(operator, opset)
        row = ROWS.get((operator, version))
        known = row is not None and row[0] == used and row[1] in ("agrees", "differs")
        if not (known or doubt(node, opset)) and doubt(node, opset, rows={}):
            open_ones.append((operator, version, used))
    assert open_ones == []


OF_THIS_ONNX = f"with onnx {onnx.__version__}, " in TABLE.read_text(encoding="utf-8").partition("\n")[0]


@pytest.mark.skipif(not OF_THIS_ONNX, reason="the table is of another version of ONNX")
def test_the_table_has_every_version_with_the_class_that_is_used():
    assert {(operator, version): uses(operator, opset) for operator, version, opset in versions()} == {
        name: row[0] for name, row in ROWS.items()
    }


def test_every_version_that_differs_is_judged_or_left_out_as_a_whole():
    for (operator, version), (_, verdict, _) in ROWS.items():
        if verdict == "differs" and judgement_of(operator, version) is None:
            assert doubt(helper.make_node(operator, [], []), version)


@pytest.mark.parametrize("operator, opset, misread", [
    ("LogSoftmax", 11, False), ("RandomNormalLike", 17, False), ("GlobalLpPool", 17, True), ("Resize", 11, True),
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


def model_of(*nodes: Any, opset: int = 17, inputs: tuple[str, ...] = ("x",), functions: Any = (), **more: Any) -> Any:
    graph = helper.make_graph(
        list(nodes), "planted", [helper.make_tensor_value_info(name, 1, None) for name in inputs],
        [helper.make_tensor_value_info("y", 1, None)], **more,
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


SAMPLED = helper.make_node("GridSample", ["x", "x"], ["y"])


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


def test_normalisation_before_opset_15_is_computed_as_in_training_and_so_abstained_from():
    node = helper.make_node("BatchNormalization", list("xsbmv"), ["y"])
    found = [bool(doubts(model_of(node, opset=opset, inputs=tuple("xsbmv")))) for opset in (9, 13, 15)]
    assert found == [True, True, False]


@pytest.mark.parametrize("node, doubtful", [
    (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), False),
    (helper.make_node("MaxPool", ["x"], ["y", "indices"], kernel_shape=[2, 2]), True),
    (helper.make_node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode="align_corners"), True),
    (helper.make_node("Resize", ["x", "", "", "s"], ["y"], coordinate_transformation_mode="align_corners"), False),
    (helper.make_node("Dropout", ["x"], ["y"]), False),
    (helper.make_node("Dropout", ["x", "r", "t"], ["y"]), True),
    (helper.make_node("RandomNormalLike", ["x"], ["y"]), True),
    (helper.make_node("NoSuchOperator", ["x"], ["y"]), False),  # whoever wrote it is wrong, whatever the version
])  # fmt: skip
def test_only_the_nodes_that_a_judgement_is_about_are_abstained_from(node, doubtful):
    assert bool(doubts(model_of(node))) is doubtful


def test_what_an_earlier_onnx_computes_wrongly_is_abstained_from_there():
    celu, relu = (model_of(helper.make_node(name, ["x"], ["y"])) for name in ("Celu", "Relu"))
    assert [*map(str, doubts(celu, (1, 20, 0)))] == ["Celu of opset 12 (it loses small values to cancellation)"]
    assert doubts(celu, (1, 23, 0)) == doubts(relu, (1, 20, 0)) == []


@pytest.mark.parametrize("operator, opset, own", [
    ("Clip", 6, True), ("Relu", 14, True),  # Clip_6, and the newest
    ("Clip", 12, False), ("Relu", 13, False),  # Clip_11 for version 12, and that of 14
])  # fmt: skip
def test_a_version_that_the_table_does_not_know_counts_only_with_a_class_of_its_own(operator, opset, own):
    found = doubt(helper.make_node(operator, ["x"], ["y"]), opset, rows={})
    assert (found is None) is own


def weight_of(distance: Fraction) -> Fraction:
    """The weight of a cubic kernel (R. Keys, 1981, with a = -0.75) at a distance."""
    t, a = abs(distance), Fraction(-3, 4)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else Fraction(0)


def resized(values: list[int], size: int) -> list[float]:
    """A row resized by cubic interpolation with half pixels, in fractions."""
    found = []
    for index in range(size):
        place = Fraction(2 * index + 1, 2) * Fraction(len(values), size) - Fraction(1, 2)
        start = place.__floor__()
        near = [(start + step, weight_of(place - start - step)) for step in range(-1, 3)]
        found.append(float(sum(values[min(max(at, 0), len(values) - 1)] * weight for at, weight in near)))
    return found


@pytest.mark.parametrize(
    "element, session, allowed", [("float", ReferenceSession, 6e-8), ("double", RoundedSession, 1e-14)]
)
def test_resize_is_as_exact_as_the_type_that_it_computes_in(element, session, allowed):
    """The evaluator's own coefficients are those of float32 multiplied by float32, some units off in either type."""
    types = f"({element}[1,1,1,4] x, int64[4] s) => ({element}[1,1,1,10] y)"
    model = models.model_of(f'g {types} {{ y = Resize <mode = "cubic"> (x, , , s) }}', 19)
    x = np.array([[[[16, 1, 15, 16]]]], np.float32 if element == "float" else np.float64)
    (got,) = session(model).run({"x": x, "s": np.array([1, 1, 1, 10])})
    assert np.abs(got.reshape(-1) - resized([16, 1, 15, 16], 10)).max() <= allowed * 16


SUMS = """g (int64 n, float[2, 3] x) => (float[2, 3] y, float[a, 2, 3] each, int64[a] turns)
    {{ {start}y, each, turns = Loop (n, {condition}, x) <body = body (int64 i, bool go, float[2, 3] v) =>
        (bool on, float[2, 3] next, float[2, 3] seen, int64 turn)
        {{ limit = Constant <value_int = 3> ()  last = Constant <value_int = 1> ()  more = Sub (limit, last)
           on = Less (i, more)  next = Add (v, v)  seen = Neg (v)  turn = Identity (i) }}> }}"""


@pytest.mark.parametrize("condition", ["", "start"])
@pytest.mark.parametrize("turns", [1, 2, 9])
def test_a_loop_stacks_what_each_turn_gives_with_a_condition_and_without(condition, turns, tmp_path):
    start = "" if not condition else "yes = Constant <value_int = 1> ()  start = Cast <to = 9> (yes)  "
    made = models.model_of(SUMS.format(start=start, condition=condition), 17)
    x, count = np.arange(6, dtype=np.float32).reshape(2, 3), min(turns, 3)
    y, each, numbers = ReferenceSession(made).run({"n": np.array(turns), "x": x})
    assert np.array_equal(y, x * 2**count) and list(numbers) == list(range(count))
    assert np.array_equal(each, np.stack([-x * 2**turn for turn in range(count)]))
