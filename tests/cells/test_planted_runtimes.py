"""Plants defects in a runtime by putting a session of ours in its place, and checks who is at fault."""

import contextlib
import functools
import itertools
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from conformance.case.draw.example import Draw, given
from conformance.cells import accuracy
from conformance.judge.comparer import repeated
from conformance.process.errors import Stopped
from tests.kit.cases import PASSED, case_of, details, verdict
from tests.kit.runtimes import ANY_OPTIMIZER, replaced_runtime, wrong_runtime

BODY = case_of("torch.sin(x)", dims="batch: 1..64")
WRONG = ("failed", "compare", "WrongValue", "runtime")


def off_by_a_bit(inputs, outputs):
    return [outputs[0] + np.float32(1e-3)]


def off_where(condition):
    return lambda inputs, outputs: off_by_a_bit(inputs, outputs) if condition(inputs["x"]) else outputs


def run_wrong(bench, alter, *names, body=BODY):
    """The record of a case whose runtimes of these names are wrong: ONNX Runtime, its optimizer on or off."""
    with wrong_runtime(alter, *(names or ANY_OPTIMIZER)):
        return bench.run(body)


@pytest.mark.smoke
def test_an_answer_that_only_the_optimizer_gets_wrong_is_the_runtimes_fault_and_names_the_optimizer(bench):
    assert verdict(bench.run(BODY)) == PASSED
    record = run_wrong(bench, off_by_a_bit, "onnxruntime")
    assert verdict(record) == WRONG and any("graph optimizer breaks it" in line for line in details(record))


def test_an_answer_that_is_wrong_without_the_optimizer_too_is_the_runtimes_fault_alone(bench):
    record = run_wrong(bench, off_by_a_bit)
    assert verdict(record) == WRONG and not any("graph optimizer breaks it" in line for line in details(record))
    assert any("specification" in line and "agrees" in line for line in details(record))


def test_the_specifications_evaluator_being_wrong_is_its_own_fault(bench):
    with wrong_runtime(off_by_a_bit, "onnx-reference"):
        assert verdict(bench.run(BODY, runtime="onnx-reference")) == WRONG
        assert verdict(bench.run(BODY, runtime="onnxruntime")) == PASSED


@pytest.mark.parametrize("alter, error", [
    pytest.param(lambda inputs, outputs: [], "WrongCount", id="an output is missing"),
    pytest.param(lambda inputs, outputs: [outputs[0][:, :1]], "WrongShape", id="would broadcast"),
    pytest.param(lambda inputs, outputs: [outputs[0] + np.float32("inf")], "WrongInf", id="infinity"),
    pytest.param(lambda inputs, outputs: [outputs[0][::-1]], "WrongValue", id="rows backwards"),
])  # fmt: skip
def test_what_a_runtime_gets_wrong_has_its_own_name(bench, alter, error):
    assert verdict(run_wrong(bench, alter)) == ("failed", "compare", error, "runtime")


def test_a_failure_that_does_not_come_again_is_its_own_reason(bench):
    calls = []

    def once(inputs, outputs):
        calls.append(1)
        return off_by_a_bit(inputs, outputs) if len(calls) == 3 else outputs

    record = run_wrong(bench, once, "onnxruntime")
    assert verdict(record) == ("failed", "compare", "NotRepeatable", "runtime")


TINY = 2.0**-23


def changing(of):
    """Sessions that give another last bit in every second call, or in every second session."""
    seen = []

    @contextlib.contextmanager
    def opened(original, model, libraries, **options):
        with original(model, libraries, **options) as session:
            run, mine = session.run, len(seen)
            seen.append(session)
            calls = itertools.count()
            session.run = lambda inputs: [
                output * np.float32(1 + (mine if of == "sessions" else next(calls)) % 2 * TINY)
                for output in run(inputs)
            ]
            yield session

    return lambda original: functools.partial(opened, original)


@pytest.mark.parametrize("of", ["calls", "sessions"])
def test_what_a_runtime_does_not_give_again_bit_by_bit_is_noted_and_excuses_nothing(bench, of, monkeypatch):
    monkeypatch.setattr(accuracy, "AGAIN", math.inf)  # however busy the host is
    assert bench.run(BODY).warnings == []
    with replaced_runtime(changing(of)):
        record = bench.run(BODY)
    assert verdict(record) == PASSED, record.reason
    (warning,) = record.warnings
    assert re.fullmatch(f"ONNX Runtime varies by [1-9]e-0[78] between {of}", warning["text"])
    assert f"warning: {warning['text']}" in details(record)
    with replaced_runtime(changing(of)):
        wrong = run_wrong(bench, off_by_a_bit, "onnxruntime")
    assert verdict(wrong) == WRONG and any("varies by" in one["text"] for one in wrong.warnings)


def test_what_takes_long_to_load_and_call_is_not_done_again(bench, monkeypatch):
    monkeypatch.setattr(accuracy, "AGAIN", 0.0)
    with replaced_runtime(changing("sessions")):
        record = bench.run(BODY)
    assert verdict(record) == PASSED and record.warnings == []


def after_others(seen):
    """Sessions that give another last bit once another model was opened in the process."""

    @contextlib.contextmanager
    def opened(original, model, libraries, **options):
        seen.add(model.read_bytes())
        with original(model, libraries, **options) as session:
            run = session.run
            session.run = lambda inputs: [output * np.float32(1 + (len(seen) > 1) * TINY) for output in run(inputs)]
            yield session

    return lambda original: functools.partial(opened, original)


@pytest.mark.parametrize("off", [True, False])
def test_what_a_runtime_gives_otherwise_after_other_cells_is_noted_where_an_earlier_run_had_none(
    bench, off, monkeypatch
):
    monkeypatch.setattr(accuracy, "AGAIN", math.inf)
    answers = bench.folder / "answers"
    with replaced_runtime(after_others(set())) if off else contextlib.nullcontext():
        first, other, again = (bench.run(body, answers=answers) for body in (BODY, case_of("torch.cos(x)"), BODY))
    assert [verdict(one) for one in (first, other, again)] == [PASSED] * 3 and first.warnings == other.warnings == []
    told = [re.fullmatch(r"ONNX Runtime varies by [1-9]e-0[78] between runs", one["text"]) for one in again.warnings]
    assert len(told) == off and all(told), again.warnings


def test_an_output_that_is_random_on_purpose_is_not_said_to_vary(bench):
    body = case_of("torch.sin(x)", "outputs: [{name: y, random: standard normal}]")
    with wrong_runtime(lambda inputs, outputs: [np.random.default_rng().normal(size=outputs[0].shape)]):
        assert [one["name"] for one in bench.run(body).warnings] == ["random"]


@pytest.mark.parametrize("now, fault", [(1.0, "runtime"), (2.0, "case")])
def test_where_what_is_right_has_changed_in_between_the_runtime_is_not_at_fault(now, fault):
    """As where a module reads memory that nobody has written."""
    first, second = (given(Draw({}, "plain", 0), {}, [np.float32([right])], None, None, ()) for right in (1.0, now))
    comparer = SimpleNamespace(again=lambda example: second, failure=lambda example: None)
    with pytest.raises(Stopped) as stopped:
        repeated(comparer, first, Stopped("compare", "WrongValue", "off"))
    assert (stopped.value.error, stopped.value.fault) == ("NotRepeatable", fault)


@pytest.mark.parametrize("threshold", [2, 64])
def test_the_smallest_shape_that_fails_is_shown(bench, threshold):
    record = run_wrong(bench, off_where(lambda x: len(x) >= threshold))
    assert verdict(record) == WRONG and record.draw["dims"] == record.worst["dims"] == {"batch": threshold}


@pytest.mark.parametrize("declared, shown", [
    ('"float32[batch, 3]"', "0.0, 0.0, 0.0"),
    ('{type: "float32[batch, 3]", values: {uniform: {low: 0.5, high: 3}}}', "1.0, 1.0, 1.0"),
])  # fmt: skip
def test_values_are_as_simple_as_the_case_allows(bench, declared, shown):
    record = run_wrong(bench, off_by_a_bit, body=BODY.replace('"float32[batch, 3]"', declared))
    assert record.draw["dims"] == {"batch": 1} and f"x = float32 [[{shown}]]" in details(record)


def test_a_value_that_matters_is_kept(bench):
    record = run_wrong(bench, off_where(lambda x: x.max() > 10))
    assert verdict(record) == WRONG
    (shown,) = (line for line in details(record) if line.startswith("x = float32 [["))
    assert max(float(value) for value in shown.partition("[[")[2].rstrip("]").split(", ")) > 10


def test_the_worst_element_says_what_the_runtime_gave_and_by_how_much_that_is_off(bench):
    worst = run_wrong(bench, off_by_a_bit).worst
    assert worst["got"] - worst["wanted"] == pytest.approx(1e-3, rel=1e-3)
    assert worst["error"] == pytest.approx(1e-3, rel=1e-3) and worst["ratio"] > 50
    assert (worst["output"], len(worst["index"])) == (0, 2)
