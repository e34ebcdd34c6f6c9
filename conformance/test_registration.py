"""Registering a symbolic: without it the declared failure, with it a model that uses every input."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that a worker starts before the schema of case files is imported
    from conformance.plan.cell import Cell


def test_registration(cell: Cell, run: Callable[[Cell], None]) -> None:
    run(cell)
