"""Whether a runtime keeps its budgets of time; ``-m latency`` selects them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # so that a worker starts before the schema of case files is imported
    from conformance.plan.cell import Cell


@pytest.mark.latency
def test_latency(cell: Cell, run: Callable[[Cell], None]) -> None:
    run(cell)
