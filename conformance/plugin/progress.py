"""Tell now and then in the process of the terminal how far a run is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from conformance.plugin.ordering import id_of

if TYPE_CHECKING:
    from conformance.plan.remaining import Remaining
    from conformance.plugin.ordering import Ordering

IN_LOG, IN_TERMINAL = 30.0, 10.0
"""Seconds from one line to the next."""

LINES = 10
"""About how many lines a log gets of a long run."""

DOTS = 300
"""Cells up to which pytest shows a sign for each; a longer run says how far it is instead."""

LONG, MANY = 20.0, 100
"""Seconds, and cells, from which on a run says at its start what it runs and about how long."""


class Progress:
    """Hooks that count the cells that ended."""

    def __init__(self, config: pytest.Config, ordering: Ordering) -> None:
        self._config, self._ordering = config, ordering
        self._remaining: Remaining | None = None
        self._start = self._told = 0.0
        self._workers, self._red = "", 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if any(id_of(item.nodeid) for item in session.items):
            self._ordering.told = self._ordering.tell(session.items)
            self._begin([item.nodeid for item in session.items])

    def pytest_report_collectionfinish(self) -> list[str]:
        return self._expectation()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Under xdist the terminal's process collects nothing itself."""
        if self._remaining is None and any(map(id_of, ids)):
            self._begin(ids)
            reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            for line in self._expectation() if reporter is not None else ():
                reporter.ensure_newline()
                reporter.write_line(line)

    def _expectation(self) -> list[str]:
        """Say what a run does: ``5,386 cells of 203 cases in 2 workers, about 6 to 12 min``, where that is long."""
        if self._remaining is None or self._config.getoption("collectonly") or self._config.get_verbosity() < 0:
            return []
        from conformance.plan.remaining import describe_expected

        cells, seconds, workers = self._remaining.cells, self._remaining.all_seconds, self._remaining.workers
        if cells < MANY and seconds < LONG * workers:
            return []
        parts = [f"{cells:,} cells of {self._ordering.cases:,} cases in {workers} worker{'s' * (workers != 1)}"]
        if self._ordering.has_past:
            parts.append(f"{describe_expected(seconds, workers, here=True)} by the last run")
        elif self._ordering.is_usual:
            parts.append(describe_expected(seconds, workers, here=False))
        return [", ".join(parts)]

    def _begin(self, nodeids: Sequence[str]) -> None:
        """Called before the first cell, and before the records of an earlier run are replaced."""
        from conformance.plan.remaining import Remaining

        seconds = self._ordering.seconds(nodeids)
        expected = {id: value for nodeid, value in zip(nodeids, seconds, strict=True) if (id := id_of(nodeid))}
        self._remaining = Remaining(
            expected, self._ordering.workers, measured=self._ordering.has_past or self._ordering.is_usual
        )
        self._start = self._told = time.monotonic()

    @property
    def is_long(self) -> bool:
        """Return whether the run has so many cells that it says how far it is in place of a sign for each."""
        return self._remaining is not None and self._remaining.cells > DOTS and self._config.get_verbosity() == 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Have pytest count the cells of a long run, and show no sign for each."""
        if not self.is_long or getattr(report, "when", None) != "call" or id_of(report.nodeid) is None:
            return None
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "xpassed", "", ""
        self._red += report.failed
        return report.outcome, "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" or report.when not in ("setup", "call"):  # of a process that ended, at last
            id = id_of(report.nodeid)
            if id is not None and self._remaining is not None:
                self._remaining.end(id)

    @pytest.hookimpl(trylast=True)  # behind what pytest shows of the test
    def pytest_runtest_logfinish(self) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        now = time.monotonic()
        if self._remaining is None or reporter is None or self._config.get_verbosity() < 0:
            return
        if self.is_long and reporter.isatty:
            if now - self._told >= 1.0:
                self._told = now
                reporter.rewrite(f"  {self.line()}"[: reporter._tw.fullwidth - 1], erase=True)
            return
        part = self._remaining.all_seconds / self._remaining.workers / LINES if self.is_long else 0.0
        in_log = max(IN_LOG, part)
        if now - self._told < (IN_TERMINAL if reporter.isatty else in_log):
            return
        self._told = now
        writer: Any = self._config.get_terminal_writer()
        if self._config.get_verbosity() > 0:
            reporter.ensure_newline()  # or pytest would end that line once more
        elif writer.width_of_current_line:
            writer.line()
        writer.line(f"  {self.line()}"[: writer.fullwidth - 1])

    def staff(self, workers: int) -> None:
        """So many workers of a cluster run the cells now."""
        self._workers = f", {workers} worker{'s' * (workers != 1)}"
        if self._remaining is not None:
            self._remaining.workers = max(workers, 1)

    def line(self) -> str:
        """``1,234 of 5,210 cells, 17 a second, about 4 min left``; empty where no cells run."""
        if self._remaining is None:
            return ""
        red = f", {self._red} red" if self._red else ""
        return self._remaining.line(time.monotonic() - self._start) + red + self._workers
