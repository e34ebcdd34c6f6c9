"""The check ``specials``: what NaN and infinities prove, and when they prove nothing."""

import numpy as np
import pytest

from tests.kit.cases import PASSED, case_of, module_of, say, verdict, with_symbolic
from tests.kit.modules import RELU_WITHOUT_NAN
from tests.kit.runtimes import ANY_OPTIMIZER, stopping_runtime, wrong_runtime

SPREADS = case_of("x + 0 * x.sum()", x="[batch, 5]")
"""One NaN or infinity makes every value of the output NaN."""
NEGATED = case_of("torch.neg(x)")


@pytest.mark.parametrize("forward", ["torch.neg(x)", "torch.exp(x)"])
def test_a_scalar_that_is_nothing_but_the_special_value_shows_what_becomes_of_it(bench, forward):
    record = bench.run(case_of(forward, dims="", x="[]"), check="specials")
    assert verdict(record) == PASSED and record.nothing == 0


def test_a_wrong_answer_to_nan_fails_the_specials_and_leaves_accuracy_alone(bench):
    body = case_of("torch.relu(x)", with_symbolic('"aten::relu"'))
    assert verdict(bench.run(body, RELU_WITHOUT_NAN)) == PASSED
    record = bench.run(body, RELU_WITHOUT_NAN, check="specials")
    assert verdict(record) == ("failed", "compare", "WrongNaN", "case")
    assert record.draw is not None and record.draw["regime"] in ("nan", "mixed")
    assert verdict(bench.run(body, "def symbolic(g, x):\n    return g.op('Relu', x)\n", check="specials")) == PASSED


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
def test_specials_that_spread_to_all_outputs_prove_nothing(bench, runtime):
    record = bench.run(SPREADS, check="specials", runtime=runtime)
    assert record.status == "skipped" and "mostly NaN in every draw" in str(record.reason)


def test_a_single_draw_that_is_no_nan_is_no_fault_of_the_case(bench):
    """A power of 1.5 is NaN for all that is negative; one draw of specials has only positive values in some rows."""
    body = case_of("torch.pow(x, 1.5).sum(1)", dims="batch: 1..3")
    record = bench.run(body, check="specials", examples=1)
    assert (record.status, record.error, record.examples) == ("skipped", None, 1) and record.nothing > 0
    assert f"mostly NaN in {record.nothing} of {record.nothing + 1} draws" in str(record.reason)
    insisted = bench.run(say(body, "specials: true"), check="specials", examples=1)
    assert verdict(insisted) == ("failed", "compare", "Vacuous", "case")


def test_a_case_that_asks_for_specials_has_to_pass_them(bench):
    record = bench.run(say(SPREADS, "specials: true"), check="specials")
    assert verdict(record) == PASSED  # by signed zeros


def test_a_number_among_the_spread_nan_is_wrong(bench):
    def first_is_a_number(inputs, outputs):
        if np.isnan(inputs["x"]).any():
            outputs[0].flat[0] = 1.0
        return outputs

    with wrong_runtime(first_is_a_number):
        record = bench.run(SPREADS, check="specials")
    assert (record.status, record.error) == ("failed", "WrongNaN")


STOPS = IndexError("index 7 is out of bounds for axis 0 with size 5")


@pytest.mark.parametrize("check", ["accuracy", "specials"])
def test_an_evaluator_that_stops_is_no_failure_of_a_case_that_did_not_name_it(bench, check):
    naming = say(NEGATED, "runtimes: [onnx-reference, onnxruntime]")
    with stopping_runtime(STOPS, "onnx-reference"):
        record = bench.run(NEGATED, check=check, runtime="onnx-reference")
        named = bench.run(naming, check=check, runtime="onnx-reference")
    assert record.status == "skipped" and "evaluator stops with IndexError" in str(record.reason)
    assert verdict(named) == ("failed", "run", "IndexError", "runtime")


@pytest.mark.parametrize("forward, dtype, check, why", [
    ("torch.exp(x)", "float32", "specials", "of NaN and infinities"),
    ("torch.exp(x)", "float16", "accuracy", "16 bits"),
])  # fmt: skip
def test_where_only_the_evaluator_differs_on_nan_or_in_16_bits_it_is_in_doubt(bench, forward, dtype, check, why):
    """Whatever the operator; what others get wrong too is no doubt, nor is a case that insists."""
    body = case_of(forward).replace("float32", dtype)

    def wrong(inputs, outputs):
        odd = dtype == "float16" or not np.isfinite(inputs["x"]).all()
        return [np.where(np.isfinite(outputs[0]), outputs[0] + odd, 1).astype(outputs[0].dtype)]

    with wrong_runtime(wrong, "onnx-reference"):
        record = bench.run(body, check=check, runtime="onnx-reference")
        insisted = bench.run(say(body, "runtimes: [onnx-reference]"), check=check, runtime="onnx-reference")
    assert record.status == "skipped" and "only ONNX's evaluator" in record.reason and why in record.reason
    assert (insisted.status, insisted.fault) == ("failed", "runtime")
    with wrong_runtime(wrong, "onnx-reference", *ANY_OPTIMIZER, "openvino"):
        assert bench.run(body, check=check, runtime="onnx-reference").fault == "exporter"


def test_a_model_that_nobody_can_run_is_a_failure_in_the_evaluator_too(bench):
    with stopping_runtime(STOPS, "onnx-reference", *ANY_OPTIMIZER):
        record = bench.run(NEGATED, runtime="onnx-reference")
    assert verdict(record) == ("failed", "run", "IndexError", "exporter")


def test_a_declared_failure_of_the_evaluator_stays_declared(bench):
    entry = "{when: {runtime: onnx-reference}, stage: run, error: IndexError, because: a test}"
    with stopping_runtime(STOPS, "onnx-reference"):
        assert bench.run(say(NEGATED, f"fails: [{entry}]"), runtime="onnx-reference").status == "xfailed"


REFUSES = """
import torch
class Refuses(torch.nn.Module):
    def forward(self, x):
        if not torch.jit.is_tracing() and torch.{refused}(x).any():
            raise ValueError("not these")
        return torch.relu(x) * 2
"""


@pytest.mark.parametrize("refused, status, verified", [("isnan", "skipped", 0), ("isinf", "passed", 1)])
def test_values_for_which_pytorch_raises_have_no_verdict_unless_the_case_asks_for_them(
    bench, refused, status, verified
):
    body, module = module_of("Refuses"), REFUSES.format(refused=refused)
    record = bench.run(body, module, check="specials")
    assert record.status == status and (record.examples > 0) == verified, record.reason
    told = [record.reason, *(warning["text"] for warning in record.warnings)]
    assert any("PyTorch itself raises at x" in str(text) for text in told), told
    assert record.undecided == (status == "skipped")
    insisted = bench.run(say(body, "specials: true"), module, check="specials")
    assert verdict(insisted) == ("failed", "declare", "ValueError", "case")
