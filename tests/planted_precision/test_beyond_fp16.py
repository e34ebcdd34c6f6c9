"""Values beyond what fp16 can hold: told where they arise, or where they come out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from conformance.precision import convert
from conformance.runtimes import onnxruntime
from tests.planted_precision.support import COMMON, CONVERTED, assert_blamed, behind, run
from tests.support import PASSED, Bench, details, say, verdict

SMALL = """
import numpy as np
import torch


def small(rng):
    yield {"x": rng.normal(size=(8, 4)).astype("float32")}
"""


def fp16_body(forward: str, low: float, high: float, calibration: str = "") -> str:
    values = f"values: {{uniform: {{low: {low}, high: {high}}}}}"
    inputs = f'inputs: {{x: {{type: "float32[batch, 4]", {values}}}}}\ndims: {{batch: 1..4}}'
    return say(f"forward: {forward}", inputs, COMMON, f"precisions: {{fp16: {{{calibration}}}}}")


UNSEEN = "calibration: {data: beside.small, samples: 8}"


@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_values_beyond_fp16_inside_the_model_stop_the_conversion_by_the_name_of_their_node(bench, check):
    record = run(bench, check, "fp16", fp16_body("(x * x).sum(-1).sqrt()", -400, 400))
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert "Mul /Mul reaches 1" in record.reason
    assert "ReduceSum /ReduceSum reaches" in record.reason
    assert "Sqrt" not in record.reason
    assert any("exclude:" in line for line in details(record))
    assert verdict(run(bench, check, "fp16", fp16_body("(x * x).sum(-1).sqrt()", -40, 40))) == PASSED


def test_nodes_beyond_fp16_are_told_in_the_order_of_the_graph(bench, monkeypatch):
    """Whatever the order in which ONNX Runtime measures their values."""
    original = convert.ranges

    class Reversed:
        def __init__(self, measured):
            self.items = lambda: reversed(list(measured.items()))

    body = fp16_body("(x * x).sum(-1) * 2", -400, 400)
    reasons = [run(bench, "fidelity", "fp16", body).reason]
    monkeypatch.setattr(convert, "ranges", lambda *arguments: Reversed(original(*arguments)))
    reasons.append(run(Bench(bench.folder, bench.folder / "anew"), "fidelity", "fp16", body).reason)
    assert reasons[0] == reasons[1]
    places = [reasons[0].index(name) for name in ("Mul /Mul ", "ReduceSum /ReduceSum ", "Mul /Mul_1 ")]
    assert places == sorted(places)


def test_nodes_that_are_kept_in_fp32_may_go_beyond_fp16(bench):
    body = fp16_body("(x * x).sum(-1).sqrt()", -400, 400, "exclude: [Mul, ReduceSum, Sqrt]")
    record = run(bench, "fidelity", "fp16", body)
    assert verdict(record) == PASSED
    assert record.conversion["kept"] == ["/Mul", "/ReduceSum", "/Sqrt"]


def test_a_constant_beyond_fp16_is_named(bench):
    record = run(bench, "fidelity", "fp16", fp16_body("x + 90000.0 - 90000.0", -1, 1, UNSEEN), SMALL)
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert "reaches 90000" in record.reason


def test_values_that_all_vanish_in_fp16_are_told(bench):
    record = run(bench, "fidelity", "fp16", fp16_body("x * 1e-6 * 1e-4 * 10000", -1, 1))
    assert record.status == "failed"
    assert any("/Mul" in line and "become 0" in line for line in record.conversion["underflow"])


def test_an_infinity_that_calibration_did_not_foresee_is_found_where_it_comes_out(bench):
    record = run(bench, "fidelity", "fp16", fp16_body("x * x", -400, 400, UNSEEN), SMALL)
    assert verdict(record) == ("failed", "compare", "WrongInf", "precision")
    assert "where PyTorch's are not" in record.reason
    assert record.worst["got"] == float("inf")
    assert list(record.loss) == ["export", "conversion", "optimizer"]
    assert verdict(run(bench, "fidelity", "fp16", fp16_body("x * x", -40, 40, UNSEEN), SMALL)) == PASSED


@pytest.mark.parametrize("forward, high, error", [
    pytest.param("(x * x).sum(-1).sqrt()", 400, "WrongInf", id="infinity"),
    pytest.param("x.exp() / (1 + x.exp())", 20, "WrongNaN", id="nan"),
    pytest.param("x + 1000.0 - 1000.0", 1, "LowFidelity", id="digits"),
])  # fmt: skip
def test_what_is_lost_between_two_fp16_nodes_is_lost_in_what_the_graph_means(bench, forward, high, error):
    record = run(bench, "fidelity", "fp16", fp16_body(forward, -high, high, UNSEEN), SMALL)
    assert verdict(record) == ("failed", "compare", error, "precision")


def test_what_an_fp16_graph_means_is_what_numpy_computes_in_fp16(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Sqrt", ["b"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    values = np.random.default_rng(0).uniform(1, 400, 1000).astype("float32")
    with onnxruntime.open_literal(tmp_path / "model.onnx", []) as session, np.errstate(over="ignore"):
        (got,) = session.run({"x": values})
        half = values.astype("float16")
        np.testing.assert_array_equal(got, np.sqrt(half * half).astype("float32"))


NOT_FINITE = pytest.mark.parametrize("factors, error", [
    pytest.param([1, 1, np.nan, 1, 1], "WrongNaN", id="some NaN"),
    pytest.param([1, 1, np.inf, 1, 1], "WrongInf", id="some infinite"),
])  # fmt: skip


@NOT_FINITE
@CONVERTED
def test_a_converted_model_that_gives_some_values_that_are_not_finite_is_the_precisions_fault(
    bench, break_conversion, precision, factors, error
):
    break_conversion(lambda model: behind(model, "Mul", factors))
    record = run(bench, "fidelity", precision)
    assert_blamed(record, error, "precision", "conversion")


@CONVERTED
@pytest.mark.parametrize("factor, error", [(np.nan, "WrongNaN"), (np.inf, "WrongInf")])
def test_a_converted_model_that_gives_nothing_finite_is_the_precisions_fault(
    bench, break_conversion, precision, factor, error
):
    break_conversion(lambda model: behind(model, "Mul", factor))
    record = run(bench, "fidelity", precision)
    assert_blamed(record, error, "precision", "conversion")


WIDE = """
import torch


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sum = torch.nn.Linear(64, 4)
        with torch.no_grad():
            self.sum.weight.abs_()

    def forward(self, x):
        return self.sum(x) ** 2


def small(rng):
    yield {"x": rng.normal(size=(8, 64)).astype("float32")}
"""


def test_an_exporter_is_not_at_fault_for_an_infinity_of_fp16(bench):
    body = fp16_body("x", 100, 200, UNSEEN).replace("forward: x", "module: beside.Wide").replace("4]", "64]")
    record = run(bench, "fidelity", "fp16", body, WIDE)
    assert_blamed(record, "WrongInf", "precision", "conversion")


def test_an_input_beyond_fp16_can_be_kept_in_fp32_as_the_message_says(bench):
    body = fp16_body("x * 0.25", -200_000, 200_000)
    record = run(bench, "fidelity", "fp16", body)
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert any("exclude:" in line for line in details(record))
    assert verdict(run(bench, "fidelity", "fp16", body.replace("fp16: {}", "fp16: {exclude: Mul}"))) == PASSED


def test_a_node_that_is_kept_in_fp32_has_its_constants_in_fp32(bench):
    body = fp16_body("x.round() * 0.1", -8, 8, "exclude: [Round, Mul]")
    record = run(bench, "fidelity", "fp16", body)
    assert record.fidelity["sqnr"] > 120
