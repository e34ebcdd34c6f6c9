"""Plants defects in a runtime by putting a session of ours in its place, and checks who gets the blame."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.runtimes import onnxruntime
from tests.support import PASSED, Alter, altered, details, verdict

BODY = """
forward: torch.sin(x)
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..64}
"""


@pytest.fixture
def break_runtime(monkeypatch):
    """``break_runtime(alter, "open_optimized", ...)``: what ``alter`` makes of onnxruntime's outputs."""

    def break_(alter: Alter, *openers: str) -> None:
        for name in openers:
            monkeypatch.setattr(onnxruntime, name, altered(getattr(onnxruntime, name), alter))

    return break_


BOTH = ("open_optimized", "open_unoptimized")


def off_by_a_bit(inputs, outputs):
    return [outputs[0] + np.float32(1e-3)]


def test_an_answer_that_only_the_optimizer_gets_wrong_is_the_runtimes_fault_and_names_the_optimizer(
    bench, break_runtime
):
    assert verdict(bench.run(BODY)) == PASSED
    break_runtime(off_by_a_bit, "open_optimized")
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert any("graph optimizer breaks it" in line for line in details(record))


def test_an_answer_that_is_wrong_without_the_optimizer_too_is_the_runtimes_fault_alone(bench, break_runtime):
    break_runtime(off_by_a_bit, *BOTH)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert not any("graph optimizer breaks it" in line for line in details(record))
    assert any("specification" in line and "agrees" in line for line in details(record))


def test_a_wrong_model_is_the_exporters_fault_though_all_runtimes_are_sound(bench):
    record = bench.run(BODY.replace("torch.sin(x)", "x + int(x.shape[0])"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")


def test_the_specifications_evaluator_being_wrong_is_its_own_fault(bench, monkeypatch):
    from conformance.runtimes import onnxreference

    monkeypatch.setattr(onnxreference, "open_model", altered(onnxreference.open_model, off_by_a_bit))
    record = bench.run(BODY, runtime="onnx-reference")
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert verdict(bench.run(BODY, runtime="onnxruntime")) == PASSED


@pytest.mark.parametrize("alter, error", [
    pytest.param(lambda inputs, outputs: [], "WrongCount", id="an output is missing"),
    pytest.param(lambda inputs, outputs: [*outputs, *outputs], "WrongCount", id="an output too many"),
    pytest.param(lambda inputs, outputs: [outputs[0].astype("float64")], "WrongDtype", id="dtype"),
    pytest.param(lambda inputs, outputs: [outputs[0][None]], "WrongShape", id="an axis too many"),
    pytest.param(lambda inputs, outputs: [outputs[0][:, :1]], "WrongShape", id="would broadcast"),
    pytest.param(lambda inputs, outputs: [outputs[0] * np.float32("nan")], "WrongNaN", id="nan"),
    pytest.param(lambda inputs, outputs: [outputs[0] + np.float32("inf")], "WrongInf", id="infinity"),
    pytest.param(lambda inputs, outputs: [np.zeros_like(outputs[0])], "WrongValue", id="zeros"),
    pytest.param(lambda inputs, outputs: [outputs[0][::-1]], "WrongValue", id="rows backwards"),
])  # fmt: skip
def test_what_a_runtime_gets_wrong_has_its_own_name(bench, break_runtime, alter, error):
    break_runtime(alter, *BOTH)
    assert verdict(bench.run(BODY)) == ("failed", "compare", error, "runtime")


def test_a_runtime_that_raises_stops_the_cell_where_it_runs(bench, break_runtime):
    def refuse(inputs, outputs):
        raise RuntimeError("planted: not implemented")

    break_runtime(refuse, "open_optimized")
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "run", "RuntimeError", "runtime")
    assert "planted: not implemented" in record.reason


def test_a_runtime_that_does_not_load_the_model_stops_the_cell_there(bench, monkeypatch):
    def refuse(model, libraries):
        raise RuntimeError("planted: no kernel")

    monkeypatch.setattr(onnxruntime, "open_optimized", refuse)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "load", "RuntimeError", "runtime")


def test_a_failure_that_does_not_come_again_is_its_own_reason(bench, break_runtime):
    calls = []

    def once(inputs, outputs):
        calls.append(1)
        return off_by_a_bit(inputs, outputs) if len(calls) == 3 else outputs

    break_runtime(once, "open_optimized")
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "NotRepeatable", "runtime")


# ---- the smallest example ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [1, 2, 7, 33, 64])
def test_the_smallest_shape_that_fails_is_shown(bench, break_runtime, threshold):
    def wrong_from_there(inputs, outputs):
        return outputs if len(inputs["x"]) < threshold else off_by_a_bit(inputs, outputs)

    break_runtime(wrong_from_there, *BOTH)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.draw["dims"] == {"batch": threshold}
    assert record.worst["dims"] == {"batch": threshold}


def test_each_of_several_dims_gets_as_small_as_it_can(bench, break_runtime):
    body = """
    forward: torch.sin(x)
    inputs: {x: "float32[batch, h, w]"}
    dims: {batch: 1..8, h: 1..32, w: 2..32}
    """

    def wrong_where_wide(inputs, outputs):
        _, h, w = inputs["x"].shape
        return off_by_a_bit(inputs, outputs) if h >= 5 and w >= 9 else outputs

    break_runtime(wrong_where_wide, *BOTH)
    assert bench.run(body).draw["dims"] == {"batch": 1, "h": 5, "w": 9}


def test_values_are_as_simple_as_they_can_be(bench, break_runtime):
    break_runtime(off_by_a_bit, *BOTH)
    record = bench.run(BODY)
    assert record.draw["dims"] == {"batch": 1}
    assert "x = float32 [[0.0, 0.0, 0.0]]" in details(record)


def test_values_stay_inside_what_the_case_declares_while_they_get_simpler(bench, break_runtime):
    body = BODY.replace('"float32[batch, 3]"', '{type: "float32[batch, 3]", values: {uniform: {low: 0.5, high: 3}}}')
    break_runtime(off_by_a_bit, *BOTH)
    record = bench.run(body)
    assert record.draw["dims"] == {"batch": 1}
    assert "x = float32 [[1.0, 1.0, 1.0]]" in details(record)


def test_a_value_that_matters_is_kept(bench, break_runtime):
    def wrong_when_large(inputs, outputs):
        return off_by_a_bit(inputs, outputs) if inputs["x"].max() > 10 else outputs

    break_runtime(wrong_when_large, *BOTH)
    record = bench.run(BODY)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    (shown,) = (line for line in details(record) if line.startswith("x = "))
    values = np.array(eval(shown.removeprefix("x = float32 "))) if "[[" in shown else None
    assert values is None or values.max() > 10


def test_what_the_record_shows_is_what_its_worst_element_says(bench, break_runtime):
    break_runtime(off_by_a_bit, *BOTH)
    worst = bench.run(BODY).worst
    assert worst["got"] - worst["wanted"] == pytest.approx(1e-3, rel=1e-3)
    assert worst["error"] == pytest.approx(1e-3, rel=1e-3)
    assert worst["ratio"] > 50
    assert worst["output"] == 0
    assert len(worst["index"]) == 2
