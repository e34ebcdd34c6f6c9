"""Running both sides in turn: warmed up, in pairs, in an order that is drawn, until the verdict stands;
what seems broken is measured again with new sides."""

from __future__ import annotations

import gc
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from conformance.case.files.time_budget import Budget
from conformance.judge.latency.statistics import (
    CONFIDENCE,
    Clock,
    Interval,
    Samples,
    TimeVerdict,
    certain,
    time_verdict,
    verdict,
)
from conformance.process.errors import attempt

SAMPLE = 2e-4
"""Seconds that a sample takes at least: the mean of several calls where a call is shorter. On a busy host an
interruption spoils the fewer samples the shorter they are: with 1 ms a verdict took three times as long as with 0.3
or 0.1 ms."""
STEPS = 1000
"""Steps of the clock that a sample takes at least, so that reading the clock is off by a thousandth at most."""
STILL = 1000
"""How often the calls of a sample are repeated, at most, while the host's clock stands still. A short call is over
before a coarse clock steps, and the clock of a virtual machine was seen to give one time before and after a call."""
LOOKS = 5
"""Looks at the samples: after 1/16, 1/8, 1/4, 1/2 of the time, and at its end."""
IN_A_ROW = 2
"""Looks in a row that have to say that enough was measured. Two thread pools that share the cores may settle into a
pace for half a second, in which one side is 1.7 times slower: a look that falls into it is sure of itself, and
wrong."""
MIN_PAIRS = 16
"""Pairs before the first look: with ten, the signed-rank test can just refuse anything at 0.01 / 5."""
MAX_PAIRS = 200_000
"""More pairs than calls of 20 µs give in four seconds. The time is meant to end a measurement, not the number of
pairs: however many calls fall into some hundredths of a second in which the host is busy, they tell as little as a
few."""


class Runs(Protocol):
    """A side that the host's clock measures. A call is over when its results are there."""

    name: str

    def run(self) -> object:
        """One call."""
        ...


class Times(Protocol):
    """A side that measures itself, as a GPU does with events of its own."""

    name: str

    def timed(self) -> float:
        """One call; the seconds it took."""
        ...


Side: TypeAlias = Runs | Times
Enough: TypeAlias = Callable[[Samples], bool]


class SideFailed(Exception):
    """A side raised, or gave a duration that is not finite and above 0. Remedy: what the side did, which is
    ``reason``."""

    def __init__(self, side: str, when: Literal["warming up", "measuring"], calls: int, reason: str) -> None:
        super().__init__(f"{side}, {when}, after {calls} calls: {reason}")
        self.side = side
        self.when = when
        self.reason = reason


def interleave(
    own: Side,
    other: Side | None,
    *,
    seed: int,
    enough: Enough | None = None,
    max_seconds: float = 4.0,
    min_pairs: int = MIN_PAIRS,
    max_pairs: int = MAX_PAIRS,
    warmup_seconds: float = 0.2,
    min_warmup: int = 3,
    iterations: int | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Samples:
    """Measure both sides in pairs, or one side alone, with the garbage collector off.

    ``enough`` is asked at ``LOOKS`` moments that are fixed beforehand, in shares of ``max_seconds``; without it the
    time is used up. Asking as often as one likes would find a difference by chance sooner or later (Armitage,
    McPherson and Rowe 1969). ``iterations`` sets how many calls a sample is the mean of; 1 for percentiles of single
    calls. ``clock`` gives nanoseconds. Raises ``SideFailed`` for what a side did, with what it raised as the cause.
    """
    if max_seconds <= 0 or min_pairs < 1 or max_pairs < min_pairs or (iterations is not None and iterations < 1):
        raise ValueError("max_seconds has to be above 0, 1 <= min_pairs <= max_pairs, and iterations at least 1")
    sides = [_Measured(side, clock) for side in ([own] if other is None else [own, other])]
    with _collector_off():
        per_call = _warm_up(sides, warmup_seconds, max(1, min_warmup), clock)
        for side, calls in zip(sides, _iterations(per_call, clock, iterations), strict=True):
            side.iterations = calls
        return _measure(sides, random.Random(seed), enough, max_seconds, min_pairs, max_pairs, clock)


class _Measured:
    """A side, how often it was called, and how many calls are one sample."""

    def __init__(self, side: Side, clock: Callable[[], int]) -> None:
        self.name = side.name
        self.iterations = 1
        self.calls = 0
        self.when: Literal["warming up", "measuring"] = "warming up"
        timed = getattr(side, "timed", None)
        self.clock: Clock = "host" if timed is None else "device"
        self._sample = self._by_host(side, clock) if timed is None else self._by_itself(timed)

    def sample(self) -> float:
        """Seconds of one call, as the mean of ``iterations``."""
        seconds = attempt(self._sample)
        if isinstance(seconds, Exception):
            text = f"{type(seconds).__name__}: {seconds}"
            raise SideFailed(self.name, self.when, self.calls, text) from seconds
        if not (math.isfinite(seconds) and seconds > 0):
            raise SideFailed(
                self.name, self.when, self.calls, f"a call took {seconds} s, by its {self.clock}'s clock"
            )
        self.calls += self.iterations
        return seconds

    def _by_host(self, side: Side, clock: Callable[[], int]) -> Callable[[], float]:
        run: Callable[[], object] = side.run  # type: ignore[union-attr]  # of a side that the host times

        def sample() -> float:
            calls = range(self.iterations)
            repeats = 0
            start = now = clock()
            while now == start and repeats < STILL:
                for _ in calls:
                    run()
                now = clock()
                repeats += 1
            return (now - start) / 1e9 / len(calls) / repeats

        return sample

    def _by_itself(self, timed: Callable[[], float]) -> Callable[[], float]:
        return lambda: sum(timed() for _ in range(self.iterations)) / self.iterations


def _warm_up(sides: list[_Measured], seconds: float, calls: int, clock: Callable[[], int]) -> list[float]:
    """Calls the sides in turn, for at least ``seconds`` and at least ``calls`` times; gives, for each side, the
    median seconds of the later half of its calls.

    The first calls allocate, compile and choose kernels, and are slower by any factor.
    """
    took: list[list[float]] = [[] for _ in sides]
    end = clock() + seconds * 1e9
    while len(took[0]) < calls or (clock() < end and len(took[0]) < MAX_PAIRS):
        for side, durations in zip(sides, took, strict=True):
            durations.append(side.sample())
    return [float(np.median(durations[len(durations) // 2 :])) for durations in took]


def _iterations(per_call: list[float], clock: Callable[[], int], given: int | None) -> list[int]:
    """Choose how many calls a sample of each side takes.

    As many for both where they are about as fast, so that both pay alike for the first call after the other side has
    used the caches.
    """
    if given is not None:
        return [given for _ in per_call]
    least = max(SAMPLE, STEPS * _step(clock) / 1e9)
    each = [max(1, math.ceil(least / seconds)) for seconds in per_call]
    return [max(each) for _ in each] if max(per_call) < 2 * min(per_call) else each


def _step(clock: Callable[[], int]) -> int:
    """The smallest step of a clock in nanoseconds, reading included; 0 if it stands still."""
    times = [clock() for _ in range(200)]
    return min((b - a for a, b in itertools.pairwise(times) if b > a), default=0)


def _measure(
    sides: list[_Measured],
    draw: random.Random,
    enough: Enough | None,
    max_seconds: float,
    min_pairs: int,
    max_pairs: int,
    clock: Callable[[], int],
) -> Samples:
    durations: tuple[list[float], ...] = tuple([] for _ in sides)
    order: list[bool] = []
    looked = in_a_row = 0
    for side in sides:
        side.when = "measuring"

    def samples(stopped: Literal["enough", "time"]) -> Samples:
        arrays = [np.asarray(values) for values in durations]
        return Samples(
            own=arrays[0],
            other=arrays[1] if len(arrays) > 1 else None,
            own_first=np.asarray(order),
            iterations=(sides[0].iterations, sides[-1].iterations),
            names=(sides[0].name, sides[1].name if len(sides) > 1 else None),
            clocks=(sides[0].clock, sides[-1].clock),
            looks=LOOKS if enough else 1,
            looked=looked,
            stopped=stopped,
            seconds=(clock() - start) / 1e9,
        )

    start = clock()
    times = _looks(max_seconds)
    due = next(times)
    while clock() - start < max_seconds * 1e9 and len(order) < max_pairs:
        own_first = draw.random() < 0.5
        for index in (0, 1) if own_first else (1, 0):
            if index < len(sides):
                durations[index].append(sides[index].sample())
        order.append(own_first)
        passed = (clock() - start) / 1e9
        if passed < due:
            continue
        while passed >= due:
            due = next(times)
        if enough is not None and due < math.inf and len(order) >= min_pairs:
            looked += 1
            in_a_row = in_a_row + 1 if enough(samples("enough")) else 0
            if in_a_row == IN_A_ROW:
                return samples("enough")
    looked += 1
    return samples("time")


def _looks(max_seconds: float) -> Iterator[float]:
    """Yield the seconds at which to look before the time is up; then never."""
    yield from (max_seconds / 2**k for k in range(LOOKS - 1, 0, -1))
    yield max_seconds
    while True:
        yield math.inf


@contextmanager
def _collector_off() -> Iterator[None]:
    """Collect garbage once, then not before the body has ended, however it ends."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


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
    """The samples and the verdict; options are those of ``measure_latency.interleave``, whose times hold for each
    measurement.

    Threads or memory that got an unlucky place make a session slower for as long as it lives, which no statistics of
    its durations can show. So a budget counts as broken only if a second measurement, with new sessions, says so too;
    the interval then spans those of both. The samples are those of the first measurement.
    """
    asked: dict[str, float] = {"percentile": percentile, "floor": floor, "confidence": confidence}
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
