"""A cause is told once in a run's output, the other cells say as in which; what is told of losses and inputs."""

import math

import numpy as np
import pytest

from conformance.compare.shown import shown
from conformance.front.commands.watch.watch_loop import first_of
from conformance.results.records import text
from conformance.results.records.explanation import bears_out
from tests.results.report.support import record


def stopped(case="case", **values):
    given = {"status": "failed", "stage": "export", "error": "RuntimeError", "reason": "no such operator"}
    return record(case, **{**given, **values})


@pytest.mark.smoke
@pytest.mark.parametrize("first, second, alike", [
    ({}, {"runtime": "onnx-reference", "opset": 17}, True),
    ({"reason": "not in opset 20"}, {"reason": "not in opset 17", "opset": 17}, True),
    ({}, {"opset": 17, "error": "TypeError"}, False), ({}, {"exporter": "torchscript"}, False),
    ({}, {"case": "other", "source": {"file": "cases/case.yaml", "line": 70}}, False),
    ({"stage": "declare", "fault": "case"}, {"stage": "declare", "fault": "case", "exporter": "torchscript"}, True),
    ({"stage": "convert"}, {"stage": "convert", "check": "fidelity"}, True),
    ({"stage": "load"}, {"stage": "load", "opset": 17}, True),
    ({"stage": "load", "fault": None}, {"stage": "load", "fault": None, "runtime": "onnx-reference"}, False),
    ({"stage": "run"}, {"stage": "run", "opset": 17}, False),
])  # fmt: skip
def test_cells_of_one_finding_that_stopped_before_an_example_share_what_is_told(first, second, alike):
    told = {}
    one, other = ({"fault": "exporter", **given} for given in (first, second))
    one, other = stopped(**one), stopped(**other)
    assert first_of(one, told) is None and first_of(other, told) == (one.id if alike else None)


def test_a_repetition_is_one_line():
    long = stopped(reason="first line\nsecond line\n" + "x" * 1000)
    told = text.repetition(long, "export[case-dynamo-op20]")
    assert told.startswith(
        "cases/case.yaml:7: RuntimeError at stage export, as in export[case-dynamo-op20]: first line second line x"
    )
    assert "\n" not in told and len(told) == 240


def test_numbers_of_all_examples_and_of_one_are_told_apart():
    low = stopped(
        stage="compare", error="LowFidelity",
        reason="output 0: SQNR 19.1 dB over all 48 examples, at least 20 dB expected",
        fidelity={"output": 0, "sqnr": 19.1}, loss={"export": 139.0, "conversion": 10.7},
        draw={"dims": {"batch": 3}, "regime": "plain", "seed": 5, "index": 2},
    )  # fmt: skip
    lines = text.failure(low).split("\n")
    assert lines[0].endswith("SQNR 19.1 dB over all 48 examples, at least 20 dB expected")
    assert lines[1] == "the example that shows it best: batch=3; plain values, seed 5"
    assert "  loss by stage, as SQNR (higher is better), in the example that shows it best:" in lines


NONE = math.inf


@pytest.mark.smoke
@pytest.mark.parametrize("loss, fault, says_the_same", [
    ({"export": 9.5, "optimizer": NONE}, "exporter", True), ({"export": 9.5, "optimizer": NONE}, "runtime", False),
    ({"export": NONE, "optimizer": 12.0}, "runtime", True),
    ({"export": NONE, "optimizer": 12.0}, "exporter", False),
    ({"export": NONE, "optimizer": NONE}, "exporter", False),
    ({"export": 140.0, "conversion": 12.0}, "precision", True),
    ({"export": 40.0, "conversion": 60.0}, "runtime", True), ({"export": 9.5}, None, True),
    ({"export": "RuntimeError"}, "exporter", True), ({}, "exporter", False),
])  # fmt: skip
def test_a_loss_is_told_where_it_says_the_same_as_the_verdict(loss, fault, says_the_same):
    assert bears_out(loss, fault) == says_the_same


@pytest.mark.smoke
def test_an_input_that_is_too_large_to_print_shows_its_nan_and_infinities():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x[1, 2, 3], x[0, 1, 0], x[1, 0, 0] = np.nan, -np.inf, -np.inf
    assert (
        shown({"x": x})["x"]
        == "float32[2, 3, 4] from 0.0 to 22.0, NaN at [1, 2, 3], 2 times -inf, first at [0, 1, 0]"
    )
    assert shown({"x": np.full((4, 4), np.nan, np.float32)})["x"] == "float32[4, 4], 16 times NaN, first at [0, 0]"
    assert shown({"x": np.arange(20)})["x"] == "int64[20] from 0 to 19"
