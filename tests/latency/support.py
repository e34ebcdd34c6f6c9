"""Sides whose time is simulated: they move a clock of their own, so that nothing depends on how fast the host is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from conformance.case.time_budget import parse
from conformance.latency.measure import interleave
from conformance.latency.samples import Samples
from conformance.latency.statistics import certain

TEN_PERCENT = parse("1.10 x pytorch")


@dataclass
class Host:
    """A clock that sides move. ``noise`` is a function from the time in seconds to a factor on what a call takes."""

    noise: object = None
    ns: int = 0
    before: str = ""
    second_costs: float = 1.0
    """A factor on a call that follows one of the other side."""
    ran: list[str] = field(default_factory=list)

    def clock(self) -> int:
        return self.ns

    def side(self, name: str, seconds: float) -> Simulated:
        return Simulated(self, name, seconds)


@dataclass
class Simulated:
    host: Host
    name: str
    seconds: float

    def run(self) -> None:
        factor = self.host.noise(self.host.ns / 1e9) if self.host.noise else 1.0
        if self.host.before not in ("", self.name):
            factor *= self.host.second_costs
        self.host.before = self.name
        self.host.ran.append(self.name)
        self.host.ns += round(self.seconds * factor * 1e9)


def quiet(rng):
    return lambda time: 1 + 0.01 * rng.random()


def measured(kind, seed, ratio, budget=TEN_PERCENT, max_seconds=1.0, second_costs=1.0, **options):
    """Two sides of 1 ms on a simulated host, own ``ratio`` times slower."""
    simulated = Host(kind(np.random.default_rng(seed)), second_costs=second_costs)
    return interleave(
        simulated.side("own", 1e-3 * ratio), simulated.side("other", 1e-3), seed=seed, enough=certain(budget),
        max_seconds=max_seconds, warmup_seconds=0.01, clock=simulated.clock, **options,
    )  # fmt: skip


def paired(own, other, looks=1, iterations=1):
    own, other = np.asarray(own, float), None if other is None else np.asarray(other, float)
    return Samples(
        own, other, np.ones(len(own), bool), (iterations, iterations), ("onnxruntime", "pytorch"), ("host", "host"),
        looks, looks, "time", 1.0,
    )  # fmt: skip
