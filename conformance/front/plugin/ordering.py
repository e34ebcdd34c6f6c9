"""In which order the tests of a session run; ``case.plan.order`` has the rule, and this is where pytest meets it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import pytest

from conformance.results.records.words import Check
from conformance.runtimes import registry

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell
    from conformance.case.plan.order import Work
    from conformance.front.plugin.options import Options

TELLS = "conformance_tells"
"""Under which the processes of pytest-xdist are given a channel to that of the terminal."""

OTHER_SECONDS = 0.05
"""What a test beside the suite is taken for: nothing is known of it."""


def cell_of(item: pytest.Item) -> Cell | None:
    """The cell that a test of the suite runs."""
    from conformance.case.plan.cell import Cell

    callspec = getattr(item, "callspec", None)
    cell = callspec.params.get("cell") if callspec else None
    return cell if isinstance(cell, Cell) else None


_CELL = re.compile(rf"(?:^|/)test_suite\.py::test_((?:{'|'.join(get_args(Check))})\[.+-op\d+.*\])")


def id_of(nodeid: str) -> str | None:
    """The id of the cell that a test runs, by the test's own id, after which xdist may name a group; None for other
    tests."""
    match = _CELL.search(nodeid)
    return None if match is None else match[1]


class Told(NamedTuple):
    """Hold what a process of xdist that has collected tells that of the terminal."""

    works: list[Work]
    """In the order in which the tests were collected."""
    as_given: bool
    """Whether others have put the tests in an order of their own."""


class Ordering:
    """Sorts the cells of a session, and knows what to expect of each."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._sorted: list[str] = []
        """The ids of the cells as they were sorted here, before others had a say."""
        self._past: dict[str, float] | None = None
        self._usual: dict[str, float] | None = None
        self.told: Told | None = None
        """In the process of the terminal under pytest-xdist, once one of its processes has collected."""
        self.workers = 1
        """How many processes run cells."""

    # ---- where the tests are collected

    def sort(self, items: list[pytest.Item], cells: Sequence[Cell]) -> None:
        """Put the cells of a session in the order that their cases let expect. Other tests stay where they are."""
        number = {cell.id: index for index, cell in enumerate(cells)}
        places = [(place, cell) for place, item in enumerate(items) if (cell := cell_of(item)) is not None]
        ordered = sorted(places, key=lambda entry: number.get(entry[1].id, len(number)))
        works = self._works([cell for _, cell in ordered])
        self._put(items, [place for place, _ in ordered], works, [work.seconds for work in works])
        self._sorted = [cell.id for item in items if (cell := cell_of(item)) is not None]

    def sort_by_past(self, items: list[pytest.Item]) -> None:
        """Put the cells that were selected in the order that an earlier run lets expect, unless somebody has put
        them in another order than ``sort`` did."""
        places = [(place, cell) for place, item in enumerate(items) if (cell := cell_of(item)) is not None]
        if len(places) < 2 or self._is_given(items):
            return
        from conformance.case.plan.order import estimated

        ids = [cell.id for _, cell in places]
        works = self._works([cell for _, cell in places])
        self._put(items, [place for place, _ in places], works, estimated(works, ids, self._read_past(ids)))

    def tell(self, items: Sequence[pytest.Item]) -> Told:
        """Return what whoever hands out these tests, or tells how far they are, has to know of them."""
        from conformance.case.plan.order import AROUND, Work

        cells = [cell for item in items if (cell := cell_of(item)) is not None]
        of_cells = iter(self._works(cells))
        files: dict[Path, int] = {}
        works = []
        for index, item in enumerate(items):
            if cell_of(item) is not None:
                works.append(next(of_cells))
            else:
                file = -1 - files.setdefault(item.path, len(files))  # below 0, which are numbers that no cell has
                is_case_file = item.name.startswith("test_case_file[")
                works.append(Work(file, file, -1 - index, AROUND if is_case_file else OTHER_SECONDS))
        return Told(works, self._is_given(items))

    def tell_terminal(self, items: Sequence[pytest.Item]) -> None:
        """Tell the process of the terminal, which under pytest-xdist collects nothing itself."""
        told = self.tell(items)
        channel: Any = getattr(self._options.config, "workerinput", {}).get(TELLS)
        if channel is not None:
            channel.send(([tuple(work) for work in told.works], told.as_given))  # plain tuples, which execnet takes

    def _put(
        self, items: list[pytest.Item], places: Sequence[int], works: Sequence[Work], seconds: Sequence[float]
    ) -> None:
        """Put the tests at ``places``, of which ``works`` tells, in order into the same places."""
        from conformance.case.plan.order import in_order

        ordered = [items[places[index]] for index in in_order(works, seconds)]
        for place, item in zip(sorted(places), ordered, strict=True):
            items[place] = item

    def _works(self, cells: Sequence[Cell]) -> list[Work]:
        from conformance.case.plan.order import works

        if self._usual is None:
            from conformance.case.plan.order import read_usual

            self._usual = read_usual(self._options.case_paths())
        return works(cells, cache(lambda runtime: registry.absence(runtime) is not None), self._usual)

    def _is_given(self, items: Sequence[pytest.Item]) -> bool:
        """Return whether the order of the cells is somebody else's.

        ``--stepwise`` goes on where the last run of the same order has stopped.
        """
        place = {id: index for index, id in enumerate(self._sorted)}
        places = [place.get(cell.id, -1) for item in items if (cell := cell_of(item)) is not None]
        return places != sorted(places) or bool(self._options.config.getoption("stepwise", False))

    # ---- what is expected of them

    @property
    def has_past(self) -> bool:
        """Return whether an earlier run has some of the cells."""
        return bool(self._past)

    @property
    def cases(self) -> int:
        """Return how many cases have tests in this run."""
        return len({work.case for work in self.told.works if work.case >= 0}) if self.told is not None else 0

    @property
    def is_usual(self) -> bool:
        """Return whether a file beside the cases says how long they usually take."""
        return bool(self._usual)

    def _read_past(self, ids: Sequence[str]) -> Mapping[str, float]:
        """Seconds of cells in the runs that the options name; that which this run will replace goes before others."""
        if self._past is None:
            from conformance.results.records.durations import durations

            folder, wanted, self._past = self._options.folder, set(ids), {}
            for option in ("baseline", "reuse", "report"):
                if self._options[option] is not None:
                    self._past |= durations(folder / str(self._options[option]), wanted)
        return self._past

    def hear(self, told: tuple[list[Any], bool]) -> None:
        """Take what ``tell`` gave in another process."""
        from conformance.case.plan.order import Work

        self.told = self.told or Told([Work(*work) for work in told[0]], told[1])

    def seconds(self, nodeids: Sequence[str]) -> list[float]:
        """Return the seconds that are expected of all tests that ``told`` tells of.

        The same of each where it tells of others.
        """
        from conformance.case.plan.order import estimated

        if self.told is None or len(self.told.works) != len(nodeids):
            return [OTHER_SECONDS] * len(nodeids)
        ids = [id_of(nodeid) or nodeid for nodeid in nodeids]
        return estimated(self.told.works, ids, self._read_past(ids))
