"""Hosts with a clock of their own, so that what is measured there does not depend on how fast this one is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Host:
    """A clock that sides move. ``noise`` is a function from the time in seconds to a factor on what a call takes."""

    noise: Callable[[float], float] | None = None
    ns: int = 0
    before: str = ""
    second_costs: dict[str, float] = field(default_factory=dict)
    """By the name of a side, a factor on each of its calls that follows one of another side."""
    ran: list[str] = field(default_factory=list)

    def clock(self) -> int:
        return self.ns

    def side(self, name: str, seconds: float) -> Simulated:
        return Simulated(self, name, seconds)


@dataclass
class Simulated:
    """A side whose calls take ``seconds`` by the clock of its host."""

    host: Host
    name: str
    seconds: float

    def run(self) -> None:
        factor = self.host.noise(self.host.ns / 1e9) if self.host.noise else 1.0
        if self.host.before not in ("", self.name):
            factor *= self.host.second_costs.get(self.name, 1.0)
        self.host.before = self.name
        self.host.ran.append(self.name)
        self.host.ns += round(self.seconds * factor * 1e9)


def quiet(rng: np.random.Generator) -> Callable[[float], float]:
    """The noise of a host on which nothing else runs."""
    return lambda time: 1 + 0.01 * rng.random()


CURRENT: list[Host] = []
"""The host of a test, last, for Python beside a case; see ``tick``."""


def tick(name: str, seconds: float, *given: Any) -> Any:
    """Let a side of the current host take that long; gives back the last of what it is given."""
    if CURRENT:
        CURRENT[-1].side(name, seconds).run()
    return given[-1] if given else None
