"""Limit how many runs of a module are spent on its calls.

The costs are guesses from what a run computes, and no durations: the calls that are tried must not depend on the
load.
"""

from __future__ import annotations

from conformance.coverage.operator_calls import Run

SECONDS = 5.0
"""About how long all runs may take, on two cores that are otherwise idle."""
FEWEST = 32
"""So many calls are asked about whatever they cost."""
RUNS = 2.5
"""About how many runs a call takes."""
BEYOND = 0.1
"""The share of these runs that is spent besides on what shows only with other values."""
LONG = 0.05
"""From how many seconds on, by these guesses, a run is one that takes long."""
TAPE_CALLS, TAPE_SECONDS = 4, 0.05
"""From how many calls, and how many seconds for them by these guesses, a tape is worth making; that takes some four
runs."""
CALL, FLOPS, VALUES = 20e-6, 30e9, 1e9
"""The seconds of a call that a mode sees; the floating-point operations, and the values, computed in a second."""


def seconds(run: Run) -> float:
    """A guess at how long such a run takes."""
    return len(run.ops) * CALL + run.flops / FLOPS + run.values / VALUES


def takes_long(run: Run) -> bool:
    """Return whether such runs are worth replacing by smaller ones, which have to be recorded first."""
    return seconds(run) > LONG


def worth_a_tape(run: Run, calls: int) -> bool:
    """Return whether to disturb so many calls takes longer than to make a tape of the run first."""
    return calls >= TAPE_CALLS and seconds(run) * RUNS * calls > TAPE_SECONDS


def runs_within(run: Run) -> int:
    """Return how many such runs are spent in all."""
    return max(int(RUNS * FEWEST), int(SECONDS / seconds(run)))
