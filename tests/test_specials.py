"""The check ``specials``: what NaN and infinities prove, and when they prove nothing."""

from __future__ import annotations

import pytest

from conformance.runtimes import onnxreference
from tests.support import PASSED, Bench, altered, say, verdict

SCALAR = "inputs: {x: 'float32[]'}"
VECTOR = """
    inputs: {x: 'float32[batch, 5]'}
    dims: {batch: 1..8}
"""
SPREADS = "forward: x + 0 * x.sum()"
"""One NaN or infinity makes every value of the output NaN."""


@pytest.mark.parametrize("forward", ["torch.neg(x)", "x + 1", "torch.exp(x)", "torch.relu(x)"])
def test_a_scalar_that_is_nothing_but_the_special_value_shows_what_becomes_of_it(bench: Bench, forward: str) -> None:
    record = bench.run(say(f"forward: {forward}", SCALAR), check="specials")
    assert verdict(record) == PASSED
    assert record.nothing == 0


def test_a_scalar_nan_that_becomes_a_number_is_wrong(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from conformance.runtimes import onnxruntime

    def without_nan(_inputs, outputs):
        return [np.nan_to_num(output, nan=0.0, posinf=np.inf, neginf=-np.inf) for output in outputs]

    monkeypatch.setattr(onnxruntime, "open_optimized", altered(onnxruntime.open_optimized, without_nan))
    record = bench.run(say("forward: torch.neg(x)", SCALAR), check="specials")
    assert (record.status, record.error) == ("failed", "WrongNaN")


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
def test_specials_that_spread_to_all_outputs_prove_nothing(bench: Bench, runtime: str) -> None:
    record = bench.run(say(SPREADS, VECTOR), check="specials", runtime=runtime)
    assert record.status == "skipped"
    assert "mostly NaN in every draw" in str(record.reason)


def test_a_single_draw_that_is_no_nan_is_no_fault_of_the_case(bench: Bench) -> None:
    """A power of 1.5 is NaN for all that is negative; one draw of specials has only positive values in some rows."""
    body = say("forward: torch.pow(x, 1.5).sum(1)", "inputs: {x: 'float32[batch, 3]'}", "dims: {batch: 1..3}")
    record = bench.run(body, check="specials", examples=1)
    assert (record.status, record.error, record.examples) == ("skipped", None, 1)
    assert f"mostly NaN in {record.nothing} of {record.nothing + 1} draws" in str(record.reason)
    insisted = bench.run(say(body, "specials: true"), check="specials", examples=1)
    assert verdict(insisted) == ("failed", "compare", "Vacuous", "case")


def test_a_case_that_asks_for_specials_is_held_to_them(bench: Bench) -> None:
    record = bench.run(say(SPREADS, VECTOR, "specials: true"), check="specials")
    assert verdict(record) == PASSED  # by signed zeros


def test_a_number_among_the_spread_nan_is_wrong(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from conformance.runtimes import onnxruntime

    def first_is_a_number(inputs, outputs):
        if np.isnan(inputs["x"]).any():
            outputs[0].flat[0] = 1.0
        return outputs

    monkeypatch.setattr(onnxruntime, "open_optimized", altered(onnxruntime.open_optimized, first_is_a_number))
    record = bench.run(say(SPREADS, VECTOR), check="specials")
    assert (record.status, record.error) == ("failed", "WrongNaN")


# ---- the specification's evaluator, which the default runs on every model --------------------------------------


def _raises(_self, _inputs):
    raise IndexError("index 7 is out of bounds for axis 0 with size 5")


@pytest.mark.parametrize("check", ["accuracy", "specials"])
def test_an_evaluator_that_stops_is_no_failure_of_a_case_that_did_not_name_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    monkeypatch.setattr(onnxreference.ReferenceSession, "run", _raises)
    body = say("forward: torch.neg(x)", VECTOR)
    record = bench.run(body, check=check, runtime="onnx-reference")
    assert record.status == "skipped"
    assert "evaluator stops with IndexError" in str(record.reason)
    named = bench.run(say(body, "runtimes: [onnx-reference, onnxruntime]"), check=check, runtime="onnx-reference")
    assert verdict(named) == ("failed", "run", "IndexError", "runtime")


def test_a_model_that_nobody_can_run_is_a_failure_in_the_evaluator_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from conformance.runtimes.onnxruntime import OnnxRuntimeSession

    monkeypatch.setattr(onnxreference.ReferenceSession, "run", _raises)
    monkeypatch.setattr(OnnxRuntimeSession, "run", _raises)
    record = bench.run(say("forward: torch.neg(x)", VECTOR), runtime="onnx-reference")
    assert verdict(record) == ("failed", "run", "IndexError", "exporter")


def test_a_declared_failure_of_the_evaluator_stays_declared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxreference.ReferenceSession, "run", _raises)
    body = say(
        "forward: torch.neg(x)",
        VECTOR,
        "fails: [{when: {runtime: onnx-reference}, stage: run, error: IndexError, because: a test}]",
    )
    assert bench.run(body, runtime="onnx-reference").status == "xfailed"
