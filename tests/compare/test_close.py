"""How arrays are compared to explain a failure, and moved by as much as rounding may."""

from typing import Any

import numpy as np
import pytest

from conformance.compare.close import Limit, differs, distances, ratios
from conformance.compare.nudge import by_share, by_units, largest_movement, movement, to_neighbours

INF, NAN = np.inf, np.nan
SPECIAL = (INF, -INF, NAN, 1.0)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize("limit", [Limit(), Limit(units=16.0), Limit(share=0.5), Limit(of_largest=1e6)], ids=str)
def test_nan_and_each_infinity_meet_only_themselves(limit):
    for got in SPECIAL:
        for wanted in SPECIAL:
            alike = got == wanted or (got != got and wanted != wanted)
            assert differs(floats(got, 2.0), floats(wanted, 2.0), limit) == (None if alike else "value")


@pytest.mark.parametrize("got, wanted, limit, how", [
    (floats(1.0), np.array([1.0]), Limit(), "dtype"), (floats(1.0), floats(1.0, 1.0), Limit(), "shape"),
    (np.array([3]), np.array([4]), Limit(share=1.0), "value"),
    (floats(1.0 + 2**-21), floats(1.0), Limit(units=4.0), None),
    (floats(1.0 + 2**-20), floats(1.0), Limit(units=4.0), "value"),
    (floats(2**-21, 1.0), floats(0.0, 1.0), Limit(of_largest=4.0), None),
    (floats(2**-20, 1.0), floats(0.0, 1.0), Limit(of_largest=4.0), "value"),
    (floats(0.25, INF, 2.0), floats(0.0, INF, 2.0), Limit(share=0.125), None),
    (floats(0.3, INF, 2.0), floats(0.0, INF, 2.0), Limit(share=0.125), "value"),
    (floats(0.125), floats(0.0), Limit(share=0.125, floor=1.0), None),
    (floats(0.125), floats(0.0), Limit(share=0.125), "value"),
], ids=str)  # fmt: skip
def test_a_limit_is_the_sum_of_its_parts(got, wanted, limit, how):
    assert differs(got, wanted, limit) == how


def test_what_rounding_moves_is_asked_only_where_it_matters_and_may_count_for_all():
    def unasked() -> Any:
        raise AssertionError("nobody needs to know")

    moved, got, wanted = floats(0.25, 0.0), floats(1.0, 1.25), floats(1.0, 1.0)
    assert differs(wanted, wanted, Limit(units=1.0), unasked) is None
    assert differs(got, wanted, Limit(units=1.0), lambda: moved) == "value"
    assert differs(got, wanted, Limit(units=1.0, spread=True), lambda: moved) is None
    assert ratios(got, wanted, Limit(share=0.125)).tolist() == [0.0, 2.0]
    assert distances(got, floats(1.0)) == INF and differs(got, got.astype(float), Limit(), dtypes=False) is None


def test_nudges_move_what_may_move_and_are_measured():
    rng, given = np.random.default_rng(0), floats(1.5, 3.0, INF)
    assert (to_neighbours(given, rng) != given)[:2].all() and to_neighbours(np.array([1]), rng).tolist() == [1]
    assert by_units(given, np.ones(3), 1.0, whole=False).tolist() == [1.5 + 2**-23, 3.0, INF]
    assert by_units(given, -np.ones(3), 1.0, whole=True).tolist() == [1.5 - 2**-23, 3.0 - 2**-22, INF]
    assert set(np.abs(by_share(floats(1.0, 1.0), rng, 0.5) - 1.0)) == {0.5}
    assert movement(floats(1.25, NAN, INF), floats(1.0, 1.0, INF)).tolist() == [0.25, 0.0, 0.0]
    runs = [[floats(1.5)], [floats(0.0)], [floats(1.25)]]
    assert largest_movement(runs, [floats(1.0)]) == [np.array([1.0])]
    assert largest_movement([*runs, None], [floats(1.0)]) is None
    assert largest_movement([[floats(1.0, 1.0)]], [floats(1.0)]) is None
