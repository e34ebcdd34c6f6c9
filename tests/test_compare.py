"""The verdict on one draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.compare.tolerance import DEFAULTS, SLACK, Tolerance, allowed, compare

F32 = DEFAULTS["float32"]


@pytest.fixture(autouse=True)
def quiet():
    """As in a worker, where NaN and infinities are compared on purpose."""
    before = np.seterr(all="ignore")
    yield
    np.seterr(**before)


def f32(*values):
    return np.array(values, "float32")


def judge(got, wanted, oracle=None, tolerance=F32, any_order=False):
    return compare([got], [wanted], None if oracle is None else [oracle], [tolerance], [any_order])


def test_equal_arrays_are_verified_and_different_ones_are_not():
    assert judge(f32(1, 2), f32(1, 2)).verdict == "verified"
    found = judge(f32(1, 2.1), f32(1, 2))
    assert (found.verdict, found.error) == ("failed", "WrongValue")
    assert found.worst.index == (1,)
    assert found.worst.got == pytest.approx(2.1)
    assert found.worst.wanted == 2.0


@pytest.mark.parametrize("got, error", [
    (f32(1, 2).astype("float64"), "WrongDtype"),
    (f32(1, 2)[None], "WrongShape"),
    (f32(1), "WrongShape"),
    (f32(1, np.nan), "WrongNaN"),
    (f32(1, np.inf), "WrongInf"),
])  # fmt: skip
def test_each_kind_of_difference_has_its_name(got, error):
    found = judge(got, f32(1, 2))
    assert (found.verdict, found.error) == ("failed", error)
    assert found.text.startswith("output 0")


def test_the_count_of_outputs_is_exact():
    assert compare([], [f32(1)], None, [F32], [False]).error == "WrongCount"
    assert compare([f32(1)] * 2, [f32(1)], None, [F32], [False]).error == "WrongCount"


def test_the_output_that_is_wrong_is_named():
    found = compare([f32(1), f32(9)], [f32(1), f32(2)], None, [F32, F32], [False, False])
    assert found.text.startswith("output 1")
    assert found.worst.output == 1


@pytest.mark.parametrize("factor, verdict", [(0.99, "verified"), (1.01, "failed")])
def test_the_limit_is_atol_and_rtol_together(factor, verdict):
    wanted = np.array([4.0, 0.0])
    tolerance = Tolerance(rtol=1e-3, atol=1e-2)
    limit = 1e-2 + 1e-3 * 4
    found = judge(wanted + np.array([factor * limit, 0]), wanted, tolerance=tolerance)
    assert found.verdict == verdict
    assert found.worst.ratio == pytest.approx(factor)


def test_the_absolute_part_shrinks_with_the_outputs_own_size():
    small = 1e-6
    assert judge(f32(0, 0), f32(small, small)).verdict == "failed"
    assert allowed(np.array([small]), F32)[0] < small / 1000
    assert allowed(np.array([0.0]), F32)[0] == F32.atol


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=8))
def test_anything_agrees_with_itself(values):
    assert judge(f32(*values), f32(*values)).verdict == "verified"


@given(st.lists(st.floats(0.125, 2.0**99, width=32), min_size=1, max_size=8), st.integers(0, 7))
def test_one_value_off_by_a_thousandth_is_always_found(values, place):
    wrong = f32(*values)
    wrong[place % len(values)] *= 1.001
    found = judge(wrong, f32(*values))
    biggest = max(values)
    # the absolute part may hide it only beside values that are a thousand times larger or more
    assert found.error == "WrongValue" or values[place % len(values)] < biggest / 100


def test_nan_meets_nan_and_an_infinity_the_same_infinity():
    wanted = f32(np.nan, np.inf, -np.inf, 1, 2, 3, 4)
    assert judge(wanted.copy(), wanted).verdict == "verified"
    flipped = wanted.copy()
    flipped[1] = -np.inf
    assert judge(flipped, wanted).error == "WrongInf"
    finite = wanted.copy()
    finite[0] = 0
    assert judge(finite, wanted).error == "WrongNaN"


def test_a_wrong_value_beside_a_nan_is_still_found():
    assert judge(f32(np.nan, 2, 3), f32(np.nan, 2, 4)).error == "WrongValue"


def test_outputs_that_are_mostly_nan_verify_nothing():
    assert judge(f32(np.nan, np.nan, 1), f32(np.nan, np.nan, 1)).verdict == "nothing"


def test_integers_and_bools_are_exact():
    assert judge(np.array([3]), np.array([3]), tolerance=None).verdict == "verified"
    assert judge(np.array([3]), np.array([4]), tolerance=None).error == "WrongValue"
    assert judge(np.array([True]), np.array([False]), tolerance=None).error == "WrongValue"
    far = np.array([2**62 + 1])
    assert judge(far, far - 1, tolerance=None).error == "WrongValue"


def test_outputs_without_values_are_verified_by_their_shape():
    assert judge(np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32")).verdict == "verified"
    assert judge(np.zeros((3, 0), "float32"), np.zeros((0, 3), "float32")).error == "WrongShape"


def test_a_difference_within_float32s_own_error_is_ill_conditioned():
    wanted, oracle = f32(1.0), np.array([1.001])
    assert judge(f32(1.002), wanted, oracle).verdict == "ill-conditioned"
    assert judge(f32(1.0), wanted, oracle).verdict == "verified"
    beyond = f32(1.0 + 1.1 * SLACK * 1e-3)
    assert judge(beyond, wanted, oracle).error == "WrongValue"
    assert judge(f32(1.002), wanted).error == "WrongValue", "without an oracle there is no such excuse"


def test_eager_float32_overflowing_where_float64_does_not_is_ill_conditioned():
    assert judge(f32(1e38, 1), f32(np.inf, 1), np.array([1e38, 1.0])).verdict == "ill-conditioned"
    assert judge(f32(1e38, 1), f32(np.inf, 1), np.array([1e39, 1.0])).error == "WrongInf"


def test_an_ill_conditioned_output_beside_a_sound_one_makes_the_draw_ill_conditioned():
    found = compare(
        [f32(1.002), f32(5)], [f32(1), f32(5)], [np.array([1.001]), np.array([5.0])], [F32, F32], [False, False]
    )
    assert found.verdict == "ill-conditioned"


def test_rows_in_any_order_are_compared_as_a_set_of_rows():
    wanted = np.array([[1, 2], [3, 4], [1, 0]], "float32")
    assert judge(wanted[::-1], wanted, any_order=True).verdict == "verified"
    assert judge(wanted[::-1], wanted).error == "WrongValue"
    mixed = np.array([[1, 4], [3, 2], [1, 0]], "float32")
    assert judge(mixed, wanted, any_order=True).error == "WrongValue"
    repeated = wanted[[0, 0, 1]]
    assert judge(repeated, wanted, any_order=True).error == "WrongValue"


def test_rows_in_any_order_stay_matched_when_values_differ_within_tolerance():
    """Rows whose first values tie up to rounding sort differently on the two sides."""
    wanted = np.array([[1.0, 5.0], [1.0 + 1e-7, 2.0]], "float32")
    got = np.array([[1.0 + 1e-7, 5.0], [1.0, 2.0]], "float32")
    assert judge(got, wanted, any_order=True).verdict == "verified"


@pytest.mark.parametrize("got", [np.nan, np.inf, -np.inf])
def test_what_float32_rounds_is_no_excuse_for_a_nan_or_an_infinity(got):
    wanted, exact = f32(1 / 3), np.array([1 / 3 + 1e-7])
    assert exact.astype("float32") != wanted
    assert judge(f32(got), wanted, exact).error in ("WrongNaN", "WrongInf")
