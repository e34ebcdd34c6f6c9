"""What the terminal shows of a run. Records of finished cells arrive in its process, not in xdist's workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.plugin.session import Session


class Terminal:
    """Hooks of the process where the terminal is."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = getattr(report, "conformance", None)
        error = None
        if record is not None and not _is_of(report, record["id"]):
            self._session.mixed_up = True
            error, reason = "BadAnswer", f"its test came with the record of {record['id']}"
        elif record is None and report.failed and report.when not in ("setup", "call", "teardown"):
            # of a test whose process ended, so that xdist made the report
            error, reason = "ProcessLost", f"the process of pytest-xdist ended: {report.longreprtext}"
        if error is not None:
            cells, _ = self._session.planning()
            cell = next((cell for cell in cells if _is_of(report, cell.id)), None)
            record = None if cell is None else self._session.running.broken(cell, error, reason)
        if record is not None:
            self._session.writing.add(record)
            _hand_to_benchmark(self._session.options.config, report.nodeid, record)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from conformance.records import matrix

        session, width = self._session, terminalreporter._tw.fullwidth
        records = session.writing.records
        if session.has_cells:
            for line in session.planning.lines():
                terminalreporter.write_line(line)
        if not records:
            return
        terminalreporter.section("conformance")
        for line in matrix.lines(records, width):
            terminalreporter.write_line(line)
        terminalreporter.write_line("")
        for line in (*matrix.LEGEND, *matrix.fidelity(records), *matrix.latency(records), *matrix.slow(records)):
            terminalreporter.write_line(line)
        terminalreporter.write_line(matrix.counts(records))
        for line in session.writing.emptiness():
            terminalreporter.write_line(line, red=True)
        if session.gating.asked_for:
            terminalreporter.section("since the baseline")
            for line in session.gating.lines(width):
                terminalreporter.write_line(line)


def _is_of(report: pytest.TestReport, id: str) -> bool:
    """Whether the test is that of the cell; after the cell's id, xdist may name a group."""
    return report.nodeid.rpartition("::test_")[2].startswith(id)


def _hand_to_benchmark(config: pytest.Config, nodeid: str, record: dict[str, Any]) -> None:
    """Hands the durations of a latency cell to pytest-benchmark, which shows, stores and compares them as its own."""
    session: Any = getattr(config, "_benchmarksession", None)
    if session is None or not (record["latency"] or {}).get("own"):
        return
    from conformance.latency.store import metadata

    session.benchmarks += metadata(record["id"], nodeid, record["latency"])
