"""The order of a run: tests that share a module are run by one worker, one after the other; small ones come first.

Nothing here knows pytest. ``works`` tells of each cell what its place depends on, as plain numbers that a process
can send to another, ``estimated`` puts the durations of an earlier run in place of what the cases let expect, and a
``Schedule`` hands the tests to the workers that ask for one. ``read_usual`` reads the seconds that the cases of a
folder usually take from a file beside them, for a run without an earlier one; whatever is wrong with that file,
there is only less to know.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from conformance.process.disk.foreign_files import parse_json, read_text

if TYPE_CHECKING:
    from conformance.case.files.declaration import Case
    from conformance.case.plan.cell import Cell


AROUND = 0.005
"""Seconds that pytest and the way to the worker take beside each test."""

WHOLE = 2.0
"""Seconds of a group that is not worth dividing while there are others: its module would be built twice."""


class Work(NamedTuple):
    """Hold what the place of one test in a run depends on.

    The numbers of families, cases and models have no meaning but that they are equal or not.
    """

    family: int
    """Tests of a family build the same module: one worker runs them in a row."""
    case: int
    model: int
    """Tests of a model are not divided over workers, even where others have run out of tests."""
    seconds: float
    """What is expected without an earlier run."""
    last: bool = False
    """A budget of time, measured when everything else is done."""


def works(
    cells: Iterable[Cell], absent: Callable[[str], bool], usual: Mapping[str, float] | None = None
) -> list[Work]:
    """Return what the place of each cell depends on; ``absent`` says of a runtime whether this host lacks it.
    ``usual`` has seconds of whole cases by name, as far as they are known."""
    from conformance.case.files.recipe import recipe

    families, cases, models = _Numbers(), _Numbers(), _Numbers()
    known: dict[int, tuple[int, float]] = {}
    made = []
    for cell in cells:
        last = cell.check == "latency"
        case = cases[cell.case.name]
        if case not in known:
            known[case] = families[recipe(cell.case)], _size(cell.case, absent, usual or {})
        family, size = known[case]
        family = families["budgets", family] if last else family
        seconds = size * _share(cell, absent)
        made.append(Work(family, case, models[case, cell.exporter, cell.opset, last], seconds + AROUND, last))
    return made


class _Numbers(dict[Hashable, int]):
    """Numbers things in the order in which they are met."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = len(self)
        return self[key]


def _size(case: Case, absent: Callable[[str], bool], usual: Mapping[str, float]) -> float:
    """Return how much longer a case takes than an expression over a few numbers: by what it usually takes, or
    guessed of its inputs at their largest.

    Measured on the shipped cases, modules take some 3 times as long as expressions over inputs of the same size.
    """
    if case.name in usual:
        from conformance.case.plan.catalogue import plan

        whole = sum(_share(cell, absent) for cell in plan(case) if cell.check != "latency")
        return usual[case.name] / whole if whole else 1.0
    sizes = case.dims.fit(dict.fromkeys(case.dims.ranges, 2**31)) or case.dims.fit({})
    try:
        numbers = 0 if sizes is None else sum(prod(entry.type.at(sizes)) for entry in case.says.inputs.values())
    except ValueError:  # a size that is none: the case will say so when it runs
        numbers = 0
    return (1 if case.says.module is None else 3) * (1 + numbers / 10_000)


def _share(cell: Cell, absent: Callable[[str], bool]) -> float:
    """Seconds of a cell of an expression over a few numbers, measured on the shipped cases on two cores."""
    if cell.runtime is not None and absent(cell.runtime):
        return 0.0
    if cell.check == "export":
        return 0.4 if cell.exporter == "dynamo" else 0.05
    return 0.15 if cell.check == "fidelity" else 0.05


def estimated(given: Sequence[Work], ids: Sequence[str], past: Mapping[str, float]) -> list[float]:
    """Seconds of each test. Those that the earlier run lacks take what was expected of them, times how much longer
    than expected the tests of the same case, or all, took there."""
    seconds: dict[int, float] = {}
    expected: dict[int, float] = {}
    for work, id in zip(given, ids, strict=True):
        if id in past:
            seconds[work.case] = seconds.get(work.case, 0.0) + past[id] + AROUND
            expected[work.case] = expected.get(work.case, 0.0) + work.seconds
    scale = sum(seconds.values()) / sum(expected.values()) if expected else 1.0
    scales = {case: seconds[case] / expected[case] for case in seconds}
    return [
        past[id] + AROUND if id in past else work.seconds * scales.get(work.case, scale)
        for work, id in zip(given, ids, strict=True)
    ]


# ---- handing out ---------------------------------------------------------------------------------------------


@dataclass
class _Part:
    """Tests that share a model."""

    tests: deque[int] = field(default_factory=deque)
    seconds: float = 0.0


@dataclass
class _Group:
    """Tests that share a module, by model."""

    last: bool
    first: int
    """The number of its first test, by which groups of the same size keep their order."""
    parts: deque[_Part] = field(default_factory=deque)
    seconds: float = 0.0

    def size(self) -> tuple[bool, float, int]:
        return self.last, self.seconds, self.first


class Schedule:
    """Hands out tests by their numbers, each once.

    All are divided over the workers so that all are done at about the same time: the longest group first,
    each to the worker that has least (Graham, Bounds on multiprocessing timing anomalies, 1969: at most 4/3 of the
    shortest time). A worker runs its share from the smallest group to the largest, so that most cases are seen early
    and the long ones start no later than they have to. A group that would take half of a worker's time is divided by
    models first, and a worker that has run out takes models from the group of which most is left.
    """

    def __init__(self, given: Sequence[Work], seconds: Sequence[float], *, as_given: bool = False) -> None:
        """``as_given`` keeps groups, and the tests in each of them, in the order in which they come."""
        self._seconds, self._as_given = seconds, as_given
        self._own: dict[Hashable, _Group] = {}
        """The group that a worker is at."""
        self._shares: dict[Hashable, list[_Group]] = {}
        """The groups that a worker runs afterwards, the next one last."""
        self._waiting = _groups(given, seconds)[::-1]
        """Groups in no share: all at first, and where the order is given."""

    def add(self, worker: Hashable) -> None:
        """A worker that will ask for tests; all are added before the first of them asks."""
        self._shares[worker] = []

    def take(self, worker: Hashable, *, of_others: bool = True) -> int | None:
        """The next test for this worker, None where there is none for it. ``of_others`` is off for a worker that has
        enough to do: then it gets nothing that others are to run."""
        group = self._own.get(worker)
        if group is None or not group.parts:
            group = self._next(worker, of_others) or (self._part_of_another() if of_others else None)
            if group is None:
                return None
            self._own[worker] = group
        part = group.parts[0]
        test = part.tests.popleft()
        part.seconds -= self._seconds[test]
        group.seconds -= self._seconds[test]
        if not part.tests:
            group.parts.popleft()
        return test

    def _next(self, worker: Hashable, of_others: bool) -> _Group | None:
        if self._as_given:
            return self._waiting.pop() if self._waiting else None
        if self._waiting:
            self._divide()
        share = self._shares[worker]
        if not share and of_others:  # the longest of the worker that has most before it
            share = max((share for share in self._shares.items() if share[1]), key=self._load, default=(None, []))[1]
            return share.pop(0) if share else None
        return share.pop() if share else None

    def _load(self, share: tuple[Hashable, list[_Group]]) -> float:
        """Seconds of what a worker has before it."""
        worker, groups = share
        own = self._own.get(worker)
        return sum(group.seconds for group in groups) + (0.0 if own is None else own.seconds)

    def _divide(self) -> None:
        """Divide all groups over the workers."""
        longest = max(WHOLE, sum(group.seconds for group in self._waiting) / len(self._shares) / 2)
        groups = [piece for group in self._waiting for piece in _pieces(group, longest)]
        loads = [(0.0, number, share) for number, share in enumerate(self._shares.values())]
        for group in sorted(groups, key=_Group.size, reverse=True):
            load, number, share = loads[0]
            share.append(group)
            heapq.heapreplace(loads, (load + group.seconds, number, share))
        self._waiting = []

    def _part_of_another(self) -> _Group | None:
        """The last model of the group of which most is left, without the model that its worker is at."""
        divisible = [group for group in self._own.values() if len(group.parts) > 1]
        if not divisible:
            return None
        group = max(divisible, key=lambda group: group.seconds)
        part = group.parts.pop()
        group.seconds -= part.seconds
        return _Group(group.last, part.tests[0], deque([part]), part.seconds)


def _groups(given: Sequence[Work], seconds: Sequence[float]) -> list[_Group]:
    """The tests that share a module, in the order of their first ones."""
    groups: dict[int, _Group] = {}
    parts: dict[tuple[int, int], _Part] = {}
    for test, work in enumerate(given):
        group = groups.setdefault(work.family, _Group(work.last, test))
        model = (work.family, work.model)
        if model not in parts:
            parts[model] = _Part()
            group.parts.append(parts[model])
        parts[model].tests.append(test)
        parts[model].seconds += seconds[test]
        group.seconds += seconds[test]
    return [*groups.values()]


def _pieces(group: _Group, longest: float) -> Iterator[_Group]:
    """Groups of consecutive models of the group, none longer than ``longest`` where one model is not."""
    piece = _Group(group.last, group.first)
    for part in group.parts:
        if piece.parts and piece.seconds + part.seconds > longest:
            yield piece
            piece = _Group(group.last, part.tests[0])
        piece.parts.append(part)
        piece.seconds += part.seconds
    yield piece


def in_order(given: Sequence[Work], seconds: Sequence[float]) -> list[int]:
    """The numbers of the tests in the order in which one worker runs them."""
    schedule = Schedule(given, seconds)
    schedule.add(None)
    return [test for _ in given if (test := schedule.take(None)) is not None]


FILE = "durations.json"
LONGEST = 10 * 24 * 3600.0
"""Seconds of a case, at most."""


def read_usual(places: Iterable[Path]) -> dict[str, float]:
    """Return seconds by case, by the files in these folders, or beside these case files. Raises nothing."""
    known: dict[str, float] = {}
    for place in places:
        file = (place if place.is_dir() else place.parent) / FILE
        try:
            told: Any = parse_json(read_text(file))
            seconds = {str(name): float(value) for name, value in told["seconds"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
        known |= {name: value for name, value in seconds.items() if 0 <= value <= LONGEST}
    return known
