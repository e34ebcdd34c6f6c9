"""The hooks of other plugins, or of a `conftest.py`, that a session of the suite calls: in the process of the
terminal alone, also with `-n` and `--cluster`. Lists and records are copies, so that none changes a verdict.

What one raises is printed at the end and fails the run; everything measured is kept, and other plugins are called
all the same. `pytest.exit` ends the run. Where this package may be absent, mark them with
`@pytest.hookimpl(optionalhook=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from conformance.case.plan.cell import Cell
    from conformance.results.records.findings import Finding
    from conformance.results.records.record import Record


def pytest_conformance_cells(config: pytest.Config, cells: list[Cell]) -> None:
    """Called once before the first cell, with those that were selected, each with its `id`; not with
    `--collect-only`."""


def pytest_conformance_verdict(config: pytest.Config, record: Record) -> None:
    """Called with the [record](records.md#a-record) of each cell, as soon as it is in the run file; its cause may be
    explained later."""


def pytest_conformance_findings(config: pytest.Config, findings: list[Finding]) -> None:
    """Called once at the end, the run file whole and causes explained, with the [findings](reports.md#findings): the
    `id` of each and the records of its `cells`; none of a green run."""
