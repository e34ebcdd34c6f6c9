"""What ONNX leaves open in a file gets no verdict, and a wrong value beside it is found."""

from typing import Any

import numpy as np
import onnx
import pytest

from conformance.case.draw.draw import Draw
from conformance.case.plan.catalogue import plan
from conformance.models.otherwise.undefined_file import OpenSession, UndefinedInFile
from tests.kit.cases import load_case, say
from tests.kit.judging import verifying_cell
from tests.kit.models import model_of

NAN = np.nan
POOLED = (
    "(float[1,1,2,4] x) => (float[1,1,1,2] y, int64[1,1,1,2] i) "
    "{ y, i = MaxPool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (x) }"
)
OPEN: dict[str, tuple[str, Any, tuple[int, int], tuple[int, int]]] = {
    "cast": ("(float[3] x) => (int32[3] y) { y = Cast <to: int = 6> (x) }", [3e10, 1.5, -2.5], (0, 0), (0, 1)),
    "quantizer": (
        "(float[3] x) => (uint8[3] y) <float s = {0.5}, uint8 z = {3}> { y = QuantizeLinear (x, s, z) }",
        [NAN, 2.5, 4.0], (0, 0), (0, 1),
    ),
    "no range": (
        "(float[3] x) => (uint8[3] y, float[3] z) "
        "{ t = Sub (x, x)  y, s, p = DynamicQuantizeLinear (t)  z = Neg (x) }",
        [-1.0, 2.5, 4.0], (0, 0), (1, 1),
    ),
    "written twice": (
        "(float[3] x) => (float[3] y) <int64[3] i = {1, 1, 2}> { y = ScatterElements (x, i, x) }",
        [1.0, 2.0, 3.0], (0, 1), (0, 2),
    ),
    "zeros": (
        "(float[3] x) => (float[3] y) <float least = {0}> "
        "{ t = Relu (x)  u = Clip (t, least)  y = Reciprocal (u) }",
        [-0.0, 0.0, 2.0], (0, 0), (0, 1),
    ),
    "tie": (
        "(float[3] x) => (uint8[3] y) <float s = {0.5}, uint8 z = {3}> { y = QuantizeLinear (x, s, z) }",
        [1.25, 2.5, 4.0], (0, 0), (0, 1),
    ),
    "pool": (POOLED, [[[[NAN, 1.0, 3.0, 4.0], [0.5, 0.0, 2.0, 1.0]]]], (0, 0), (0, 1)),
    "ties": (POOLED, [[[[1.0, 1.0, 3.0, 4.0], [0.5, 0.0, 2.0, 1.0]]]], (1, 0), (1, 1)),
}  # fmt: skip
"""By rule the graph, its input, and two places, each as output and index: one that is open, and one that is not."""


def of_file(folder, graph):
    """A verifier of the meaning of a file with that graph."""
    onnx.save(model_of(f"g {graph}", 23), folder / "net.onnx")
    return verifying_cell(next(plan(load_case(folder, say("onnx: net.onnx", "runtimes: onnxruntime")))))


@pytest.mark.parametrize("rule", OPEN)
def test_what_onnx_leaves_open_gets_no_verdict_and_a_wrong_value_beside_it_is_found(tmp_path, rule):
    graph, values, *places = OPEN[rule]
    x = np.array(values, np.float32)
    with of_file(tmp_path, graph) as verify:
        example = verify.example(Draw({}, "plain", 0), {"x": x})
        right = verify.reference({"x": x})

        def verdict(place: tuple[int, int]) -> str:
            outputs = [np.array(one) for one in right]
            flat = outputs[place[0]].reshape(-1)
            flat[place[1]] = 7 if flat.dtype.kind == "f" else flat[place[1]] + 1
            return verify.judged(example, outputs).verdict

        assert verify.judged(example, right).verdict != "failed"
        assert verdict(places[1]) == "failed"
        assert verdict(places[0]) != "failed"
        assert rule in verify.record.left_open


def test_of_a_file_whose_operators_define_all_that_they_give_nothing_is_open(tmp_path):
    with of_file(tmp_path, "(float[3] x) => (float[3] y) { y = Log (x) }") as verify:
        x = np.float32([-1, 0, 1])
        example = verify.example(Draw({}, "plain", 0), {"x": x})
        assert verify.judged(example, [np.float32([0, -np.inf, 0])]).verdict == "failed"
        assert not verify.record.left_open


BOXES = """(float[1,4,4] x, float[1,1,4] s) => (int64[k,3] y)
    <int64 most = {4}, float iou = {0.5}> { y = NonMaxSuppression (x, s, most, iou) }"""
HALVED = [[0.0, 0, 1, 2], [0, 0, 1, 1], [5, 5, 6, 6], [8, 8, 9, 9]]
"""The first overlaps the second by 0.5."""


@pytest.mark.parametrize("boxes, scores, others", [
    (HALVED, [4.0, 3, 2, 1], [0, 2, 3]),
    ([[0.0, 0, 1, 2], [0, 0, 1, 1.9], *HALVED[2:]], [4.0, 4, 2, 1], [1, 2, 3]),
], ids=["an overlap of just the threshold", "equal scores"])  # fmt: skip
def test_which_boxes_stay_is_open_where_a_threshold_or_a_tie_decides(tmp_path, boxes, scores, others):
    with of_file(tmp_path, BOXES) as verify:
        inputs = {"x": np.array([boxes], np.float32), "s": np.array([[scores]], np.float32)}
        chosen = np.array([[0, 0, box] for box in others])
        assert verify.judged(verify.example(Draw({}, "plain", 0), inputs), [chosen]).verdict != "failed"
        assert "overlap" in verify.record.left_open
        apart = {**inputs, "x": np.array([[*boxes[:1], [3.0, 3, 4, 4], *boxes[2:]]], np.float32),
                 "s": np.float32([[[4, 3, 2, 1]]])}  # fmt: skip
        assert verify.judged(verify.example(Draw({}, "plain", 1), apart), [chosen]).verdict == "failed"


@pytest.mark.parametrize("terms, is_open", [([3e38, -3e38, 3e38], True), ([1e38, -1e38, 1e38], False)])
def test_a_sum_is_open_only_where_some_orders_of_its_terms_go_beyond_the_format(tmp_path, terms, is_open):
    """The rule is asked by itself: where NumPy's own order overflows, float64 would excuse the sum before."""
    onnx.save(model_of("g (float[3] x) => (float[1] y) { y = ReduceSum (x) }", 17), tmp_path / "net.onnx")
    session = OpenSession(onnx.load(tmp_path / "net.onnx"))
    with UndefinedInFile(session, 0) as noted:
        (found,) = session.run({"x": np.float32(terms)})
    assert noted.rules == ({"order"} if is_open else set())
    assert np.isnan(found).all() == is_open
