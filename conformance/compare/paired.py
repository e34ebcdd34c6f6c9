"""Compare the scores of a metric before and after, paired by sample: how much was lost, between which limits.

Limits of a mean of scores in 0..1 are those of W. Hoeffding, Probability inequalities for sums of bounded random
variables, JASA 58 (1963), theorem 1: they hold for any scores, few samples and rare changes included, where a normal
approximation would call no change at all certain. What was lost and what was gained each have such limits, which are
put together by the squares of their distances (G. Zou and A. Donner, Construction of confidence limits about effect
measures, Statistics in Medicine 27 (2008); R. Newcombe, ibid. 17 (1998), for proportions). One number for all samples
has a bootstrap's percentiles (B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), put
together in that way with the limits of a change that no sample has shown, which no bootstrap knows of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from conformance.process.arrays import Array

CONFIDENCE = 0.95
"""Of an interval with both of its ends."""
RESAMPLES = 500
"""Number of times that samples are drawn again where a metric gives one number for all."""
MOST = 10**9
"""Samples beyond which nobody is told how many are needed."""
_LOG = math.log(2 / (1 - CONFIDENCE))


@dataclass(frozen=True)
class PairedLoss:
    """The loss of a score from 0 to 1, as a share of 1, between its limits."""

    drop: float
    low: float
    high: float
    samples: int
    at: Callable[[float], tuple[float, float]]
    """Return the interval that as many samples would give, of which the same share changes."""

    def verdict(self, allowed: float) -> str:
        """Return whether the loss ``holds`` what is allowed or ``drops`` by more; ``cannot tell`` where the interval
        has it inside."""
        return _verdict(self.low, self.high, allowed)

    def needed(self, allowed: float) -> int | None:
        """Return about how many samples would tell, if these are like the others; None beyond ``MOST``."""
        low, high = self.samples, self.samples
        while _verdict(*self.at(high), allowed) == "cannot tell":
            low, high = high, 2 * high
            if high > MOST:
                return None
        while high - low > max(1, high // 100):
            half = (low + high) // 2
            low, high = (half, high) if _verdict(*self.at(half), allowed) == "cannot tell" else (low, half)
        return high


def _verdict(low: float, high: float, allowed: float) -> str:
    return "holds" if high <= allowed else "drops" if low > allowed else "cannot tell"


def loss_of(before: Array, after: Array) -> PairedLoss:
    """Return what was lost of scores (float64[samples], 0 to 1) that are paired by sample."""
    lost = float(np.mean(np.maximum(before - after, 0)))
    gained = float(np.mean(np.maximum(after - before, 0)))

    def at(samples: float) -> tuple[float, float]:
        (lost_low, lost_high), (gained_low, gained_high) = _limits(lost, samples), _limits(gained, samples)
        drop = lost - gained
        return (drop - math.hypot(lost - lost_low, gained_high - gained),
                drop + math.hypot(lost_high - lost, gained - gained_low))  # fmt: skip

    return PairedLoss(lost - gained, *at(len(before)), len(before), at)


def loss_of_all(score: Callable[[Array], tuple[float, float]], samples: int) -> PairedLoss:
    """Return what was lost of one number for all samples, which ``score`` gives before and after for any of them
    (int64[samples], by number, some more than once)."""
    rng = np.random.default_rng(0)
    before, after = score(np.arange(samples))
    drawn = [np.subtract(*score(rng.integers(0, samples, samples))) for _ in range(RESAMPLES)]
    ends = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    drop = before - after

    def at(count: float) -> tuple[float, float]:
        narrower, unseen = math.sqrt(samples / count), _limits(0.0, count)[1]
        below, above = (math.hypot((float(end) - drop) * narrower, unseen) for end in ends)
        return drop - below, drop + above

    return PairedLoss(drop, *at(samples), samples, at)


def _limits(mean: float, samples: float) -> tuple[float, float]:
    """Return between which means of scores the divergence from ``mean`` is no larger than chance explains."""

    def furthest(inside: float, outside: float) -> float:
        for _ in range(60):
            half = (inside + outside) / 2
            inside, outside = (half, outside) if samples * _divergence(mean, half) <= _LOG else (inside, half)
        return inside

    return furthest(mean, 0.0), furthest(mean, 1.0)


def _divergence(one: float, other: float) -> float:
    """Return that of Kullback and Leibler between two chances, in nats."""
    parts = ((one, other), (1 - one, 1 - other))
    return sum(a * math.log(a / b) if b > 0 else math.inf for a, b in parts if a > 0)
