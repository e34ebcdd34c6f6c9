"""Intervals and verdicts from samples. ``docs/latency.md`` has the sources, and the measurements behind each choice.

The order within a pair is drawn at random, for each pair anew. If both sides are the same, swapping their names
changes nothing, so that the sign of each log ratio is a fair coin, whatever the host did: drift, bursts and heavy
tails fall on both sides alike. That is all that Wilcoxon's signed-rank test asks for. The same holds at any ratio
once its logarithm is subtracted, as long as the host slows both sides by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pytest_benchmark.stats import Stats

from conformance.case.files.time_budget import Budget

Durations = NDArray[np.float64]
"""Seconds of one call each, float64[samples]."""
Clock = Literal["host", "device"]


@dataclass(frozen=True)
class Samples:
    """Durations in seconds of one call; pair i is ``own[i]`` with ``other[i]``, which ran right after one another."""

    own: Durations
    other: Durations | None
    own_first: NDArray[np.bool_]
    """Which of a pair ran first, drawn for each pair."""
    iterations: tuple[int, int]
    """How many calls a sample of each side is the mean of. Percentiles of calls need 1."""
    names: tuple[str, str | None]
    clocks: tuple[Clock, Clock]
    looks: int
    """At how many moments the measurement could look at its samples; the allowed error is shared out among them."""
    looked: int
    """At how many moments it looked."""
    stopped: Literal["enough", "time"]
    seconds: float
    """Wall time of the measurement, without the warm-up."""

    @property
    def log_ratios(self) -> Durations:
        """log(own / other) of each pair."""
        if self.other is None:
            raise ValueError(f"{self.names[0]} was measured alone: there is no ratio")
        return np.log(self.own) - np.log(self.other)


Held: TypeAlias = Literal["holds", "broken", "inconclusive"]

CONFIDENCE = 0.99
"""For all looks together: a budget that just holds is called broken in at most half a percent of measurements."""
BLOCKS = 8
"""Parts of a measurement that are compared with one another, to see whether one side changed its pace meanwhile."""
LARGEST = 1024
"""Log ratios of which the means of all pairs are formed; of more than these, medians of neighbours are taken
first."""
_MOST_ALIKE = 0.9
"""The largest correlation of neighbouring blocks that sixteen blocks can show."""
_EXACT = 60
"""Pairs up to which the signed-rank distribution is counted out; beyond, it is normal to within 2% of its tails."""


@dataclass(frozen=True)
class Interval:
    """A ratio of durations, or a duration in seconds, between two bounds; without enough samples 0 and infinity."""

    ratio: float
    low: float
    high: float

    def widened(self, floor: float) -> Interval:
        """The interval, further out by ``floor`` at both ends: the log ratio of two sides that are the same, which
        ``noise_floor`` measures."""
        return Interval(self.ratio, self.low * math.exp(-floor), self.high * math.exp(floor))


def verdict(interval: Interval, limit: float) -> Held:
    """Judge by whether the whole interval lies below the limit, or above it."""
    if interval.high < limit:
        return "holds"
    return "broken" if interval.low > limit else "inconclusive"


# ---- two sides -----------------------------------------------------------------------------------------------


def ratio_interval(samples: Samples, confidence: float = CONFIDENCE) -> Interval:
    """Estimate how many times as long as the other side the own side takes.

    The Hodges-Lehmann estimate of the log ratio with the bounds of the signed-rank test, wider where the parts of the
    measurement disagree.

    ``confidence`` is of all looks together. Sharing the error out evenly (Bonferroni) needs to know nothing of how
    the looks depend on one another, and costs 2% more width than Pocock's bounds for five looks.
    """
    logs = joined(samples.log_ratios)
    level = (1 - _checked(confidence)) / samples.looks
    estimate, low, high = signed_rank_interval(logs, level)
    if not math.isfinite(low):
        return Interval(math.exp(estimate), 0.0, math.inf)
    half = (high - low) / 2
    scale = disagreement(logs, half / NormalDist().inv_cdf(1 - level / 2))
    if scale > 1:  # to both sides alike: between two paces the estimate may lie on one of the bounds
        low, high = min(low, estimate - scale * half), max(high, estimate + scale * half)
    return Interval(math.exp(estimate), math.exp(low), math.exp(high))


def joined(logs: Durations) -> Durations:
    """At most ``LARGEST`` log ratios: medians of neighbours, which keep the symmetry that the test asks for."""
    size = -(-len(logs) // LARGEST)
    if size <= 1:
        return logs
    whole = len(logs) // size * size
    medians: Durations = np.median(logs[:whole].reshape(-1, size), axis=1)
    return medians


def signed_rank_interval(values: Durations, level: float) -> tuple[float, float, float]:
    """Hodges-Lehmann estimate and the two-sided interval of error ``level``; infinite with too few values."""
    first, second = np.triu_indices(len(values))
    means = np.sort((values[first] + values[second]) / 2)
    estimate = float(np.median(means))
    rank = signed_rank_quantile(len(values), level / 2)
    if rank is None:
        return estimate, -math.inf, math.inf
    return estimate, float(means[rank]), float(means[-1 - rank])


@lru_cache(maxsize=256)
def signed_rank_quantile(count: int, tail: float) -> int | None:
    """The largest k with P(W <= k) <= tail for Wilcoxon's signed-rank sum of ``count`` values; None if there is
    none."""
    if count > _EXACT:
        mean = count * (count + 1) / 4
        deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return math.floor(mean + NormalDist().inv_cdf(tail) * deviation - 0.5)
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):  # a rank is positive or not, with equal chance
        ways[rank:] = ways[rank:] + ways[:-rank]
        ways /= 2
    largest = int(np.searchsorted(np.cumsum(ways), tail, side="right")) - 1
    return largest if largest >= 0 else None


def disagreement(logs: Durations, error: float) -> float:
    """Return how far the parts of a measurement lie apart; at least 1.

    It is in units of what the standard error of the measurement explains.

    A thread pool, a memory layout or a clock can change the pace of one side for seconds, so that its pairs are no
    longer independent. The factor is that by which physicists widen the errors of data that disagree:
    sqrt(chi^2 / (N - 1)) (Birge 1932).
    """
    count = min(BLOCKS, len(logs) // 4)
    if count < 2 or error <= 0:
        return 1.0
    centres = [float(np.median(part)) for part in np.array_split(logs, count)]
    return max(1.0, float(np.std(centres, ddof=1)) / (error * math.sqrt(count)))


def noise_floor(same: Samples) -> float:
    """Return how far apart two equal sides (an A/A run) are, as a log ratio."""
    return abs(math.log(ratio_interval(same).ratio))


# ---- one side ------------------------------------------------------------------------------------------------


def percentile_interval(samples: Samples, percentile: float, confidence: float = CONFIDENCE) -> Interval:
    """A percentile of the own side in seconds, bounded by order statistics, which assume no distribution.

    Order statistics do assume independent samples. On a busy host neighbours are alike, so that n samples count as
    fewer; as how many is estimated from the scatter, between blocks, of the share above the percentile.
    """
    if not 0 < percentile < 100:
        raise ValueError(f"percentile {percentile:g} has to lie between 0 and 100")
    share = percentile / 100
    ordered = np.sort(samples.own)
    value = float(np.quantile(ordered, share))
    level = (1 - _checked(confidence)) / samples.looks
    counted = max(1, int(len(ordered) / dependence(samples.own > value)))
    below, above = order_ranks(counted, share, level / 2)
    scale = len(ordered) / counted
    low = 0.0 if below < 1 else float(ordered[math.ceil(below * scale) - 1])
    high = math.inf if above > counted else float(ordered[min(len(ordered), math.ceil(above * scale)) - 1])
    return Interval(value, min(low, value), max(high, value))


def order_ranks(count: int, share: float, tail: float) -> tuple[int, int]:
    """Ranks (from 1) of the order statistics that have the quantile ``share`` between them, missing it on each side
    with a chance of at most ``tail``; 0 and count + 1 where no order statistic is far enough out.

    The number of values below the quantile is binomial (e.g. David and Nagaraja, Order Statistics, 7.1).
    """
    numbers = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    chances = np.exp(
        logs[count] - logs - logs[::-1] + numbers * math.log(share) + (count - numbers) * math.log1p(-share)
    )
    up_to = np.cumsum(chances)  # P(at most that many below)
    from_there = np.cumsum(chances[::-1])[::-1]  # P(at least that many below)
    low = int(np.searchsorted(up_to, tail, side="right"))  # P(fewer than low below) <= tail
    above = np.flatnonzero(from_there <= tail)
    return low, int(above[0]) if above.size else count + 1


def dependence(above: NDArray[np.bool_]) -> float:
    """Return how many neighbours count as one independent sample; at least 1.

    The variance of the share of True in each block, over that of coin tosses. ``above`` is bool[samples].

    Where neighbouring blocks are alike, they are too short to be independent, and the variance of their mean is
    larger by the factor (1 + r) / (1 - r) of a first-order autoregression.
    """
    count = min(2 * BLOCKS, len(above) // 8)
    share = float(np.mean(above))
    if count < 2 or not 0 < share < 1:
        return 1.0
    size = len(above) // count
    shares = np.asarray(above[: size * count], dtype=np.float64).reshape(count, size).mean(axis=1)
    off = shares - shares.mean()
    alike = float(np.sum(off[1:] * off[:-1]) / np.sum(off**2)) if np.any(off) else 0.0
    alike = min(max(alike, 0.0), _MOST_ALIKE)
    return max(1.0, float(np.var(shares, ddof=1)) * size / (share * (1 - share)) * (1 + alike) / (1 - alike))


def summary(durations: Durations) -> dict[str, Any]:
    """Summarize durations as pytest-benchmark does, with further percentiles.

    Its ``Stats``, in seconds.

    ``ops`` is calls a second, ``outliers`` a text; all others are numbers. A ValueError if there are no durations.
    """
    if len(durations) == 0:
        raise ValueError("nothing was measured: there are no statistics of no durations")
    stats: Any = Stats()
    for duration in durations:
        stats.update(float(duration))
    fields: dict[str, Any] = stats.as_dict()
    return fields | {f"p{percentile}": float(np.percentile(durations, percentile)) for percentile in (90, 95, 99)}


# ---- budgets -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeVerdict:
    """The verdict on a budget, and the interval it follows from: of a ratio, or in seconds where the budget is."""

    budget: Budget
    verdict: Held
    interval: Interval
    confidence: float
    percentile: float | None
    floor: float


def time_verdict(
    budget: Budget,
    samples: Samples,
    *,
    percentile: float = 50,
    floor: float = 0.0,
    confidence: float = CONFIDENCE,
) -> TimeVerdict:
    """Judge a budget by the samples.

    ``percentile`` is for seconds; ``floor`` (``noise_floor``) for relations.
    """
    if budget.kind == "relation":
        interval = ratio_interval(samples, confidence).widened(floor)
        return TimeVerdict(budget, verdict(interval, budget.limit), interval, confidence, None, floor)
    if percentile != 50 and samples.iterations[0] != 1:
        raise ValueError(
            f"percentile {percentile:g} needs the duration of each call, and these samples are means of "
            f"{samples.iterations[0]}: measure with iterations=1"
        )
    interval = percentile_interval(samples, percentile, confidence)
    return TimeVerdict(budget, verdict(interval, budget.limit), interval, confidence, percentile, 0.0)


def certain(budget: Budget, **options: float) -> Callable[[Samples], bool]:
    """For ``measure_latency.interleave``: enough once the verdict stands. Options are those of ``time_verdict``."""
    return lambda samples: time_verdict(budget, samples, **options).verdict != "inconclusive"


def precise(half_width: float, confidence: float = CONFIDENCE) -> Callable[[Samples], bool]:
    """For A/A runs: enough once the log ratio is known to within ``half_width`` (0.01 is about 1%)."""

    def enough(samples: Samples) -> bool:
        interval = ratio_interval(samples, confidence)
        return interval.low > 0 and math.log(interval.high / interval.low) <= 2 * half_width

    return enough


def _checked(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence:g} has to lie between 0 and 1, such as {CONFIDENCE}")
    return confidence
