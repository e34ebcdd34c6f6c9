"""Handing out the tests to the processes of pytest-xdist. Imported only where that is installed and used."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScheduling

from conformance.case.plan.order import Schedule

if TYPE_CHECKING:
    import pytest

    from conformance.front.plugin.ordering import Ordering

_AHEAD, _AHEAD_OF_SHORT = 2, 4
"""Tests that a process has before it, the current one among them: it runs a test only once it knows the next."""

_SHORT = 0.1
"""Seconds of a test below which the way to the process and back would be noticed."""


class ModuleScheduling(LoadScheduling):  # xdist has no types
    """As pytest-xdist's ``load``, in the order of a ``Schedule``. Where its processes told nothing of their tests, as
    without cells, it is ``load``."""

    collection: list[str]

    def __init__(self, config: pytest.Config, log: object, ordering: Ordering) -> None:
        super().__init__(config, log)
        self._ordering = ordering
        self._schedule: Schedule | None = None

    @property
    def tests_finished(self) -> bool:
        return bool(super().tests_finished) and not self._schedule

    @property
    def has_pending(self) -> bool:
        return bool(super().has_pending) or bool(self._schedule)

    def schedule(self) -> None:
        """Called when all processes have collected, and again for each that replaces another."""
        if not self.collection:
            told, collections = self._ordering.told, list(self.node2collection.values())
            if told is not None and all(len(collected) == len(told.works) for collected in collections):
                if not self._check_nodes_have_same_collection():
                    return
                self.collection = collections[0]
                seconds = self._ordering.seconds(collections[0])
                self._schedule = Schedule(told.works, seconds, as_given=told.as_given)
        if self._schedule is None:
            super().schedule()
            return
        nodes = [node for node in self.nodes if not node.shutting_down]
        for node in nodes:
            self._schedule.add(node)
        for node in nodes:
            self._give(node, 1, of_others=False)  # before one takes what is for another
        for node in nodes:
            self.check_schedule(node)

    def check_schedule(self, node: Any, duration: float = 0) -> None:
        """Give a process more tests, or let it end where there are none for it."""
        if self._schedule is None:
            super().check_schedule(node, duration)
            return
        if node.shutting_down:
            return
        self._schedule.add(node)
        self._give(node, _AHEAD if duration > _SHORT else _AHEAD_OF_SHORT, of_others=False)
        self._give(node, _AHEAD, of_others=True)
        if len(self.node2pending[node]) < _AHEAD:  # nothing is left for it
            self._schedule.remove(node)
            node.shutdown()

    def _give(self, node: Any, ahead: int, *, of_others: bool) -> None:
        """Have a process know that many tests, if there are as many for it."""
        assert self._schedule is not None
        pending, tests = self.node2pending[node], list[int]()
        while len(pending) + len(tests) < ahead:
            test = self._schedule.take(node, of_others=of_others)
            if test is None:
                break
            tests.append(test)
        if tests:
            pending.extend(tests)
            with contextlib.suppress(OSError):  # it has ended; ``remove_node`` comes, and takes them back
                node.send_runtest_some(tests)

    def remove_node(self, node: object) -> str | None:
        """Take back what a process that is gone has not run; the test at which it ended, None where at none."""
        if self._schedule is None:
            crashed: str | None = super().remove_node(node)
            return crashed
        pending = self.node2pending.pop(node)
        self._schedule.remove(node)
        self._give_again(pending[1:])
        return self.collection[pending[0]] if pending else None

    def mark_test_pending(self, item: str) -> None:
        """Called by plugins that run a test again at which a process ended."""
        if self._schedule is None:
            super().mark_test_pending(item)
            return
        self._give_again([self.collection.index(item)])

    def _give_again(self, tests: Sequence[int]) -> None:
        assert self._schedule is not None
        self._schedule.put_back(tests)
        for node in self.nodes:
            self.check_schedule(node)
