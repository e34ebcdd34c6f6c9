"""Show a run in the terminal.

Records of finished cells arrive in its process, not in xdist's workers.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from conformance.front.plugin.ordering import id_of
from conformance.results.records.findings import RED
from conformance.results.records.sanitize import literal

if TYPE_CHECKING:
    from conformance.front.plugin.session import SessionParts
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
