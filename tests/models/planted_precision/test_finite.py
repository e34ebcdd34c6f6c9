"""Models in fp16 that give NaN or infinities where PyTorch's outputs are finite, on values next to the plain ones."""

import pytest

from conformance.results.records.record import Record
from tests.kit.cases import PASSED, Bench, details, say, verdict
from tests.models.planted_precision.support import COMMON, run

UNDECLARED = """
inputs: {x: 'float32[batch, 8]'}
dims: {batch: 1..4}
"""
MASKED = """
inputs:
  x: {type: 'float32[batch, 8]', values: {uniform: {low: -40, high: 40}}}
  m: {type: 'float32[batch, 8]', values: {choice: [0.0, 1.0]}}
dims: {batch: 1..4}
"""

VANISHES = "(x.abs() + 2) / ((x.abs() + 1e-7) * 1e-3).amax(-1, keepdim=True)"
"""1e-10 is 0 in fp16."""


def uniform(low: float, high: float) -> str:
    values = f"{{uniform: {{low: {low}, high: {high}}}}}"
    return f"inputs: {{x: {{type: 'float32[batch, 8]', values: {values}}}}}\ndims: {{batch: 1..4}}"


def fidelity(bench: Bench, forward: str, inputs: str, more: str = "", precisions: str = "{fp16: {}}") -> Record:
    body = say(f"forward: {forward}", inputs, COMMON, f"precisions: {precisions}", more)
    return run(bench, "fidelity", "fp16", body)


def test_a_norm_that_vanishes_for_tiny_rows_is_named(bench):
    record = fidelity(bench, VANISHES, uniform(-1, 1))
    assert verdict(record) == ("failed", "compare", "WrongInf", "precision")
    assert record.draw is not None and record.draw["regime"] == "tiny"
    said = "\n".join(details(record))
    assert "Div /Div is the first to give infinity" in said
    assert "before it Mul /Mul became 0, which was up to 1" in said and "exclude:" in said


def test_a_row_that_is_masked_out_is_nan_in_fp16(bench):
    """-1e9 becomes -65504 in fp16, and minus infinity with a negative score added."""
    record = fidelity(bench, "torch.softmax(x + m * -1e9, -1)", MASKED)
    assert verdict(record) == ("failed", "compare", "WrongNaN", "precision")
    assert record.draw is not None and record.draw["flags"] == "ends"
    assert any("Add /Add is the first to give infinity of -" in line for line in details(record))
    assert verdict(fidelity(bench, "torch.softmax(x + m * -1e4, -1)", MASKED)) == PASSED


def test_a_sum_that_overflows_at_the_ends_of_its_range(bench):
    """The sums of plain values, of which the case is calibrated, stay below 65504."""
    forward = "(x * x).sum(-1).sqrt()"
    record = fidelity(bench, forward, uniform(-100, 100))
    assert verdict(record) == ("failed", "compare", "WrongInf", "precision")
    assert any("ReduceSum /ReduceSum is the first to give infinity" in line for line in details(record))
    kept = "{fp16: {exclude: [Mul, ReduceSum, Sqrt]}}"
    assert verdict(fidelity(bench, forward, uniform(-100, 100), precisions=kept)) == PASSED


def test_values_that_the_case_does_not_declare_may_be_too_large_and_are_told(bench):
    record = fidelity(bench, "x * x * 300", UNDECLARED)
    assert verdict(record) == PASSED and {entry["regime"] for entry in record.beyond} == {"large"}
    assert any("large values, which the case does not declare, do not fit" in line for line in details(record))
    declared = fidelity(bench, "x * x / 300", uniform(-300, 300))
    assert (declared.status, declared.error) == ("failed", "Overflow"), "plain values reach beyond, in calibration"


def test_tiny_values_that_the_case_does_not_declare_count(bench):
    record = fidelity(bench, VANISHES, UNDECLARED)
    assert (record.status, record.error, record.fault) == ("failed", "WrongInf", "precision")


@pytest.mark.parametrize("forward", [
    "x / (torch.sqrt((x * x).sum(-1, keepdim=True)) + 1e-4)",
    "torch.log(x.abs())",  # PyTorch's own is not finite either
])  # fmt: skip
def test_sound_modules_pass_on_every_regime(bench, forward):
    record = fidelity(bench, forward, uniform(-1, 1))
    assert verdict(record) == PASSED and not record.beyond


def test_draws_that_are_declared_to_fail_are_run_apart(bench):
    when = "{precision: fp16, values: [tiny, zero, offset]}"
    entry = f"{{when: {when}, stage: compare, error: WrongInf, because: a test}}"
    record = fidelity(bench, VANISHES, uniform(-1, 1), f"fails: [{entry}]")
    assert record.status == "xfailed"
    healed = fidelity(bench, "x / 2", uniform(-1, 1), f"fails: [{entry}]")
    assert (healed.status, healed.error) == ("failed", "UnexpectedPass")
