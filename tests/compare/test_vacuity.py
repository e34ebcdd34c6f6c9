"""Whether draws together would have shown a wrong output."""

import numpy as np
import pytest

from conformance.compare.noise import NOISE_LIMITS
from conformance.compare.tolerance import DEFAULTS
from conformance.compare.vacuity import ANOTHER, MEAN, SHUFFLED, ZEROS, Vacuity

pytestmark = pytest.mark.smoke


def found(*draws, dtype="float32"):
    vacuity = Vacuity([DEFAULTS.get(dtype)])
    for draw in draws:
        vacuity.see([np.array(draw, dtype)])
    return vacuity.findings().get(0, [])


def test_different_values_that_are_not_zero_prove_something():
    assert found([[1, 2], [3, 4]], [[5, 6], [7, 8]]) == []


@pytest.mark.parametrize("draws, wrong", [
    ([[[0, 0], [0, 0]], [[0, 0], [0, 0]]], [ANOTHER, SHUFFLED, ZEROS]),
    ([[[1, 1], [1, 1]], [[1, 1], [1, 1]]], [ANOTHER, SHUFFLED]), ([[[1, 2], [1, 2]], [[3, 4], [3, 4]]], [SHUFFLED]),
    ([[[1, 2], [3, 4]], [[1, 2], [3, 4]]], [ANOTHER]), ([[[1, 2], [3, 4]]], [ANOTHER]),
    pytest.param([[[1.0], [1 + 1e-7]], [[2.0], [2.0]]], [SHUFFLED], id="rows that differ by less than the tolerance"),
    pytest.param([[[1e6], [1e6 + 1]], [[2e6], [2e6]]], [SHUFFLED], id="large rows that do"),
    pytest.param([np.zeros((0, 3))] * 2, [ANOTHER, ZEROS], id="no values"),
])  # fmt: skip
def test_what_would_have_passed_is_named(draws, wrong):
    assert found(*draws) == sorted(wrong)


@pytest.mark.parametrize("draws", [
    pytest.param([[[0, 0], [0, 0]], [[0, 0], [0, 0]], [[1, 2], [3, 4]]], id="one draw that shows it is enough"),
    pytest.param([[1.0, 2.0, 3.0], [1.0, 2.0]], id="another shape shows that the output is another draw's"),
    pytest.param([[[1.0, 2.0]], [[3.0, 4.0]]], id="a single row cannot be shuffled"),
    pytest.param([[1e-30, 2e-30], [3e-30, 4e-30]], id="as small as 1e-30"),
    pytest.param([[np.nan, 1.0, 2.0], [1.0, np.inf, 3.0]], id="NaN and infinities in places of their own"),
])  # fmt: skip
def test_these_draws_prove_something(draws):
    assert found(*draws) == []


def test_values_close_to_their_mean_are_not_seen_by_a_limit_that_the_mean_is_within():
    rng = np.random.default_rng(0)
    draws = [(12 + rng.standard_normal((8, 16))).astype(np.float32) for _ in range(3)]
    for limit, wrong in ((NOISE_LIMITS["int8"], [MEAN]), (NOISE_LIMITS["fp16"], [])):
        vacuity = Vacuity([limit])
        for draw in draws:
            vacuity.see([draw])
        assert vacuity.findings().get(0, []) == wrong


def test_an_infinity_is_not_the_other_infinity():
    assert ANOTHER not in found([np.inf, 1.0], [-np.inf, 1.0])


def test_integers_are_judged_exactly_and_need_no_order():
    assert found([1, 1], [2, 2], dtype="int64") == [] and found([1, 1], [1, 1], dtype="int64") == [ANOTHER]


def test_each_output_is_judged_alone():
    vacuity = Vacuity([DEFAULTS["float32"]] * 2)
    for k in range(3):
        vacuity.see([np.array([1.0 + k, 5.0], "float32"), np.ones(2, "float32")])
    assert list(vacuity.findings()) == [1]
