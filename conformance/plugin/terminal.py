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
        parts = (matrix.fidelity, matrix.latency, matrix.slow, matrix.changed)
        for line in (*matrix.LEGEND, *(line for part in parts for line in part(records))):
            terminalreporter.write_line(line)
        terminalreporter.write_line(matrix.counts(records))
        for line in session.writing.emptiness():
            terminalreporter.write_line(line, red=True)
        if session.gating.asked_for:
            terminalreporter.section("since the baseline")
            for line in session.gating.lines(width):
                terminalreporter.write_line(line)


def _hand_to_benchmark(config: pytest.Config, nodeid: str, record: dict[str, Any]) -> None:
    """Hands the durations of a latency cell to pytest-benchmark, which shows, stores and compares them as its own."""
    session: Any = getattr(config, "_benchmarksession", None)
    if session is None or not (record["latency"] or {}).get("own"):
        return
    from conformance.latency.store import metadata

    session.benchmarks += metadata(record["id"], nodeid, record["latency"])
