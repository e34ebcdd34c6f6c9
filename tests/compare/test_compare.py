"""The verdict on one draw."""

import numpy as np
import pytest

from conformance.compare.excuses import is_even
from conformance.compare.judges import Right
from conformance.compare.matched_rows import row_order
from conformance.compare.tolerance import DEFAULTS, Tolerance, allowed, compare

pytestmark = pytest.mark.smoke
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


@pytest.mark.parametrize("got, error", [
    (f32(1, 2).astype("float64"), "WrongDtype"), (f32(1, 2)[None], "WrongShape"), (f32(1), "WrongShape"),
    (f32(1, np.nan), "WrongNaN"), (f32(1, np.inf), "WrongInf"),
])  # fmt: skip
def test_each_kind_of_difference_has_its_name(got, error):
    found = judge(got, f32(1, 2))
    assert (found.verdict, found.error) == ("failed", error) and found.text.startswith("output 0")


@pytest.mark.parametrize("got", [[], [f32(1)] * 2])
def test_the_count_of_outputs_is_exact(got):
    assert compare(got, [f32(1)], None, [F32], [False]).error == "WrongCount"


@pytest.mark.parametrize("got, wanted", [
    (f32(9, 2, 9), f32(1, 2, 3)), (f32(np.nan, 2, np.inf), f32(1, 2, 3)), (np.array([9, 2, 9]), np.array([1, 2, 3])),
])  # fmt: skip
def test_what_is_wrong_is_counted_as_it_is_said(got, wanted):
    found = judge(got, wanted)
    assert found.worst.differ == (2, 3) and "2 of 3 values" in found.text


def test_the_output_that_is_wrong_is_named():
    found = compare([f32(1), f32(9)], [f32(1), f32(2)], None, [F32, F32], [False, False])
    assert found.text.startswith("output 1") and found.worst.output == 1


@pytest.mark.parametrize("factor, verdict", [(0.99, "verified"), (1.01, "failed")])
def test_the_limit_is_atol_and_rtol_of_the_value_together(factor, verdict):
    wanted = np.array([4.0, 1000.0])
    tolerance = Tolerance(rtol=1e-3, atol=1e-2)
    limit = 1e-2 + 1e-3 * 4
    found = judge(wanted + np.array([factor * limit, 0]), wanted, tolerance=tolerance)
    assert found.verdict == verdict and found.worst.ratio == pytest.approx(factor)


@pytest.mark.parametrize("dtype, off", [("float64", 1e-9), ("float32", 1e-5), ("float16", 1e-3)])
def test_by_default_an_output_may_be_off_by_as_much_as_its_dtype_allows(dtype, off):
    for share, error in ((0.9, None), (1.5, "WrongValue")):
        got, wanted = np.array([8 * (1 + share * off)], dtype), np.array([8], dtype)
        assert judge(got, wanted, tolerance=DEFAULTS[dtype]).error == error


def test_the_absolute_part_shrinks_with_the_outputs_own_size():
    small = 1e-6
    assert judge(f32(0, 0), f32(small, small)).verdict == "failed"
    assert allowed(np.array([small]), F32)[0] < small / 1000 and allowed(np.array([0.0]), F32)[0] == F32.atol


SPECIAL = f32(np.nan, np.inf, -np.inf, 1, 2, 3, 4)


@pytest.mark.parametrize("got, wanted, error", [
    (SPECIAL, SPECIAL, None), (f32(np.nan, -np.inf, *SPECIAL[2:]), SPECIAL, "WrongInf"),
    (f32(0, *SPECIAL[1:]), SPECIAL, "WrongNaN"), (f32(np.nan, 2, 3), f32(np.nan, 2, 4), "WrongValue"),
])  # fmt: skip
def test_nan_agrees_with_nan_an_infinity_with_the_same_one_and_hides_no_wrong_value(got, wanted, error):
    assert judge(got.copy(), wanted).error == error


def test_outputs_that_are_mostly_nan_verify_nothing():
    assert judge(f32(np.nan, np.nan, 1), f32(np.nan, np.nan, 1)).verdict == "nothing"


@pytest.mark.parametrize("got, wanted, error", [
    ([3], [3], None), ([3], [4], "WrongValue"), ([True], [False], "WrongValue"), ([2**62 + 1], [2**62], "WrongValue"),
])  # fmt: skip
def test_integers_and_bools_are_exact(got, wanted, error):
    assert judge(np.array(got), np.array(wanted), tolerance=None).error == error


def test_outputs_without_values_are_verified_by_their_shape():
    assert judge(np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32")).verdict == "verified"
    assert judge(np.zeros((3, 0), "float32"), np.zeros((0, 3), "float32")).error == "WrongShape"


@pytest.mark.parametrize("got, wanted, oracle, verdict, error", [
    (f32(1.002), f32(1), [1.001], "ill-conditioned", None),
    (f32(1), f32(1), [1.001], "verified", None),
    (f32(1 + 4.4e-3), f32(1), [1.001], "failed", "WrongValue"),  # more than four times as far
    (f32(np.nan), f32(1 / 3), [1 / 3 + 1e-7], "failed", "WrongNaN"),  # rounding is no excuse for these
    (f32(np.inf), f32(1 / 3), [1 / 3 + 1e-7], "failed", "WrongInf"),
    (f32(1.002), f32(1), None, "failed", "WrongValue"),  # without an oracle there is no such excuse
    (f32(1e38), f32(np.inf), [1e38], "ill-conditioned", None),  # where eager float32 alone overflows
    (f32(1e38, 1), f32(np.inf, 1), [1e38, 1.0], "verified", None),
    (f32(1e38, 5), f32(np.inf, 1), [1e38, 1.0], "failed", "WrongValue"),
    (f32(1e38, 1), f32(np.inf, 1), [1e39, 1.0], "failed", "WrongInf"),
])  # fmt: skip
def test_a_difference_within_float32s_own_error_is_ill_conditioned(got, wanted, oracle, verdict, error):
    found = judge(got, wanted, None if oracle is None else np.array(oracle))
    assert (found.verdict, found.error) == (verdict, error)


def test_the_worst_element_is_measured_by_what_is_allowed_there_in_the_end():
    """The tolerance at the first value, and what float64 excuses at the second."""
    found = judge(f32(1020, 1.1), f32(1000, 1), np.array([1000, 1.005]), Tolerance(1e-2, 0.0))
    assert (found.worst.index, found.worst.ratio) == ((1,), pytest.approx(5, rel=1e-3))
    found = judge(f32(1080, 1.1), f32(1000, 1), np.array([1000, 1.005]), Tolerance(1e-2, 0.0))
    assert (found.worst.index, found.worst.ratio) == ((0,), pytest.approx(8, rel=1e-3))


def test_an_ill_conditioned_output_beside_a_sound_one_makes_the_draw_ill_conditioned():
    found = compare(
        [f32(1.002), f32(5)], [f32(1), f32(5)], [np.array([1.001]), np.array([5.0])], [F32, F32], [False, False]
    )
    assert found.verdict == "ill-conditioned"


ROWS = np.array([[1, 2], [3, 4], [1, 0]], "float32")


@pytest.mark.parametrize("got, any_order, error", [
    (ROWS[::-1], True, None), (ROWS[::-1], False, "WrongValue"),
    (np.array([[1, 4], [3, 2], [1, 0]], "float32"), True, "WrongValue"), (ROWS[[0, 0, 1]], True, "WrongValue"),
])  # fmt: skip
def test_rows_in_any_order_are_compared_as_a_set_of_rows(got, any_order, error):
    assert judge(got, ROWS, any_order=any_order).error == error


def test_one_row_does_not_stand_for_several():
    assert judge(ROWS[[0, 1, 1]], ROWS[[0, 0, 1]], any_order=True).error == "WrongValue"


def test_rows_in_any_order_stay_matched_when_values_differ_within_tolerance():
    """Rows whose first values tie up to rounding sort differently on the two sides."""
    wanted = np.array([[1.0, 5.0], [1.0 + 1e-7, 2.0]], "float32")
    got = np.array([[1.0 + 1e-7, 5.0], [1.0, 2.0]], "float32")
    assert judge(got, wanted, any_order=True).verdict == "verified"


WANTED, MOVED = f32(1, 2, 3, 4), np.array([0, 1e-3, 2e-3, np.inf])


@pytest.mark.parametrize("off, verdict, excused, excuse, left_open, worst", [
    ([1e-6, 0, 0, 0], "verified", 0, None, 0, 0), ([0, 1e-3, 0, 0], "verified", 1, 1, 0, 0),
    ([1e-6, 1e-3, 4e-3, 0], "verified", 2, 2, 0, 0), ([1e-6, 0, 0, 5], "verified", 1, 3, 1, 0),
    ([0, 1e-6, 0, np.nan], "verified", 1, 3, 1, 1), ([0, 1e-3, 4e-3, 5], "ill-conditioned", 3, 3, 1, 3),
    ([1e-4, 1e-3, 0, 0], "failed", 0, None, 0, 0),
])  # fmt: skip
def test_what_rounding_moves_is_excused_value_by_value_and_told(off, verdict, excused, excuse, left_open, worst):
    """The excused value that is furthest off is told, and the worst of the others stays the worst."""
    got = (WANTED + np.array(off)).astype("float32")
    found = compare([got], [WANTED], [WANTED.astype(float)], [F32], [False], [MOVED])
    told = None if found.excuse is None else found.excuse.index[0]
    assert (found.verdict, found.excused, told, found.left_open) == (verdict, excused, excuse, left_open)
    assert found.worst.index == (worst,)
    if excuse is not None:
        error = abs(float(got[excuse]) - float(WANTED[excuse]))
        assert (
            found.excuse.ratio == pytest.approx(error / allowed(WANTED.astype(float), F32)[excuse]) or error != error
        )


@pytest.mark.parametrize("inputs, share", [
    ({}, 0.0), ({"i": np.arange(3)}, 0.0), ({"x": f32()}, 0.0), ({"x": f32(1, np.nan)}, 0.5),
    ({"x": f32(1, np.nan), "y": f32(np.inf, -np.inf, 1, np.nan)}, 0.75),
])  # fmt: skip
def test_the_input_with_most_nan_and_infinities_counts(inputs, share):
    assert Right([], inputs=inputs).special() == share


def test_each_row_takes_the_nearest_that_is_free():
    rows = f32([0, np.nan], [5, 1], [0, 2], [np.inf, 1])
    assert row_order(rows, f32([np.inf, 1], [0, np.nan], [0.1, 2], [0.2, 2])) == [3, 0, 2, 1]


# ---- errors that are alike everywhere ----------------------------------------------------------------------------


def deep(exact: float = 0.0, small: float = 0.0, largest: float = 1.5):
    """The values of a runtime, of PyTorch in float32, and of float64: 4,000, each of them off by many roundings: by a
    normal distribution, but for a share that is ``exact``, and one that is ``small``: off by a tenth of that.
    The runtime is off by ``largest`` times the largest own error."""
    rng = np.random.default_rng(0)
    oracle = rng.standard_normal(4000)
    off = 1.5e-6 * rng.standard_normal(oracle.size)
    off[: int(small * off.size)] /= 10
    off[off.size - int(exact * off.size) :] = 0
    wanted = (oracle + off).astype("float32")
    got = wanted.copy()
    got[off.size // 2] += largest * np.abs(wanted - oracle).max()
    return got, wanted, oracle


def test_where_all_values_are_off_alike_nobody_is_asked_how_far_each_moves():
    found = judge(*deep())
    assert found.verdict == "verified" and found.worst.ratio < 1 and not found.doubtful


@pytest.mark.parametrize("odd", [{"exact": 0.03}, {"small": 0.05}, {"largest": 2.5}], ids=str)
def test_a_few_values_that_are_exact_or_move_less_or_an_error_beyond_the_others_are_doubted(odd):
    found = judge(*deep(**odd))
    assert found.verdict == "verified" and found.doubtful


def test_a_value_that_is_further_off_than_float32_is_wrong():
    assert judge(*deep(largest=5.0)).error == "WrongValue"


def test_errors_of_channels_of_other_sizes_are_even_and_a_wrong_channel_or_exact_values_are_not():
    """Whole outputs of both are a mixture, which is no normal distribution; each channel is held to its own."""
    rng = np.random.default_rng(0)
    exact = rng.standard_normal((1, 3, 40, 50))
    sizes = np.array([1.0, 0.2, 0.05]).reshape(3, 1, 1) * 1e-6
    wanted = exact + rng.standard_normal(exact.shape) * sizes
    error = np.abs(rng.standard_normal(exact.shape) * sizes)
    assert is_even(error, wanted, exact)
    assert not is_even(error[0], wanted[0].reshape(3, -1), exact[0].reshape(3, -1))  # of which no channels are known
    wrong = error.copy()
    wrong[0, 2, 7, 7] = 1e-6  # small for the first channel
    assert not is_even(wrong, wanted, exact)
    some_exact = np.where(rng.random(exact.shape) < 0.05, exact, wanted)
    assert not is_even(error, some_exact, exact)
