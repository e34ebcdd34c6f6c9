"""The parts of one pytest session that every way of running its cells needs."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterable, Sequence

import pytest

from conformance.front.plugin.options import Options
from conformance.front.plugin.ordering import Ordering
from conformance.front.plugin.planning import Planning
from conformance.front.plugin.progress import ProgressHooks
from conformance.front.plugin.properties import Properties
from conformance.front.plugin.running import Running
from conformance.front.plugin.saying import Saying


class Parts:
    """Options, cases, their order and progress, and the running of cells."""

    def __init__(self, config: pytest.Config) -> None:
        """UsageError where the options cannot be used."""
        self.options = Options(config)
        self.options.take_case_paths()
        self.options.check()
        self.saying = Saying(config)
        self.planning = Planning(self.options, self.saying, self._begin_cells)
        self.ordering = Ordering(self.options)
        self.progress = ProgressHooks(config, self.ordering)
        self.running = Running(self.options, self.progress, self.saying)
        self.properties = Properties()

    def _begin_cells(self) -> None:
        """Called in each process that will run cells, before it reads them."""
        end_with_run(self.options.config)
        self.running.prepare()


STARTED_BY = "conformance_started_by"
"""Under which the process of the terminal tells those of xdist its number."""


def end_with_run(config: pytest.Config) -> None:
    """Have the kernel end a process of xdist with the run: by itself it would go on reading cases until it next
    listens, and the records that it makes go nowhere. One on another host has another parent, and ends by itself."""
    told: dict[str, object] = getattr(config, "workerinput", {})
    if told.get(STARTED_BY) == os.getppid():
        from conformance.process.worker.children import signalled_with_parent

        signalled_with_parent(signal.SIGKILL)


def run_tests(session: pytest.Session, items: Sequence[pytest.Item], later: Iterable[pytest.Item]) -> None:
    """Run tests one after another as pytest's own loop does, and raise as that does where the session is to stop.
    ``later`` are tests that will follow, by which pytest knows what fixtures are still needed."""
    for number, item in enumerate(items, 1):
        following = next(itertools.chain(items[number : number + 1], later), None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


def may_run(session: pytest.Session) -> bool:
    """Return whether tests run at all after collection errors.

    pytest's own loop tells of these.
    """
    return not session.testsfailed or bool(session.config.option.continue_on_collection_errors)
