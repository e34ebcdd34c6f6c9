"""The verdict on a budget of time, from sides opened for it; what seems broken is measured again with new sides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from conformance.case.time_budget import Budget
from conformance.latency.measure_latency import Side, interleave
from conformance.latency.statistics import CONFIDENCE, Interval, Samples, TimeVerdict, certain, time_verdict, verdict

Open = Callable[[], AbstractContextManager[tuple[Side, Side | None]]]
"""Opens anew, each time, the side that has the budget and the side it is compared with; the second is None where the
budget is in seconds."""


def decide(
    budget: Budget,
    sides: Open,
    *,
    seed: int,
    percentile: float = 50,
    floor: float = 0.0,
    confidence: float = CONFIDENCE,
    **options: Any,
) -> tuple[Samples, TimeVerdict]:
    """The samples and the verdict; options are those of ``measure.interleave``, whose times hold for each
    measurement.

    Threads or memory that got an unlucky place make a session slower for as long as it lives, which no statistics of
    its durations can show. So a budget counts as broken only if a second measurement, with new sessions, says so too;
    the interval then spans those of both. The samples are those of the first measurement.
    """
    asked: dict[str, Any] = {"percentile": percentile, "floor": floor, "confidence": confidence}
    if budget.kind == "absolute" and percentile != 50:
        options.setdefault("iterations", 1)

    def once(number: int) -> tuple[Samples, TimeVerdict]:
        with sides() as (own, other):
            samples = interleave(own, other, seed=seed + number, enough=certain(budget, **asked), **options)
        return samples, time_verdict(budget, samples, **asked)

    samples, first = once(0)
    if first.verdict != "broken":
        return samples, first
    return samples, spanning(first, once(1)[1])


def spanning(first: TimeVerdict, again: TimeVerdict) -> TimeVerdict:
    """The verdict of two measurements of a budget: what lies within the interval of either is credible."""
    low, high = min(first.interval.low, again.interval.low), max(first.interval.high, again.interval.high)
    interval = Interval(first.interval.ratio, low, high)
    return TimeVerdict(
        first.budget, verdict(interval, first.budget.limit), interval, first.confidence, first.percentile, first.floor
    )
