"""Noise against signal: what a precision may cost, and how far a runtime may be off."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.compare.judges import NoiseLimits, judge_from
from conformance.compare.noise import NOISE_LIMITS, Noise, NoiseLimit, compare_outputs, decibels

INT8, FP16 = NOISE_LIMITS["int8"], NOISE_LIMITS["fp16"]
RNG = np.random.default_rng(0)
EXACT = RNG.standard_normal((16, 10)).astype(np.float32)


def rounded(values, step):
    return (np.round(values / step) * step).astype(np.float32)


MEANT = rounded(EXACT, 0.05)


def verdict(got, meant=MEANT, exact=EXACT, limit=INT8, moved=None):
    found = compare_outputs([got], [meant], [exact], [limit], moved)
    return found.verdict, found.error


def measured(limit, *draws):
    noise = Noise(limit)
    for got, wanted in draws:
        noise.see(np.asarray(got), np.asarray(wanted))
    return noise


# ---- what a precision costs ----------------------------------------------------------------------------------


def test_decibels_are_ten_times_the_logarithm_of_the_powers():
    assert decibels(100.0, 1.0) == pytest.approx(20)
    assert decibels(1.0, 0.0) == math.inf
    assert decibels(0.0, 1.0) == -math.inf
    assert decibels(0.0, 0.0) == math.inf
    assert decibels(1.0, math.inf) == decibels(math.inf, math.inf) == -math.inf
    assert measured(INT8, ([1.1, -0.9], [1.0, -1.0])).sqnr == pytest.approx(20)


def test_draws_count_alike_whatever_their_size():
    large, small = np.ones(10_000), np.ones(1)
    noise = measured(INT8, *[(large, large)] * 9, (0 * small, small))
    assert noise.sqnr == pytest.approx(10)
    assert not noise.within()


def drawn(*more, limit=INT8, step=0.05):
    """Eleven sound draws, then others, each a pair of got and wanted."""
    exact = [np.random.default_rng(seed).standard_normal((4, 8)) for seed in range(11)]
    return measured(limit, *[(rounded(one, step), one) for one in exact], *more)


@pytest.mark.parametrize("size, times", [(0.2, 1), (0.2, 2), (0.3, 1)])
def test_a_draw_that_is_all_wrong_is_found_though_its_values_are_small(size, times):
    small = size * np.random.default_rng(99).standard_normal((4, 8))
    wrong = drawn(*[(0 * small, small)] * times)
    assert wrong.within()
    assert wrong.drowned() == 11
    assert drawn((rounded(small, 0.05), small)).drowned() is None


def test_a_draw_that_comes_out_near_zero_may_be_noise():
    """As one number may, where it is as far off as others."""
    assert drawn((np.array([0.02]), np.array([0.001]))).drowned() is None
    assert drawn((np.array([0.05]), np.array([0.0]))).drowned() is None
    zero = np.zeros((4, 8))
    assert drawn((zero, zero)).drowned() is None
    assert measured(INT8, (zero + 1, zero)).drowned() is None  # nothing to hide among


def test_a_rounding_where_all_others_are_exact_does_not_stand_out():
    exact = [(np.ones((4, 8)),) * 2] * 11
    assert measured(FP16, *exact, (np.full(8, 1e-8), np.zeros(8))).drowned() is None
    assert measured(FP16, *exact, (np.full(8, 1e-2), np.zeros(8))).drowned() == 11


def test_a_cosine_is_blind_to_scale_and_the_magnitude_is_not():
    limit = dataclasses.replace(INT8, cosine=0.99, magnitude=0.05)
    assert measured(limit, (1.01 * EXACT, EXACT)).within()
    doubled = measured(limit, (2 * EXACT, EXACT))
    assert doubled.cosine == pytest.approx(1)
    assert not doubled.within()
    assert doubled.ratio() == pytest.approx(20)


@pytest.mark.parametrize(("changed", "within"), [(0, True), (5, True), (6, False)])
def test_integers_may_change_in_five_places_of_a_hundred(changed, within):
    wanted = np.arange(100)
    got = wanted.copy()
    got[:changed] += 1
    assert measured(INT8, (got, wanted)).within() is within


def test_an_output_without_elements_costs_nothing():
    empty = np.zeros((0, 3), "float32")
    noise = measured(INT8, (empty, empty), (empty, empty))
    assert (noise.within(), noise.ratio(), noise.sqnr) == (True, 0.0, math.inf)
    mixed = measured(INT8, (empty, empty), (2 * EXACT, EXACT))
    assert not mixed.within()
    counted = measured(INT8, (np.zeros(0, "int64"), np.zeros(0, "int64")))
    assert (counted.within(), counted.ratio()) == (True, 0.0)


def test_an_output_that_should_be_zero_and_is_not_is_all_noise():
    zero = np.zeros((4, 3), "float32")
    assert measured(INT8, (zero, zero)).within()
    noise = measured(INT8, (zero + np.float32(1e-30), zero))
    assert not noise.within()
    assert noise.ratio() == math.inf
    limit = dataclasses.replace(INT8, cosine=0.9, magnitude=0.1)
    assert not measured(limit, (zero + np.float32(1e-3), zero)).within()
    assert not measured(limit, (np.zeros_like(EXACT), EXACT)).within()


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e30])
def test_noise_is_relative_to_the_output_whatever_its_size(size):
    wanted = (EXACT * np.float32(size)).astype("float32")
    assert measured(INT8, (rounded(EXACT, 0.1) * np.float32(size), wanted)).within()
    assert not measured(INT8, (rounded(EXACT, 2.0) * np.float32(size), wanted)).within()


def test_float64_beyond_what_squares_hold_is_judged_and_does_not_stop():
    with np.errstate(over="ignore"):
        noise = measured(FP16, (np.array([1e200]), np.array([2e200])))
    assert not noise.within()
    assert noise.ratio() == math.inf
    assert noise.text()


def test_bools_and_unsigned_numbers_are_counted():
    wanted = np.arange(40) % 2 == 0
    assert measured(INT8, (wanted, wanted)).within()
    assert not measured(INT8, (~wanted, wanted)).within()
    small = np.zeros(40, "uint8")
    assert not measured(INT8, (small - np.uint8(1), small)).within()


@pytest.mark.parametrize("wrong", [np.zeros_like(EXACT), np.roll(EXACT, 1, axis=0), 2 * EXACT])
def test_a_limit_refuses_what_is_no_answer(wrong):
    assert INT8.refuses(wrong, EXACT)
    assert not INT8.refuses(MEANT, EXACT)


def test_a_ratio_of_1_is_the_limit():
    noise = measured(NoiseLimit(sqnr=20, runtime=40, epsilon=0.01), ([1.1], [1.0]))
    assert noise.ratio() == pytest.approx(1)


# ---- whether a runtime is right ------------------------------------------------------------------------------


def test_a_runtime_that_computes_what_is_meant_or_more_exactly_is_right():
    assert verdict(MEANT) == ("verified", None)
    assert verdict(EXACT) == ("verified", None)


def test_a_runtime_that_rounds_a_few_values_to_the_other_side_is_right():
    got = MEANT.copy()
    got[::4, 3] += np.float32(0.05)
    assert verdict(got) == ("verified", None)


@pytest.mark.parametrize(
    "wrong",
    [1.1 * MEANT, np.roll(MEANT, 1, axis=0), -MEANT, MEANT + np.float32(0.3), np.zeros_like(MEANT)],
    ids=["scaled", "other rows", "negated", "shifted", "nothing"],
)
def test_a_runtime_that_computes_something_else_is_wrong(wrong):
    assert verdict(wrong.astype(np.float32)) == ("failed", "WrongValue")


def test_one_value_that_is_far_off_is_wrong_however_many_are_right():
    meant = np.tile(MEANT, (100, 1))
    got = meant.copy()
    got[700, 2] += 5
    assert verdict(got, meant, np.tile(EXACT, (100, 1))) == ("failed", "WrongValue")


@pytest.mark.parametrize(("value", "error"), [(np.nan, "WrongNaN"), (np.inf, "WrongInf")])
def test_what_is_not_finite_where_the_graph_is_is_wrong(value, error):
    got = MEANT.copy()
    got[2, 1] = value
    assert verdict(got) == ("failed", error)


def test_where_the_graph_overflows_and_pytorch_does_not_a_runtime_may_do_either():
    meant = MEANT.copy()
    meant[2, 1] = np.inf
    assert verdict(MEANT, meant) == ("verified", None)
    assert verdict(meant, meant) == ("verified", None)


@pytest.mark.parametrize(
    ("got", "error"),
    [(MEANT.astype(np.float64), "WrongDtype"), (MEANT[:, :5], "WrongShape"), (MEANT[None], "WrongShape")],
)
def test_dtype_and_shape_are_exact(got, error):
    assert verdict(got) == ("failed", error)
    assert compare_outputs([], [MEANT], [EXACT], [INT8]).error == "WrongCount"


def test_where_the_conversion_leaves_more_noise_than_signal_nothing_is_told_of_the_runtime():
    coarse = rounded(EXACT, 4.0)
    assert verdict(EXACT, coarse)[0] == "ill-conditioned"


def test_what_other_roundings_of_the_inputs_move_is_not_held_against_a_runtime():
    got = (EXACT + 0.1 * RNG.standard_normal(EXACT.shape)).astype(np.float32)
    lucky = EXACT.copy()
    assert verdict(got, lucky)[0] == "failed"
    assert verdict(got, lucky, moved=[0.01])[0] == "verified"


def test_integers_may_differ_as_much_as_the_conversion_changed_them():
    exact = np.arange(200)
    meant = exact.copy()
    meant[:10] += 1
    got = meant.copy()
    got[100:110] += 1
    assert verdict(got, meant, exact) == ("verified", None)
    got[110:140] += 1
    assert verdict(got, meant, exact) == ("failed", "WrongValue")


def test_outputs_without_elements_are_compared_by_their_shape():
    empty = np.zeros((0, 3), "float32")
    assert verdict(empty, empty, empty) == ("verified", None)
    assert verdict(empty, np.zeros((1, 3), "float32"), empty) == ("failed", "WrongShape")


@pytest.mark.parametrize("kind", ["int64", "bool", "uint8"])
def test_integers_and_bools_that_the_conversion_left_alone_are_exact_in_small_outputs(kind):
    exact = (np.arange(50) % 2).astype(kind)
    assert verdict(exact, exact, exact) == ("verified", None)
    got = exact.copy()
    got[7] = 1 - got[7]
    assert verdict(got, exact, exact) == ("failed", "WrongValue")


def test_every_output_is_judged_by_itself():
    wrong = -MEANT
    for place in range(3):
        got = [wrong if output == place else MEANT for output in range(3)]
        found = compare_outputs(got, [MEANT] * 3, [EXACT] * 3, [INT8] * 3)
        assert (found.verdict, found.error, found.worst.output) == ("failed", "WrongValue", place)


@given(st.integers(0, 2**32 - 1), st.sampled_from([INT8, FP16]))
def test_noise_below_what_is_due_is_never_accused_and_noise_well_above_always(seed, limit):
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal((8, 32))
    due = 10 ** (-limit.runtime / 20)
    noise = rng.standard_normal(exact.shape)
    noise /= np.sqrt(np.mean(noise**2) / np.mean(exact**2))
    assert verdict(exact + 0.9 * due * noise, exact, exact, limit)[0] == "verified"
    assert verdict(exact + 1.2 * due * noise, exact, exact, limit)[0] == "failed"


def test_limits_are_stored_as_budgets_which_old_bundles_say():
    stored = {"kind": "budget", "budgets": [dataclasses.asdict(FP16)], "any_order": [True]}
    judge = judge_from(stored)
    assert judge == NoiseLimits((FP16,), (True,))
    assert judge.as_dict() == stored
