"""Disturbing the calls of a module one by one, on draw after draw, until each is seen or there are no more draws.

How many runs are spent is limited by guesses at their costs, and no durations: the calls that are tried must not
depend on the load.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from conformance.models.coverage.composite_calls import parts_of_composites
from conformance.models.coverage.disturb import TENTHS, Disturbance, Disturbed
from conformance.models.coverage.operator_calls import CallSite, CallsOfRun, recording
from conformance.process.arrays import Array, same
from conformance.process.errors import or_else

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")

KEPT_BYTES = 2**24
"""Outputs with a call zeroed that are kept of one draw, in bytes."""


@dataclass
class Zeroed:
    """The outputs of a module on one draw with each of its calls zeroed, kept for other comparisons."""

    run: CallsOfRun | None = None
    """The run that nothing disturbed."""
    outputs: dict[int, list[Array] | None] = field(default_factory=dict)
    """By the index of the call; None where the module raises."""
    bytes: int = 0

    def keep(self, index: int, outputs: list[Array] | None) -> None:
        """Keep the outputs as long as there is room."""
        size = sum(array.nbytes for array in outputs or ())
        if self.bytes + size <= KEPT_BYTES:
            # one may be a buffer of the module, which the next run writes to
            self.outputs[index] = outputs and [array.copy() for array in outputs]
            self.bytes += size


@dataclass(frozen=True)
class CoverageTrial:
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
    size: int = 0
    """How many values the inputs have."""


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
    """The calls of a module that its outputs show, and those that they do not, in the order of the calls."""

    seen: tuple[CallSite, ...]
    blind: tuple[CallSite, ...]
    calls: int
    """How many calls there are; more than were asked about where they were sampled."""
    runs: int = 0
    beyond: tuple[CallSite, ...] = ()
    """Those of which something is seen only beyond the values that the trials have: that they are wrong, or that they
    are there at all."""


def measure(
    module: nn.Module, trials: Iterable[CoverageTrial], spend: Callable[[CallsOfRun], int],
    tenths: Sequence[Disturbance] = TENTHS, beyond: Callable[[], Iterable[CoverageTrial]] | None = None,
) -> Covered:  # fmt: skip
    """Find the calls of the first trial that are seen: some trial refuses the outputs with the call's result zeroed,
    and some with one of its disturbances by a tenth, if there are ``tenths``.

    ``spend`` gives of a run of the first trial how many runs to spend. Where these are not enough for all calls, some
    are left out. A module that takes long is asked on smaller trials first, if such come next. ``beyond`` gives
    trials with other values, for calls that are not seen, and for those that give back what they are given in every
    trial. Raises Unknown.
    """
    trials = iter(trials)
    first = next(trials, None)
    if first is None:
        return Covered((), (), 0)
    recorded = _Recorded(module, first)
    calls, runs, ask = len(recorded.run.sites), spend(recorded.run), _Asked()
    known = spread([*recorded.run.sites], int(runs / RUNS))
    zeroed: set[CallSite] = set()
    seen: set[CallSite] = set()
    trials = _smaller_first(first, trials) if takes_long(recorded.run) else itertools.chain([first], trials)
    idle = recorded.run.idle & set(known) if beyond is not None else set()
    for trial in trials:
        if ask.runs and ask.runs + len(known) - len(seen) > runs:
            break
        of_trial = recorded if trial is first else _Recorded(module, trial, again=False)
        run = of_trial.run
        idle -= run.sites.keys() - run.idle
        for site in known:
            if site not in seen and site in run.sites and ask.sees(of_trial, site, zeroed, tenths):
                seen.add(site)
        if trial is not first:
            run.products.clear()  # the run itself may be kept
        if len(seen) == len(known):
            break
    recorded.run.products.clear()
    most = ask.runs + int(BEYOND * runs)
    for trial in trials if idle else ():
        ask.runs += 1
        if not idle or ask.runs > most:
            break
        with contextlib.suppress(Unknown):
            run = _Recorded(module, trial, again=False).run
            idle -= run.sites.keys() - run.idle
    if len(seen) < len(known):
        parts = parts_of_composites(first.run, recorded.run)
        known, calls = [site for site in known if site not in parts], calls - len(parts)
    blind = [site for site in known if site not in seen]
    open_ = [site for site in known if site not in seen or site in idle]
    return Covered(
        tuple(site for site in known if site in seen),
        tuple(blind),
        calls,
        ask.runs,
        tuple(_seen_beyond(module, open_, idle, beyond(), ask, tenths, most)) if open_ and beyond is not None else (),
    )


def _seen_beyond(
    module: nn.Module, sites: Sequence[CallSite], idle: Collection[CallSite], beyond: Iterable[CoverageTrial],
    ask: _Asked, tenths: Sequence[Disturbance], runs: int,
) -> list[CallSite]:  # fmt: skip
    """Return which of these calls some trial with other values sees: of those that are ``idle``, that they do
    something there."""
    found: set[CallSite] = set()
    zeroed: set[CallSite] = set()
    for trial in beyond:
        rest = [site for site in sites if site not in found]
        if not rest or ask.runs > runs:
            break
        try:
            recorded = _Recorded(module, trial, again=False)
            for site in rest:
                if site in recorded.run.sites and (
                    site not in recorded.run.idle if site in idle else ask.sees(recorded, site, zeroed, tenths)
                ):
                    found.add(site)
        except Unknown:  # what is known within the values of the case stays
            continue
    return [site for site in sites if site in found]


def _smaller_first(first: CoverageTrial, others: Iterable[CoverageTrial]) -> Iterator[CoverageTrial]:
    """The first trial behind those that come next and have at most half as many values."""
    held = True
    for trial in others:
        if held and 2 * trial.size > first.size:
            held = False
            yield first
        yield trial
    if held:
        yield first


class _Recorded:
    """The run of a trial."""

    def __init__(self, module: nn.Module, trial: CoverageTrial, *, again: bool = True) -> None:
        """``again`` is whether to make the run twice; Unknown where both runs are not the same."""
        self.trial = trial
        if trial.zeroed.run is not None:
            self.run = trial.zeroed.run
            return
        runs, outputs = list[CallsOfRun](), list[Array]()
        try:
            for _ in range(2 if again else 1):
                with recording(module, trial.apart) as run:
                    outputs = trial.run()
                runs.append(run)
        except Exception as error:  # whatever the module raises: its coverage is unknown, and the record says why
            raise Unknown("raises", f"{type(error).__name__}: {error}") from error
        if runs[0].ops != runs[-1].ops or not same(outputs, trial.wanted):
            raise Unknown("varies")
        trial.zeroed.run = self.run = runs[-1]


class _Asked:
    """Asks about disturbed runs, and counts them."""

    def __init__(self) -> None:
        self.runs = 0
        self.had_tenth = True
        """Whether a tenth of the result that was disturbed last is anything."""

    def sees(self, recorded: _Recorded, site: CallSite, zeroed: set[CallSite], tenths: Sequence[Disturbance]) -> bool:
        """Return whether the trial completes what is to be seen of a call; of ``zeroed`` zero was seen."""
        index, shows_here = recorded.run.sites[site], False
        both = tenths[:1] if site not in recorded.run.deciding and takes_long(recorded.run) else ()
        if self.notices(recorded, index, both):  # of what is seen to be off by a tenth, zeros would be seen too
            return True
        if site not in zeroed:
            shows_here = self.notices(recorded, index, ("zero",))
            if not shows_here:
                return False
            zeroed.add(site)
        # where a result that shows has no tenth, or only decides, nothing more is asked of it
        enough = not tenths or site in recorded.run.deciding
        return enough or self.notices(recorded, index, tenths) or (shows_here and not self.had_tenth)

    def notices(self, recorded: _Recorded, index: int, kinds: Sequence[Disturbance]) -> bool:
        """Return whether the comparison refuses the outputs with the call disturbed in one of these ways.

        A module that raises then, or comes to no end, gives nothing that could be taken for right.
        """
        for how in kinds:
            self.runs += 1  # one that was made before counts too: what is asked must not hang on it
            got = self._given(recorded, index, how)
            if got is None:
                return True
            if how != "zero" and not self.had_tenth:
                return False
            if not same(got, recorded.trial.wanted) and recorded.trial.notices(got):
                return True
        return False

    def _given(self, recorded: _Recorded, index: int, how: Disturbance) -> list[Array] | None:
        """Return the module's outputs with the call disturbed; None where it raises."""
        zeroed = recorded.trial.zeroed
        if how == "zero" and index in zeroed.outputs:
            return zeroed.outputs[index]
        mode = Disturbed(recorded.run, index, how)
        with mode:
            got = or_else(None, recorded.trial.run)
        if mode.off_course:
            raise Unknown("varies")
        self.had_tenth = mode.has_tenth
        if how == "zero":
            zeroed.keep(index, got)
        return got


def spread(items: list[T], count: int) -> list[T]:
    """So many of the items, at equal distances."""
    if count >= len(items):
        return items
    return [items[number * len(items) // count] for number in range(count)]


SECONDS = 5.0
"""About how long all runs may take, on two cores that are otherwise idle."""
FEWEST = 12
"""So many calls are asked about whatever they cost."""
RUNS = 2.5
"""About how many runs a call takes."""
BEYOND = 0.1
"""The share of these runs that is spent besides on what shows only with other values."""
LONG = 0.05
"""From how many seconds on, by these guesses, a run is one that takes long."""
CALL, FLOPS, VALUES = 20e-6, 30e9, 1e9
"""The seconds of a call that a mode sees; the floating-point operations, and the values, computed in a second."""


def seconds(run: CallsOfRun) -> float:
    """A guess at how long such a run takes."""
    return len(run.ops) * CALL + run.flops / FLOPS + run.values / VALUES


def takes_long(run: CallsOfRun) -> bool:
    """Return whether such runs are worth replacing by smaller ones, which have to be recorded first."""
    return seconds(run) > LONG


def runs_within(run: CallsOfRun) -> int:
    """Return how many such runs are spent in all."""
    return max(int(RUNS * FEWEST), int(SECONDS / seconds(run)))
