"""Compare how long a runtime took in two runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from conformance.results.records.record_types import Latency, Side

CONFIDENCE = 0.99
"""The level of the confidence interval of a median."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median and the ends of its confidence interval. Where something else, such as PyTorch,
    was measured in turn with it, ``other`` is its name and ``other_median`` its median."""

    median: float
    low: float
    high: float
    other: str | None = None
    other_median: float | None = None

    def as_dict(self) -> Latency:
        """As in the ``latency`` of a record, with three significant digits."""
        own: Side = {"median": _rounded(self.median), "interval": (_rounded(self.low), _rounded(self.high))}
        if self.other is None or self.other_median is None:
            return {"own": own}
        return {"own": own, "other": {"name": self.other, "median": _rounded(self.other_median)}}

    def grew(self, before: Timing) -> float:
        """Return how many times as long as ``before`` it took.

        Where both were measured beside the same ``other``, a change that the other shares is taken for the host's,
        and only the rest counts.
        """
        times = self.median / before.median
        if self.other is None or self.other != before.other or not self.other_median or not before.other_median:
            return times
        shared = self.other_median / before.other_median
        return min(times, times / shared) if times > 1 else max(times, times / shared)


def timing(latency: Latency | None) -> Timing | None:
    """Of a record's ``latency``, or of what a baseline keeps of it; None where too little was measured."""
    known: Latency = latency or {}
    own, other = known.get("own") or {}, known.get("other") or {}
    median = own.get("median")
    if median is None:
        return None
    interval = own.get("interval") or _interval(own.get("samples") or [])
    if interval is None:
        return None
    low, high = min(interval[0], median), max(interval[1], median)
    if not (math.isfinite(high) and low > 0):
        return None
    return Timing(median, low, high, other.get("name"), other.get("median"))


def _interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """The confidence interval of the samples' median, None where there are too few samples.

    Its ends are two of the samples, whose ranks follow from the binomial distribution, however the durations are
    distributed (Hahn and Meeker, Statistical Intervals, 1991, 5.2; its normal approximation).
    """
    count = len(samples)
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(count) / 2
    lowest = math.floor(count / 2 - reach) - 1
    if lowest < 0:
        return None
    ordered = sorted(samples)
    return ordered[lowest], ordered[count - 1 - lowest]


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.2e}")
