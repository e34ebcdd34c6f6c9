"""Tell now and then in the process of the terminal how far a run is, and how much of it is left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from conformance.front.plugin.ordering import id_of

if TYPE_CHECKING:
    from conformance.front.plugin.ordering import Ordering


_SURE = 10.0
"""Seconds of a run after which its own pace counts as much as that of the run before."""

_TELLING = 0.02
"""The part of the work after which the pace of a run tells something, where there is no run before."""


class Remaining:
    """Estimate what is left of a run whose cells end one after the other."""

    def __init__(self, expected: Mapping[str, float], workers: int, *, measured: bool) -> None:
        """``expected`` are seconds by cell; ``measured`` says that an earlier run took them, and not that only their
        ratios are meant."""
        self._left = dict(expected)
        self.cells, self.all_seconds = len(expected), sum(expected.values())
        self._done = 0.0
        self._started: tuple[float, float] | None = None
        """When each worker may have ended a cell, and the expected seconds of these: starting a worker is no part of
        the pace of what follows."""
        self.workers, self._measured = min(workers, max(len(expected), 1)), measured

    def end(self, cell: str, elapsed: float) -> None:
        """Count a cell that has ended ``elapsed`` seconds after the first began; what is not known, or has ended
        before, counts for nothing."""
        self._done += self._left.pop(cell, 0.0)
        if self._started is None and self.cells - len(self._left) >= self.workers:
            self._started = elapsed, self._done

    def seconds(self, elapsed: float) -> float | None:
        """Estimate how long the rest takes; None while that cannot be told. ``elapsed`` is the time since the first
        cell began.

        The expected seconds of what is left, divided by the workers, times how much longer than expected the cells
        took that ended after the first of each worker.
        """
        left = max(self.all_seconds - self._done, 0.0) / self.workers
        began, before = self._started or (elapsed, self._done)
        spent, done = elapsed - began, (self._done - before) / self.workers
        if self._measured:
            return left * (spent + _SURE) / (done + _SURE)
        return left * spent / done if self._done >= _TELLING * self.all_seconds and done > 0 else None

    def line(self, elapsed: float) -> str:
        """``1,234 of 5,210 cells, 17 a second, 3 to 6 min left``"""
        ended = self.cells - len(self._left)
        seconds = self.seconds(elapsed)
        parts = [f"{ended:,} of {self.cells:,} cells"]
        if ended and elapsed > 0:
            parts.append(f"{_rate(ended / elapsed)} a second")
        if seconds is not None and self._left:
            unsure = 1 + _UNSURE * max(1 - self._done / self.all_seconds, 0.0) if self.all_seconds else 1.0
            parts.append(f"{_range(seconds / unsure, seconds * unsure)} left")
        return ", ".join(parts)


_UNSURE = 0.6
"""The part by which an estimate of all of a run may be off; that of the rest is the surer the less is left."""
_FROM, _TO = 0.8, 1.6
"""Least and most of what a run takes on other hosts, relative to the seconds that were measured on one."""


def describe_expected(seconds: float, workers: int, *, here: bool) -> str:
    """Say how long a run takes: ``about 8 min``; ``about 6 to 12 min`` of what was not measured ``here``."""
    alone = seconds / workers
    if here:
        return f"about {_duration(alone)}"
    return f"about {_range(_FROM * alone, _TO * alone)}"


def _range(low: float, high: float) -> str:
    """``4 to 7 min``, ``40 s to 2 min``, or one of them where both are shown alike."""
    least, unit = _duration(low).split(" ")
    most, last_unit = _duration(high).split(" ")
    if (least, unit) == (most, last_unit):
        return f"{least} {unit}"
    return f"{least} to {most} {unit}" if unit == last_unit else f"{least} {unit} to {most} {last_unit}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _duration(seconds: float) -> str:
    """In the unit that one would say it in, no more exactly than it is known."""
    if seconds < 55:
        return f"{max(5 * round(seconds / 5), 5)} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60):.0f} min"
    return f"{seconds / 3600:.1f} h"


IN_LOG, IN_TERMINAL = 30.0, 10.0
"""Seconds from one line to the next."""

LINES = 5
"""About how many lines a log gets of a long run."""

DOTS = 300
"""Cells up to which pytest shows a sign for each; a longer run says how far it is instead."""

LONG, MANY = 20.0, 100
"""Seconds, and cells, from which on a run says at its start what it runs and about how long."""


class ProgressHooks:
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
                self._remaining.end(id, time.monotonic() - self._start)

    @pytest.hookimpl(trylast=True)  # behind what pytest shows of the test
    def pytest_runtest_logfinish(self) -> None:
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
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
        writer = self._config.get_terminal_writer()
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
