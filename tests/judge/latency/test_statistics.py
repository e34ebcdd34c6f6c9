"""Intervals of a ratio and of a percentile, and what is judged by them."""

import math

import numpy as np
import pytest

from conformance.case.files.time_budget import parse
from conformance.judge.latency.statistics import (
    Interval,
    noise_floor,
    percentile_interval,
    precise,
    ratio_interval,
    signed_rank_quantile,
    summary,
    time_verdict,
    verdict,
)
from tests.judge.latency.support import TEN_PERCENT, paired


def test_verdicts_need_all_of_the_interval_on_one_side():
    assert verdict(Interval(1.0, 0.9, 1.19), 1.2) == "holds" and verdict(Interval(1.3, 1.21, 1.4), 1.2) == "broken"
    for low, high in ((1.1, 1.2), (1.2, 1.3), (1.1, 1.3), (0.0, math.inf)):
        assert verdict(Interval(1.2, low, high), 1.2) == "inconclusive"


@pytest.mark.parametrize("tail, quantile", [(0.025, 8), (0.005, 3), (0.0009, None), (0.001, 0), (0.05, 10)])
def test_the_signed_rank_distribution_is_that_of_the_tables(tail, quantile):
    """Ten values: 8, 3 and 10 are the critical values of any table; P(W = 0) is 1 / 1024."""
    assert signed_rank_quantile(10, tail) == quantile


def test_an_interval_covers_the_ratio_as_often_as_it_says():
    missed = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        own, other = 1.3 * np.exp(0.3 * rng.standard_t(2, 40)), np.exp(0.3 * rng.standard_t(2, 40))
        found = ratio_interval(paired(own, other), 0.9)
        missed += not found.low <= 1.3 <= found.high
    assert 5 <= missed <= 40  # 10% or somewhat less, since disagreeing parts only widen


def test_more_looks_and_more_confidence_widen_the_interval():
    rng = np.random.default_rng(0)
    own, other = np.exp(0.1 * rng.standard_normal((2, 200)))

    def width(looks, confidence):
        found = ratio_interval(paired(own, other, looks), confidence)
        return math.log(found.high / found.low)

    assert width(1, 0.95) < width(1, 0.99) < width(5, 0.99)
    with pytest.raises(ValueError, match="between 0 and 1"):
        ratio_interval(paired(own, other), 99)


def test_the_noise_floor_is_what_equal_sides_differ_by_and_makes_close_verdicts_inconclusive():
    rng = np.random.default_rng(0)
    noise = np.exp(0.01 * rng.standard_normal((2, 200)))
    floor = noise_floor(paired(1.05 * noise[0], noise[1]))
    assert floor == pytest.approx(math.log(1.05), abs=0.005)
    assert noise_floor(paired(noise[0], 1.05 * noise[1])) == pytest.approx(floor, abs=0.005)
    close, far = paired(1.13 * noise[0], noise[1]), paired(1.3 * noise[0], noise[1])
    assert time_verdict(TEN_PERCENT, close).verdict == "broken"
    assert time_verdict(TEN_PERCENT, close, floor=floor).verdict == "inconclusive"
    assert time_verdict(TEN_PERCENT, far, floor=floor).verdict == "broken"
    assert time_verdict(TEN_PERCENT, paired(1.07 * noise[0], noise[1])).verdict == "holds"
    assert time_verdict(TEN_PERCENT, paired(1.07 * noise[0], noise[1]), floor=floor).verdict == "inconclusive"


def test_an_aa_run_may_stop_once_it_is_precise():
    rng = np.random.default_rng(0)
    own, other = np.exp(0.1 * rng.standard_normal((2, 400)))
    assert precise(0.1)(paired(own, other)) and not precise(0.005)(paired(own, other))
    assert not precise(0.1)(paired(own[:4], other[:4]))


def test_a_percentile_is_covered_as_often_as_it_says():
    missed = 0
    for seed in range(200):
        found = percentile_interval(paired(np.random.default_rng(seed).exponential(1.0, 800), None), 95, 0.9)
        missed += not found.low <= -math.log(0.05) <= found.high
    assert 2 <= missed <= 30


def test_a_host_that_remembers_longer_than_a_part_of_the_measurement_is_not_taken_at_its_word():
    """The limit is the true median, and durations remember the last 50: blocks of 25 to 50 calls resemble one
    another, so that their scatter alone says too little."""
    rng, sure = np.random.default_rng(0), 0
    for _ in range(100):
        level, levels = 0.3 * rng.standard_normal(), []
        for step in 0.3 * math.sqrt(1 - 0.98**2) * rng.standard_normal(800):
            level = 0.98 * level + step
            levels.append(level)
        found = percentile_interval(paired(np.exp(levels), None), 50)
        sure += not found.low <= 1 <= found.high
    assert sure <= 5  # 10 without a look at the neighbouring parts


def test_seconds_are_judged_at_their_percentile():
    durations = np.concatenate([np.full(940, 1e-3), np.full(60, 9e-3)])
    np.random.default_rng(0).shuffle(durations)
    samples = paired(durations, None)
    assert time_verdict(parse("2 ms"), samples).verdict == "holds"
    assert time_verdict(parse("500 us"), samples).verdict == "broken"
    assert time_verdict(parse("2 ms"), samples, percentile=99).verdict == "broken"
    assert time_verdict(parse("10 ms"), samples, percentile=99).verdict == "holds"
    assert time_verdict(parse("10 ms"), paired(durations[:100], None), percentile=99).verdict == "inconclusive"


def test_a_summary_has_the_numbers():
    found = summary(np.arange(1, 102) / 100)
    assert (found["median"], found["min"], found["rounds"]) == (0.51, 0.01, 101)
    assert [found[key] for key in ("p90", "p95", "p99")] == pytest.approx([0.91, 0.96, 1.0])
    assert found["iqr"] == pytest.approx(0.5, abs=0.02)
    with pytest.raises(ValueError, match="nothing was measured"):
        summary(np.array([]))
