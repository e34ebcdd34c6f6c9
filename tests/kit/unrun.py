"""A plugin for whole runs whose cells are not run: ``UNRUN`` are the arguments that name it.

Every cell passes at once, but for those of cases with the tag ``fails``. For tests of who runs what and when, of what
is selected and of what is told: no process imports torch for them.
"""

from typing import Any

import pytest

from conformance.case.plan.cell import Cell
from conformance.front.plugin.running import Running
from conformance.results.records.record import Record

UNRUN = ("-p", "no:hypothesispytest", "-p", "no:benchmark", "-p", "tests.kit.unrun", "--isolation", "none")
"""Without plugins that take a second to sum up nothing, in each process of xdist."""
_RUNNER = pytest.StashKey[Any]()


def _made(cell: Cell, on_wait: object = None, then: object = None) -> Record:
    record = cell.record()
    record.depends = {}
    if "fails" in (cell.case.says.tags or ()):
        record.status, record.stage, record.error, record.reason = "failed", "run", "Planted", "planted"
    return record


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RUNNER] = Running.runner
    Running.runner = lambda self, worker, shown=None: _made  # type: ignore[assignment,method-assign,return-value]


def pytest_unconfigure(config: pytest.Config) -> None:
    Running.runner = config.stash[_RUNNER]  # type: ignore[method-assign]
