"""What fp16 or int8 costs: the converted model, by its own semantics, against PyTorch in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that a worker starts before the schema of case files is imported
    from conformance.plan.cell import Cell


def test_fidelity(cell: Cell, run: Callable[[Cell], None]) -> None:
    run(cell)
