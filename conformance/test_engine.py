"""What only an engine on a GPU can show: equal rows, equal builds, time by layer and by batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that a worker starts before the schema of case files is imported
    from conformance.plan.cell import Cell


def test_engine(cell: Cell, run: Callable[[Cell], None]) -> None:
    run(cell)
