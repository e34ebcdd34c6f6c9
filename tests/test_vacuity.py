"""Whether draws together would have shown a wrong output."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.compare.noise import NOISE_LIMITS
from conformance.compare.tolerance import DEFAULTS
from conformance.compare.vacuity import ANOTHER, MEAN, SHUFFLED, ZEROS, Vacuity


def found(*draws, dtype="float32"):
    vacuity = Vacuity([DEFAULTS.get(dtype)])
    for draw in draws:
        vacuity.see([np.array(draw, dtype)])
    return vacuity.findings().get(0, [])


def test_different_values_that_are_not_zero_prove_something():
    assert found([[1, 2], [3, 4]], [[5, 6], [7, 8]]) == []


@pytest.mark.parametrize("draws, wrong", [
    ([[[0, 0], [0, 0]], [[0, 0], [0, 0]]], [ANOTHER, SHUFFLED, ZEROS]),
    ([[[1, 1], [1, 1]], [[1, 1], [1, 1]]], [ANOTHER, SHUFFLED]),
    ([[[1, 2], [1, 2]], [[3, 4], [3, 4]]], [SHUFFLED]),
    ([[[1, 2], [3, 4]], [[1, 2], [3, 4]]], [ANOTHER]),
    ([[[1, 2], [3, 4]]], [ANOTHER]),
])  # fmt: skip
def test_what_would_have_passed_is_named(draws, wrong):
    assert found(*draws) == sorted(wrong)


def test_values_close_to_their_mean_are_not_seen_by_a_limit_that_the_mean_is_within():
    rng = np.random.default_rng(0)
    draws = [(12 + rng.standard_normal((8, 16))).astype(np.float32) for _ in range(3)]
    for limit, wrong in ((NOISE_LIMITS["int8"], [MEAN]), (NOISE_LIMITS["fp16"], [])):
        vacuity = Vacuity([limit])
        for draw in draws:
            vacuity.see([draw])
        assert vacuity.findings().get(0, []) == wrong


def test_one_draw_that_shows_it_is_enough_for_the_cell():
    assert found([[0.0, 0], [0, 0]], [[0.0, 0], [0, 0]], [[1.0, 2], [3, 4]]) == []


def test_another_shape_shows_that_another_draws_output_is_wrong():
    assert found([1.0, 2.0, 3.0], [1.0, 2.0]) == []


def test_a_single_row_cannot_be_shuffled_and_is_not_held_to_it():
    assert found([[1.0, 2.0]], [[3.0, 4.0]]) == []


def test_rows_that_differ_by_less_than_the_tolerance_are_shuffled_unseen():
    assert found([[1.0], [1 + 1e-7]], [[2.0], [2.0]]) == [SHUFFLED]


def test_outputs_as_small_as_1e_30_prove_something():
    assert found([1e-30, 2e-30], [3e-30, 4e-30]) == []


def test_nan_and_infinities_in_places_of_their_own_show_wrong_outputs():
    assert found([np.nan, 1.0, 2.0], [1.0, np.inf, 3.0]) == []


def test_an_infinity_is_not_the_other_infinity():
    assert ANOTHER not in found([np.inf, 1.0], [-np.inf, 1.0])


def test_integers_are_judged_exactly_and_need_no_order():
    assert found([1, 1], [2, 2], dtype="int64") == []
    assert found([1, 1], [1, 1], dtype="int64") == [ANOTHER]


def test_outputs_without_values_prove_nothing():
    assert found(np.zeros((0, 3)), np.zeros((0, 3))) == sorted([ANOTHER, ZEROS])


def test_each_output_is_judged_alone():
    vacuity = Vacuity([DEFAULTS["float32"]] * 2)
    for k in range(3):
        vacuity.see([np.array([1.0 + k, 5.0], "float32"), np.ones(2, "float32")])
    assert list(vacuity.findings()) == [1]
