"""Verdicts on simulated hosts: planted slowdowns are found, and equal sides are not accused."""

import math

import numpy as np
import pytest

from conformance.case.files.time_budget import parse
from conformance.judge.latency.measure_latency import interleave
from conformance.judge.latency.statistics import disagreement, ratio_interval, time_verdict, verdict
from tests.judge.latency.support import TEN_PERCENT, measured, paired
from tests.kit.clock import Host, Simulated, quiet


def heavy_tails(rng):
    """Log-normal, and one call in twenty anything up to a thousand times slower."""
    return lambda time: math.exp(0.1 * rng.standard_normal()) * (1 + (rng.pareto(1.0) if rng.random() < 0.05 else 0))


def drift(rng):
    """The host gets three times slower over a second, with ripples."""
    return lambda time: (1 + 2 * time + 0.3 * math.sin(40 * time)) * math.exp(0.05 * rng.standard_normal())


def autocorrelated(rng):
    """Each call remembers the last: an AR(1) process with coefficient 0.98."""
    state = {"level": 0.0}

    def noise(time):
        state["level"] = 0.98 * state["level"] + 0.03 * rng.standard_normal()
        return math.exp(state["level"])

    return noise


HOSTS = [quiet, heavy_tails, drift, autocorrelated]


def verdicts(kind, ratio, trials, budget=TEN_PERCENT, **options):
    found = [time_verdict(budget, measured(kind, seed, ratio, budget, **options)).verdict for seed in range(trials)]
    return {name: found.count(name) for name in ("holds", "broken", "inconclusive")}


@pytest.mark.parametrize("kind", HOSTS)
def test_equal_sides_never_break_a_ten_percent_budget(kind):
    found = verdicts(kind, 1.0, 40)
    assert found["broken"] == 0 and found["holds"] >= 36


@pytest.mark.parametrize("kind", HOSTS)
def test_fifteen_percent_more_breaks_a_ten_percent_budget(kind):
    found = verdicts(kind, 1.15, 20, max_seconds=4.0)
    assert found["holds"] == 0 and found["broken"] >= 19


@pytest.mark.parametrize("kind", HOSTS)
def test_the_error_is_kept_where_the_limit_is_exactly_met(kind):
    """The hardest place: at the limit itself each look may err, and all together by half a percent on either side."""
    found = verdicts(kind, 1.0, 60, parse("1.0 x pytorch"), max_seconds=0.4)
    assert found["broken"] + found["holds"] <= 3 and found["inconclusive"] >= 57


def test_being_always_slower_when_second_does_not_count():
    found = verdicts(quiet, 1.0, 20, second_costs=1.5)
    assert found == {"holds": 20, "broken": 0, "inconclusive": 0}
    samples = measured(quiet, 0, 1.0, budget=parse("1.0 x pytorch"), second_costs=1.5)
    assert ratio_interval(samples).low < 1 < ratio_interval(samples).high and 0.35 < samples.own_first.mean() < 0.65


def test_a_side_that_changes_its_pace_is_not_judged_by_one_of_its_paces():
    """A thread pool that is in the way of one side for seconds: no coin toss for each pair, and no certainty."""
    rng = np.random.default_rng(0)
    noise = np.exp(0.02 * rng.standard_normal(400))
    paces = np.repeat([1.0, 1.6, 1.0, 1.7, 1.0, 1.5, 1.6, 1.0], 50)
    logs = np.log(noise * paces)
    assert disagreement(logs, 0.02) > 3
    assert verdict(ratio_interval(paired(noise * paces, np.ones(400))), 1.1) == "inconclusive"
    assert disagreement(np.log(noise), 0.001) < 1.8


def test_one_look_alone_is_not_believed():
    """Own is slowed for longer than until the first look, which is sure of itself; in the end it is not."""
    simulated = Host()

    class Slowed(Simulated):
        def run(self):
            self.seconds = 1.5e-3 if self.host.ns < 0.08e9 else 1e-3
            super().run()

    looks = []

    def enough(samples):
        looks.append(time_verdict(TEN_PERCENT, samples).verdict)
        return looks[-1] != "inconclusive"

    found = interleave(
        Slowed(simulated, "own", 1e-3), simulated.side("other", 1e-3), seed=0, enough=enough, max_seconds=1.0,
        warmup_seconds=0, clock=simulated.clock,
    )  # fmt: skip
    assert looks[0] == "broken" and len(looks) >= 3
    assert time_verdict(TEN_PERCENT, found).verdict != "broken"
