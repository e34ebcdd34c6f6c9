"""Defects that only draws beyond the ordinary ones meet, beside sound neighbours that stay green."""

import numpy as np
import pytest

from conformance.case.draw.draw import Draw, about
from conformance.case.draw.shapes import FEW, other_sizes
from conformance.case.files.must_hold import When
from tests.kit.cases import PASSED, case_of, details, dims_of, module_of, verdict
from tests.kit.runtimes import wrong_runtime

WRONG = ("failed", "compare", "WrongValue", "runtime")


def off_where(mask):
    """An alteration that adds 1 where ``mask`` of the input x says so."""

    def alter(inputs, outputs):
        outputs[0] = outputs[0] + mask(inputs["x"]).astype(outputs[0].dtype)
        return outputs

    return alter


# ---- sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [7, 23, 39])
def test_a_size_at_which_alone_a_runtime_is_wrong_is_met(bench, size):
    body = case_of("x.exp()", dims="batch: 4..40")
    with wrong_runtime(off_where(lambda x: np.full(x.shape, len(x) == size))):
        record = bench.run(body)
    assert verdict(record) == WRONG and record.draw["dims"] == {"batch": size}


def test_a_host_without_time_leaves_them_out_and_counts_as_any_other(bench):
    body = case_of("x.exp()", dims="batch: 4..40")
    assert verdict(bench.run(body)) == verdict(bench.run(body, budget=1e-6 + 600)) == PASSED
    assert bench.run(body).examples == bench.run(case_of("x.exp()", dims="batch: 4..400")).examples


def test_other_sizes_are_each_size_that_was_not_met_once():
    dims = dims_of(a="2..9", b="1..4 step 3", c=f"1..{FEW + 1}", k="1..a")
    met = [{"a": 3, "b": 1, "c": 3, "k": 1}, {"a": 9, "b": 4, "c": 1, "k": 1}]
    found = other_sizes(dims, met[0], met)
    assert sorted(sizes["a"] for sizes in found) == [2, 4, 5, 6, 7, 8]
    assert {sizes["c"] for sizes in found} == {3}


def test_other_sizes_keep_to_conditions_between_dims():
    dims = dims_of(["a <= b"], a="1..9", b="1..9")
    found = other_sizes(dims, {"a": 4, "b": 6}, [{"a": 4, "b": 6}])
    assert {5, 7, 8, 9} <= {sizes["b"] for sizes in found}
    assert {1, 2, 3, 5, 6} <= {sizes["a"] for sizes in found} and all(one["a"] <= one["b"] for one in found)


# ---- huge values ------------------------------------------------------------------------------------------------


def test_a_runtime_that_is_wrong_above_ten_thousand_alone_is_found(bench):
    with wrong_runtime(off_where(lambda x: 1e3 * (np.abs(x) > 1e4))):
        record = bench.run(case_of("x * 2"))
    assert verdict(record) == WRONG and record.draw["regime"] == "huge"


@pytest.mark.parametrize("forward", [
    "x.sin()", "torch.exp(x * 0.01).log1p()", "x ** 8", "(x - x.mean()) / x.std()", "x.to(torch.int8).float()",
    "x / (x < 5e4)", "x.sin() + torch.round(x)", "x.half().float()",
])  # fmt: skip
def test_where_float64_does_not_vouch_for_huge_values_nobody_is_accused(bench, forward):
    """Neither is a module accused, whatever a runtime gives there."""

    def otherwise(inputs, outputs):
        return [out * np.float32(1 + 3e-6) for out in outputs] if np.abs(inputs["x"]).max() > 1e4 else outputs

    assert verdict(bench.run(case_of(forward))) == PASSED
    with wrong_runtime(otherwise):
        assert verdict(bench.run(case_of(forward))) == PASSED


# ---- signed zeros -----------------------------------------------------------------------------------------------


def without_signs(inputs, outputs):
    return [np.where(out == 0, np.float32(0), out) for out in outputs]


def infinities_alike(inputs, outputs):
    return [np.where(np.isinf(out), np.float32(np.inf), out) for out in outputs]


@pytest.mark.parametrize("forward, alter, error", [
    ("-x", without_signs, "WrongValue"), ("x.t() * 3", without_signs, "WrongValue"),
    ("1 / x", infinities_alike, "WrongInf"), ("torch.relu(1 / x) - 1 / x", infinities_alike, None),
])  # fmt: skip
def test_zeros_have_signs_in_the_specials(bench, forward, alter, error):
    assert verdict(bench.run(case_of(forward), check="specials")) == PASSED
    if error is not None:
        with wrong_runtime(alter):
            record = bench.run(case_of(forward), check="specials")
        assert verdict(record) == ("failed", "compare", error, "runtime")


@pytest.mark.parametrize("forward", ["torch.relu(x)", "x.sum(1)", "torch.maximum(x, x * 0)", "x @ x.t()"])
def test_where_either_zero_is_right_its_sign_is_not_compared(bench, forward):
    with wrong_runtime(without_signs):
        assert bench.run(case_of(forward), check="specials").status != "failed"


# ---- what changes by being called -------------------------------------------------------------------------------

COUNTS = """
import torch

CALLS = []


class Global(torch.nn.Module):
    def forward(self, x):
        CALLS.append(1)
        return x * (2 if len(CALLS) == 1 else 3)


class OfClass(torch.nn.Module):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return x * (2 if self.calls == 1 else 3)


class Counts(torch.nn.Module):
    def forward(self, x):
        CALLS.append(1)
        return x * 3
"""


@pytest.mark.parametrize("name", ["Global", "OfClass"])
def test_a_module_that_answers_otherwise_from_its_second_call_on_has_no_right_answer(bench, name):
    record = bench.run(module_of(name), COUNTS)
    assert verdict(record) == ("failed", "declare", "NotDeterministic", "case") and not record.examples


def test_a_module_that_counts_its_calls_and_answers_alike_is_right(bench):
    assert verdict(bench.run(module_of("Counts"), COUNTS)) == PASSED


def test_a_runtime_that_is_wrong_at_random_is_not_pytorchs_fault(bench):
    rng = np.random.default_rng(5)

    def sometimes(inputs, outputs):
        return [out + (rng.random(out.shape) < 1e-3).astype(out.dtype) for out in outputs]

    with wrong_runtime(sometimes):
        record = bench.run(case_of("x.exp()", x="[batch, 2000]"))
    assert verdict(record) == ("failed", "compare", "NotRepeatable", "runtime")
    assert "runs with the same input give different outputs" in str(record.reason) and not details(record)[1:]


def test_what_is_declared_of_large_values_is_declared_of_huge_ones():
    huge = Draw({}, "huge", 0)
    assert about(When.model_validate({"values": ["large"]}), huge) and about(When.model_validate({}), huge)
    assert not about(When.model_validate({"values": ["ends"]}), huge)
