"""The rows and the single values of an output that noise is worst at, beside noise that is alike everywhere."""

import numpy as np
import pytest

from conformance.compare.places import MOST, ROWS, Places, row_axis

RNG = np.random.default_rng(3)


def noisy(*shape, at=(), by=1.0):
    """An output, and what is off by 1 %; ``at`` a place the error is larger."""
    right = RNG.standard_normal(shape).astype(np.float32)
    error = 0.01 * RNG.standard_normal(shape)
    error[at] *= by if at else 1.0
    return right, (right + error).astype(np.float32)


def seen(*pairs):
    places = Places()
    for pair in pairs:
        places.see(*pair)
    return places


@pytest.mark.parametrize("shape, axis", [
    ((4, 8), 0), ((1, 8), None), ((2, 5, 8), 0), ((1, 5, 8), 1), ((1, 3, 9, 9), 2), ((7,), 0), ((), None),
])  # fmt: skip
def test_rows_lie_along_the_first_axis_that_is_not_that_of_channels(shape, axis):
    assert row_axis(shape) == axis


def test_the_rows_with_most_noise_are_named_by_draw_and_place():
    rows = seen(noisy(5, 64), noisy(8, 64, at=(6,), by=5.0), noisy(2, 64)).rows
    assert (rows.draw, rows.axis, rows.first, rows.last) == (1, 0, 6, 6) and 22 < rows.sqnr < 30
    rows = seen(noisy(ROWS * 3 + 4, 16, at=(slice(ROWS, 2 * ROWS),), by=5.0)).rows
    assert (rows.first, rows.last) == (ROWS, 2 * ROWS - 1)
    rows = seen(noisy(ROWS * 3 + 4, 16, at=(slice(3 * ROWS, None),), by=5.0)).rows
    assert (rows.first, rows.last) == (3 * ROWS, 3 * ROWS + 3)


def test_a_row_that_happens_to_be_small_is_no_worse_than_others():
    right, got = noisy(4, 64)
    small = np.array([1, 1e-3, 1, 1], np.float32)[:, None]
    assert seen((right * small, right * small + (got - right))).rows.sqnr > 37


def test_nothing_stands_out_of_noise_that_is_alike():
    assert seen(*(noisy(8, 64) for _ in range(50))).standing_out() == 0
    exact = [(right, np.where(RNG.random(right.shape) < 0.9, right, got)) for right, got in (noisy(8, 64),)]
    assert seen(*exact).standing_out() == 0
    assert seen((np.ones((3, 2), np.float32), np.ones((3, 2), np.float32))).standing_out() == 0


def test_single_values_that_stand_out_are_counted_and_the_furthest_is_named():
    right, got = noisy(8, 64)
    got[3, 7] += 2.0
    got[5, 1] -= 1.0
    places = seen(noisy(2, 64), (right, got), noisy(8, 64))
    assert (places.standing_out(), places.furthest(), places.count) == (2, (1, (3, 7)), 18 * 64)
    right, got = noisy(64, 64)
    got[:4] += 3.0
    assert seen((right, got)).standing_out() == MOST
    got[4:20] += 3.0
    assert seen((right, got)).standing_out() == 0  # of which rows tell


def test_values_that_are_not_finite_do_not_count():
    right, got = noisy(8, 64)
    right[0, 0] = got[0, 0] = np.inf
    got[1, 1] = np.nan
    places = seen((right, got))
    assert places.standing_out() == 0 and np.isfinite(places.rows.sqnr)
