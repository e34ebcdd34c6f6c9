"""Plants outputs that prove nothing: vacuous ones, ill-conditioned draws, specials that drown everything."""

import numpy as np
import pytest

from conformance.results.report.verdict_words import verdict as verdict_of
from tests.kit.cases import PASSED, case_of, verdict
from tests.kit.runtimes import wrong_runtime

UNIFORM = '{type: "float32[batch, 3]", values: {uniform: {low: -1, high: 1}}}'


@pytest.mark.parametrize("forward", ["x * 1e-30", "torch.arange(x.shape[0])"])
def test_outputs_that_a_wrong_model_would_miss_are_not_vacuous(bench, forward):
    assert verdict(bench.run(case_of(forward).replace('"float32[batch, 3]"', UNIFORM))) == PASSED


BRITTLE = case_of(
    "(x + 4096.0) - 4096.0",
    'export: {torchscript: {opsets: [17], symbolics: {"aten::add": beside.first, "aten::sub": beside.first}}}',
)
FIRST = "def first(g, x, *rest):\n    return g.op('Identity', x)\n"


def test_draws_on_which_float32_itself_is_off_are_counted_and_not_believed(bench):
    """The model gives the exact answer, and PyTorch in float32 is what loses digits."""
    record = bench.run(BRITTLE, FIRST)
    assert record.status == "passed" and record.ill_conditioned > 0
    assert record.examples > 0  # at zero, for one


def test_values_on_which_float32_is_off_are_counted_and_excuse_no_others(bench):
    halves = BRITTLE.replace("(x + 4096.0) - 4096.0", "torch.cat([(x + 4096.0) - 4096.0, torch.tanh(x)], 1)")
    record = bench.run(halves, FIRST)
    assert record.status == "passed" and record.excused > 100
    assert record.ill_conditioned == 0 and "values excused" in verdict_of(record)
    with wrong_runtime(lambda inputs, outputs: [outputs[0] * np.float32([1, 1, 1, 1, 1, 1.001])]):
        assert bench.run(halves, FIRST).error == "WrongValue"


def test_a_model_far_beyond_the_error_of_float32_is_wrong_and_not_ill_conditioned(bench):
    record = bench.run(BRITTLE, FIRST.replace("'Identity', x", "'Add', x, x"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "case")


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


def test_of_all_that_one_function_registers_one_has_to_be_called(bench):
    python = FIGHT.replace('"aten::asinh", lambda', '"aten::sinh", lambda')
    assert bench.run(BOTH, python, check="registration").status == "passed"
    record = bench.run(BOTH.replace(" + torch.acosh(x + 2)", ""), python, check="registration")
    assert verdict(record) == ("failed", "check", "UnusedSymbolic", "case")
