"""The loss by stage beside the verdict, and inputs in words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from conformance.verdict.blame import shown
from conformance.verdict.loss import bears_out

pytestmark = pytest.mark.smoke
NONE = math.inf


@pytest.mark.parametrize("loss, fault, says_the_same", [
    ({"export": 9.5, "optimizer": NONE}, "exporter", True),
    ({"export": 9.5, "optimizer": NONE}, "runtime", False),
    ({"export": NONE, "optimizer": 12.0}, "runtime", True),
    ({"export": NONE, "optimizer": 12.0}, "exporter", False),
    ({"export": NONE, "optimizer": NONE}, "exporter", False),
    ({"export": 140.0, "conversion": 12.0}, "precision", True),
    ({"export": 40.0, "conversion": 60.0}, "runtime", True),
    ({"export": 9.5}, None, True), ({"export": "RuntimeError"}, "exporter", True), ({}, "exporter", False),
])  # fmt: skip
def test_a_loss_is_told_where_it_says_the_same_as_the_verdict(loss, fault, says_the_same):
    assert bears_out(loss, fault) == says_the_same


def test_an_input_that_is_too_large_to_print_shows_its_nan_and_infinities():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x[1, 2, 3], x[0, 1, 0], x[1, 0, 0] = np.nan, -np.inf, -np.inf
    assert (
        shown({"x": x})["x"]
        == "float32[2, 3, 4] from 0.0 to 22.0, NaN at [1, 2, 3], 2 times -inf, first at [0, 1, 0]"
    )
    assert shown({"x": np.full((4, 4), np.nan, np.float32)})["x"] == "float32[4, 4], 16 times NaN, first at [0, 0]"
    assert shown({"x": np.arange(20)})["x"] == "int64[20] from 0 to 19"
