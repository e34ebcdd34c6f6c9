"""What the terminal shows of a run. Records of finished cells arrive in its process, not in xdist's workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from conformance.records.clean import literal

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

        def write(line: str, **how: bool) -> None:
            terminalreporter.write_line(literal(line), **how)

        session, width = self._session, terminalreporter._tw.fullwidth
        records = session.writing.records
        if session.has_cells:
            for line in session.planning.lines():
                write(line)
        if not records:
            return
        terminalreporter.section("conformance")
        for line in matrix.lines(records, width):
            write(line)
        write("")
        for line in (*matrix.LEGEND, *matrix.fidelity(records), *matrix.latency(records), *matrix.slow(records)):
            write(line)
        write(matrix.counts(records))
        for line in session.writing.emptiness():
            write(line, red=True)
        if session.gating.asked_for:
            terminalreporter.section("since the baseline")
            for line in session.gating.lines(width):
                write(line)


def _hand_to_benchmark(config: pytest.Config, nodeid: str, record: dict[str, Any]) -> None:
    """Hands the durations of a latency cell to pytest-benchmark, which shows, stores and compares them as its own."""
    session: Any = getattr(config, "_benchmarksession", None)
    if session is None or not (record["latency"] or {}).get("own"):
        return
    from conformance.latency.store import metadata

    session.benchmarks += metadata(record["id"], nodeid, record["latency"])
