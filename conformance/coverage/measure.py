"""Disturbing the calls of a module one by one, on draw after draw, until each is seen or there are no more draws."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from conformance.arrays import Array, same
from conformance.coverage.calls import Run, Site, recording
from conformance.coverage.cost import RUNS
from conformance.coverage.disturb import TENTHS, Disturbance, disturbed

T = TypeVar("T")


KEPT_BYTES = 2**24
"""Outputs with a call zeroed that are kept of one draw, in bytes."""


@dataclass
class Zeroed:
    """What a module gives on one draw with each of its calls zeroed, for other comparisons to be asked about."""

    run: Run | None = None
    """The run that nothing disturbed."""
    outputs: dict[int, list[Array] | None] = field(default_factory=dict)
    """By the index of the call; None where the module raises."""
    bytes: int = 0

    def keep(self, index: int, outputs: list[Array] | None) -> None:
        """Keeps the outputs as long as there is room."""
        size = sum(array.nbytes for array in outputs or ())
        if self.bytes + size <= KEPT_BYTES:
            # one may be a buffer of the module, which the next run writes to
            self.outputs[index] = outputs and [array.copy() for array in outputs]
            self.bytes += size


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
    zeroed: Zeroed = field(default_factory=Zeroed)
    """Runs of this draw that were made for another comparison."""


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
        run.products.clear()  # the run itself may be kept
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
    if trial.zeroed.run is not None:
        return trial.zeroed.run
    try:
        with recording(module, trial.apart) as run:
            first = trial.run()
        with recording(module, trial.apart) as again:
            trial.run()
    except Exception as error:
        raise Unknown("raises", f"{type(error).__name__}: {error}") from error
    if run.ops != again.ops or not same(first, trial.wanted):
        raise Unknown("varies")
    trial.zeroed.run = run
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
            self.runs += 1  # one that was made before counts too: what is asked must not hang on it
            got = self._given(trial, run, index, how)
            if got is None:
                return True
            if how != "zero" and not self.had_tenth:
                return False
            if not same(got, trial.wanted) and trial.notices(got):
                return True
        return False

    def _given(self, trial: Trial, run: Run, index: int, how: Disturbance) -> list[Array] | None:
        """What the module gives with the call disturbed; None where it raises."""
        known = trial.zeroed.outputs
        if how == "zero" and index in known:
            return known[index]
        mode = disturbed(run, index, how)
        got: list[Array] | None = None
        with contextlib.suppress(Exception), mode:
            got = trial.run()
        if mode.off_course:
            raise Unknown("varies")
        self.had_tenth = mode.has_tenth
        if how == "zero":
            trial.zeroed.keep(index, got)
        return got


def spread(items: list[T], count: int) -> list[T]:
    """So many of the items, at equal distances."""
    if count >= len(items):
        return items
    return [items[number * len(items) // count] for number in range(count)]
