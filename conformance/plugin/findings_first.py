"""Show the causes before the failures of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from conformance.errors import display_path
from conformance.records.sanitize import literal

if TYPE_CHECKING:
    from conformance.plugin.session import Session

_MOST = 30
"""Findings that are shown; ``conformance findings`` shows all."""


class FindingsFirst:
    """A hook around pytest's own summary, which begins with the failures."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Iterator[None]:
        self._tell(terminalreporter)
        return (yield)

    def _tell(self, terminalreporter: Any) -> None:
        from conformance.records import text
        from conformance.records.findings import findings, since

        found = findings(self._session.writing.records)
        if not found:
            return
        terminalreporter.section("findings")
        runs = self._session.gating.earlier()
        for finding in found[:_MOST]:
            for line in text.finding(finding.as_dict(since(finding, runs)), finding.cells[0]):
                terminalreporter.write_line(line)
        if len(found) > _MOST:
            place = literal(display_path(self._session.options.report))
            terminalreporter.write_line(f"and {len(found) - _MOST} more: conformance findings {place}")
        terminalreporter.write_line(text.found(len(found), sum(len(finding.cells) for finding in found)))
