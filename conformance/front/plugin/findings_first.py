"""Show each finding of a run as one block, in place of the failures of its tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from conformance.process.errors import display_path
from conformance.results.records.sanitize import literal, one_line

if TYPE_CHECKING:
    from conformance.front.plugin.session import SessionParts
    from conformance.results.records.findings import Finding

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
