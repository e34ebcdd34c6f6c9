"""Show a run in the terminal.

Records of finished cells arrive in its process, not in xdist's workers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from conformance.front.plugin.ordering import id_of
from conformance.process.errors import display_path
from conformance.results.records.findings import RED
from conformance.results.records.sanitize import literal, one_line

if TYPE_CHECKING:
    from conformance.front.plugin.session import SessionParts
    from conformance.results.records.findings import Finding
    from conformance.results.records.record import Record


class Terminal:
    """Hooks of the process where the terminal is."""

    def __init__(self, session: SessionParts) -> None:
        self._session = session

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        broken = session.testsfailed and not session.config.option.continue_on_collection_errors
        ids = [*filter(None, (id_of(item.nodeid) for item in session.items))]
        if ids and not broken:
            self._session.begin(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Under xdist the terminal's process collects nothing itself."""
        if cells := [*filter(None, map(id_of, ids))]:
            self._session.begin(cells)

    @pytest.hookimpl(tryfirst=True)  # before others show or write the text of the report
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain = getattr(report, "conformance", None)
        error = None
        if plain is not None and not report.nodeid.rpartition("::test_")[2].startswith(plain["id"]):
            self._session.mixed_up = True
            error, reason = "BadAnswer", f"its test came with the record of {plain['id']}"
        elif plain is None and report.failed and report.when not in ("setup", "call", "teardown"):
            # of a test whose process ended, so that xdist made the report
            error, reason = "ProcessLost", f"the process of pytest-xdist ended: {report.longreprtext}"
        if error is not None:
            cell = self._session.planning.named(_cell_part(report))
            plain = None if cell is None else self._session.running.broken(cell, error, reason).as_dict()
        if plain is not None:
            record = self._session.writing.add(plain)
            if record.status in RED:
                self._session.explaining.add(record, report)
            self._session.others.tell("pytest_conformance_verdict", record=lambda: copy.deepcopy(record))
            _hand_to_benchmark(self._session.options.config, report.nodeid, record)
            vars(report).pop("conformance", None)  # pytest keeps every report until the end of the run
        self._session.properties(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from conformance.results.records import matrix, text

        def write(line: str, **how: bool) -> None:
            terminalreporter.write_line(literal(line), **how)

        session, width = self._session, terminalreporter._tw.fullwidth
        session.keeping.end()
        records = session.writing.records
        if session.has_cells:
            for line in session.planning.lines():
                write(line)
        for line in session.others.mistakes():
            write(line, red=True)
        if not records:
            return
        terminalreporter.section("conformance")
        full = session.options.config.get_verbosity() > 0
        table = [*matrix.lines(records, width, full=full)]
        for line in (*table, "", *matrix.legend(table), *(matrix.asides if full else matrix.in_brief)(records)):
            write(line)
        write(matrix.counts(records))
        for line in (
            *session.explaining.notes(),
            *session.writing.notes(),
            *text.draws_not_run(records),
            *session.keeping.notes(),
        ):
            write(line, yellow=True)
        for line in session.writing.emptiness():
            write(line, red=True)
        if session.gating.asked_for:
            terminalreporter.section("since the baseline")
            for line in session.gating.lines(width):
                write(line)


def _cell_part(report: pytest.TestReport) -> str:
    """The id of the cell whose test this is, without a group."""
    name, bracket, _ = report.nodeid.rpartition("::test_")[2].partition("]")
    return name + bracket


def _hand_to_benchmark(config: pytest.Config, nodeid: str, record: Record) -> None:
    """Hand the durations of a latency cell to pytest-benchmark, which shows, stores and compares them as its own."""
    session: Any = getattr(config, "_benchmarksession", None)
    if session is None or record.latency is None or not record.latency.get("own"):
        return
    from conformance.judge.latency.latency_store import metadata

    session.benchmarks += metadata(record.id, nodeid, record.latency)


_MOST = 30
"""Findings that are shown; ``conformance findings`` shows all."""
_MANY, _WHOLE = 10, 3
"""Of more findings than the first, only so many are shown whole."""
_FULL = 2
"""The verbosity (``-vv``) from which on every red cell is shown in full besides."""


class FindingsFirst:
    """A hook around pytest's own summary, which begins with the failures."""

    def __init__(self, session: SessionParts) -> None:
        self._session = session

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
        """Show findings first. Their tests are kept out of pytest's own lists, which would have one part for each."""
        from conformance.results.records.findings import findings

        found = findings(self._session.explaining.red.values())
        if not found:
            return (yield)
        shows = terminalreporter.config.option.tbstyle != "no"
        if shows:
            self._show(terminalreporter, found)
        failed = terminalreporter.stats.get("failed", [])
        own = {id(report) for report in self._session.explaining.reports.values()}
        terminalreporter.stats["failed"] = [report for report in failed if id(report) not in own]
        try:
            result = yield
        finally:
            terminalreporter.stats["failed"] = failed
        self._sum_up(terminalreporter, found)
        return result

    def _show(self, reporter: pytest.TerminalReporter, found: list[Finding]) -> None:
        from conformance.results.records import finding_block, text
        from conformance.results.records.findings import since

        runs, width = self._session.gating.earlier, reporter._tw.fullwidth
        reporter.ensure_newline()
        whole = len(found) if len(found) <= _MANY or reporter.config.get_verbosity() > 0 else _WHOLE
        for number, finding in enumerate(found[:_MOST], 1):
            block = finding_block.describe(finding, since(finding, runs))
            block = block if number <= whole else finding_block.shortened(block)
            head, *lines = finding_block.lines(block, number, len(found), width - 1, reporter._tw._file)
            if number > 1:
                reporter.write_line("")
            reporter.write_line(literal(head), red=True, bold=True)
            for line in lines:
                reporter.write_line(literal(line))
        if len(found) > _MOST:
            place = literal(display_path(self._session.options.report))
            reporter.write_line("")
            reporter.write_line(f"and {len(found) - _MOST} more: conformance findings {place}")
        if whole < len(found):
            reporter.write_line("")
            reporter.write_line(f"the first {whole} findings are shown whole, and all with -v")
        if reporter.config.get_verbosity() >= _FULL:
            for record in self._session.explaining.red.values():
                reporter.write_sep("_", literal(record.id), red=True, bold=True)
                for line in text.failure(record).splitlines():
                    reporter.write_line(line)
        reporter.write_line("")

    def _sum_up(self, reporter: pytest.TerminalReporter, found: list[Finding]) -> None:
        """Name the findings at the end, where pytest names the tests that failed."""
        from conformance.results.records import finding_block, text

        for finding in found[:_MOST]:
            cells = f"{len(finding.cells)} cell{'s' * (len(finding.cells) != 1)}"
            block = finding_block.describe(finding)
            what = one_line(f"{block.who}: {block.what}", max(reporter._tw.fullwidth - len(cells) - 25, 30))
            reporter.write_line(f"FAILED {finding.id} {what} ({cells})", red=True)
        reporter.write_line(text.found(len(found), sum(len(finding.cells) for finding in found)))
