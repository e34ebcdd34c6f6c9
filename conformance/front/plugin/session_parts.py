"""The parts of one pytest session that every way of running its cells needs."""

from __future__ import annotations

import os
import signal

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
