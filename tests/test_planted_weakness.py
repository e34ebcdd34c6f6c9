"""Plants outputs that prove nothing: vacuous ones, ill-conditioned draws, specials that drown everything."""

from __future__ import annotations

import pytest

from tests.support import PASSED, say, verdict, with_symbolic

# ---- vacuity ---------------------------------------------------------------------------------------------

VACUOUS = ("failed", "compare", "Vacuous", "case")


@pytest.mark.parametrize("forward", [
    pytest.param("torch.zeros_like(x)", id="zeros"),
    pytest.param("torch.ones_like(x)", id="ones"),
    pytest.param("x * 0 + 3.5", id="constant"),
    pytest.param("torch.relu(x - 100)", id="never reached"),
    pytest.param("x * 1e-9 + 1", id="tiny beside an offset"),
])  # fmt: skip
def test_outputs_that_would_pass_whatever_the_inputs_are_vacuous(bench, forward):
    body = f"""
    forward: {forward}
    inputs: {{x: {{type: "float32[batch, 3]", values: {{uniform: {{low: -1, high: 1}}}}}}}}
    dims: {{batch: 1..9}}
    """
    record = bench.run(body)
    assert verdict(record) == VACUOUS
    assert record.reason.startswith("output 0: ")
    assert verdict(bench.run(say(body, "vacuous: it is meant to be"))) == PASSED


@pytest.mark.parametrize("forward", [
    pytest.param("x * 1e-30", id="tiny"),
    pytest.param("torch.arange(x.shape[0])", id="of the shape alone"),
    pytest.param("torch.relu(x)", id="half zero"),
])  # fmt: skip
def test_outputs_that_a_wrong_model_would_miss_are_not_vacuous(bench, forward):
    body = f"""
    forward: {forward}
    inputs: {{x: {{type: "float32[batch, 3]", values: {{uniform: {{low: -1, high: 1}}}}}}}}
    dims: {{batch: 1..9}}
    """
    assert verdict(bench.run(body)) == PASSED


def test_one_vacuous_output_among_sound_ones_is_named(bench):
    body = """
    forward: "(torch.sin(x), torch.ones_like(x))"
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """
    record = bench.run(body)
    assert verdict(record) == VACUOUS
    assert record.reason.startswith("output 1: ")
    excused = say(body, "outputs: [sound, {name: ones, vacuous: ones are what is asked for}]")
    assert verdict(bench.run(excused)) == PASSED


# ---- conditioning ----------------------------------------------------------------------------------------

BRITTLE = """
forward: torch.asinh(x + 4096.0) if False else (x + 4096.0) - 4096.0
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..9}
export:
  torchscript:
    opsets: [17]
    symbolics: {"aten::add": beside.first, "aten::sub": beside.first}
"""
FIRST = "def first(g, x, *rest):\n    return g.op('Identity', x)\n"


def test_draws_on_which_float32_itself_is_off_are_counted_and_not_believed(bench):
    """The model gives the exact answer, and PyTorch in float32 is what loses digits."""
    record = bench.run(BRITTLE, FIRST)
    assert record.status == "passed"
    assert record.ill_conditioned > 0
    assert record.examples > 0  # at zero, for one


def test_a_case_on_whose_own_values_float32_is_off_is_at_fault(bench):
    body = BRITTLE.replace(
        '"float32[batch, 3]"', '{type: "float32[batch, 3]", values: {uniform: {low: 0.5, high: 0.9}}}'
    )
    record = bench.run(body, FIRST)
    assert (record.status, record.stage, record.fault) == ("failed", "compare", "case")
    assert record.examples == 0


def test_a_model_far_beyond_the_error_of_float32_is_wrong_and_not_ill_conditioned(bench):
    half = "def first(g, x, *rest):\n    return g.op('Add', x, x)\n"
    record = bench.run(BRITTLE, half)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")


# ---- specials --------------------------------------------------------------------------------------------


def test_wrong_answers_to_nan_fail_the_specials_and_leave_accuracy_alone(bench):
    body = """
    forward: torch.relu(x)
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """
    body = say(body, with_symbolic('"aten::relu"'))
    wrong = """
    def symbolic(g, x):
        zero = g.op("Constant", value_t=__import__("torch").tensor(0.0))
        return g.op("Where", g.op("Greater", x, zero), x, zero)
    """
    assert verdict(bench.run(body, wrong)) == PASSED
    record = bench.run(body, wrong, check="specials")
    assert verdict(record) == ("failed", "compare", "WrongNaN", "exporter")
    assert record.draw["regime"] in ("nan", "mixed")
    right = "def symbolic(g, x):\n    return g.op('Relu', x)\n"
    assert verdict(bench.run(body, right, check="specials")) == PASSED


def test_specials_that_spread_to_every_output_verify_nothing(bench):
    body = """
    forward: x / x.sum()
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """
    record = bench.run(body, check="specials")
    assert record.nothing > 0


FIGHT = """
import torch

def symbolic(g, x):
    return g.op("Asinh", x)

def register():
    from torch.onnx import register_custom_op_symbolic
    register_custom_op_symbolic("aten::asinh", lambda g, x: g.op("Sinh", x), 9)
    register_custom_op_symbolic("aten::acosh", lambda g, x: g.op("Acosh", x), 9)
"""
BOTH = """
forward: torch.asinh(x) + torch.acosh(x + 2)
inputs: {x: {type: "float32[batch, 3]", values: {uniform: {low: 0, high: 2}}}}
dims: {batch: 1..4}
export:
  torchscript:
    opsets: [17]
    symbolics: {aten::asinh: beside.symbolic}
    registers: {aten::acosh: beside.register}
"""


def test_two_registrations_that_fight_over_an_operator_are_named_in_their_order(bench):
    record = bench.run(BOTH, FIGHT, check="registration")
    assert verdict(record) == ("failed", "check", "RegistrationFight", "case")
    assert record.reason == (
        "aten::asinh is registered by symbolics, then by register: the last one wins, so their order decides"
    )


def test_a_registrar_of_several_opsets_is_no_fight(bench):
    python = FIGHT.replace('"aten::asinh", lambda g, x: g.op("Sinh", x), 9', '"aten::acosh", lambda g, x: x, 13')
    python = python.replace("), 9)", "), 15)")
    assert bench.run(BOTH, python, check="registration").status == "passed"
