"""Disturbing the calls of a module one by one, on draw after draw, until each is seen or there are no more draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from conformance.arrays import Array
from conformance.coverage.calls import Run, Site, recording
from conformance.coverage.cost import RUNS
from conformance.coverage.disturb import TENTHS, Disturbance, disturbed

T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One draw of a case: how to run the module on it, and whether the comparison notices other outputs."""

    run: Callable[[], list[Array]]
    """Raises what the module raises."""
    wanted: Sequence[Array]
    """What it gives."""
    notices: Callable[[list[Array]], bool]
    apart: frozenset[int] = frozenset()
    """The numbers of outputs that need not show anything."""


class Unknown(Exception):
    """Nothing can be said of a module; ``name`` is why.

    ``varies``: two runs on the same values call other operators, or give other outputs. ``raises``: what runs it
    operator by operator raises, as the text says.
    """

    def __init__(self, name: str, text: str = "") -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True)
class Covered:
    """What the outputs show of a module's calls, in the order in which they are made."""

    seen: tuple[Site, ...]
    blind: tuple[Site, ...]
    calls: int
    """How many calls there are; more than were asked about where they were sampled."""
    runs: int = 0


def measure(
    module: Any, trials: Iterable[Trial], spend: Callable[[Run], int], tenths: Sequence[Disturbance] = TENTHS
) -> Covered:
    """Which calls of the first trial are seen: some trial refuses the outputs with the call's result zeroed, and some
    with one of its disturbances by a tenth, if there are ``tenths``.

    ``spend`` gives of a run of the first trial how many runs to spend. Where these are not enough for all calls, some
    are left out. Raises Unknown.
    """
    known: list[Site] | None = None
    calls, runs, ask = 0, 0, _Asked()
    zeroed: set[Site] = set()
    seen: set[Site] = set()
    for trial in trials:
        if known is not None and ask.runs + len(known) - len(seen) > runs:
            break
        run = _recorded(module, trial)
        if known is None:
            calls, runs = len(run.sites), spend(run)
            known = spread([*run.sites], int(runs / RUNS))
        for site in known:
            if site in seen or site not in run.sites:
                continue
            index, shows_here = run.sites[site], False
            if site not in zeroed:
                shows_here = ask.notices(trial, run, index, ("zero",))
                if not shows_here:
                    continue
                zeroed.add(site)
            # where a result that shows has no tenth, or only decides, nothing more is asked of it
            enough = not tenths or site in run.deciding
            if enough or ask.notices(trial, run, index, tenths) or (shows_here and not ask.had_tenth):
                seen.add(site)
        if len(seen) == len(known):
            break
    known = known or []
    return Covered(
        tuple(site for site in known if site in seen),
        tuple(site for site in known if site not in seen),
        calls,
        ask.runs,
    )


def _recorded(module: Any, trial: Trial) -> Run:
    """The run of a trial, which was made twice; Unknown where both are not the same."""
    try:
        with recording(module, trial.apart) as run:
            first = trial.run()
        with recording(module, trial.apart) as again:
            trial.run()
    except Exception as error:
        raise Unknown("raises", f"{type(error).__name__}: {error}") from error
    if run.ops != again.ops or not same(first, trial.wanted):
        raise Unknown("varies")
    return run


class _Asked:
    """Asks about disturbed runs, and counts them."""

    def __init__(self) -> None:
        self.runs = 0
        self.had_tenth = True
        """Whether a tenth of the result that was disturbed last is anything."""

    def notices(self, trial: Trial, run: Run, index: int, kinds: Sequence[Disturbance]) -> bool:
        """Whether the comparison refuses what the module gives with the call disturbed in one of these ways.

        A module that raises then, or comes to no end, gives nothing that could be taken for right.
        """
        for how in kinds:
            self.runs += 1
            mode = disturbed(run, index, how)
            try:
                with mode:
                    got = trial.run()
            except Exception:
                got = None
            if mode.off_course:
                raise Unknown("varies")
            if got is None:
                return True
            self.had_tenth = mode.has_tenth
            if how != "zero" and not self.had_tenth:
                return False
            if not same(got, trial.wanted) and trial.notices(got):
                return True
        return False


def same(got: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Whether all outputs are equal bit for bit, but for the bits of NaN."""
    return len(got) == len(wanted) and all(
        one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
        for one, other in zip(got, wanted, strict=True)
    )


def spread(items: list[T], count: int) -> list[T]:
    """So many of the items, at equal distances."""
    if count >= len(items):
        return items
    return [items[number * len(items) // count] for number in range(count)]
