"""Hold durations of one side, or of two in pairs, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
