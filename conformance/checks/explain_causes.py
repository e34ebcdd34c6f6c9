"""Explain cells that fail alike: one of them, and whichever others give the same wrong values for its example."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from conformance.checks.runner import Runner
from conformance.plan.cell import Cell
from conformance.records.causes import is_same_error, share
from conformance.records.record import Record
from conformance.worker.isolation import OnWait


def explain_alike(
    runner: Runner, alike: Sequence[tuple[Cell, Record]], deadline: float, on_wait: OnWait | None = None
) -> Iterator[list[Record]]:
    """Yield the records of each cause with its explanation, the cell that was explained first, until time is up
    (``time.monotonic``). ``alike`` are cells that may have one cause (``records.causes.by_likeness``)."""
    left = [*alike]
    while left and time.monotonic() < deadline:
        (cell, record), *others = left
        explained = runner.explain(cell, record, on_wait)
        same = [] if explained.unexplained else _of_same_cause(runner, cell, explained, others)
        explained_too = {record.id for record in same}
        left = [other for other in others if other[1].id not in explained_too]
        share(explained, same)
        yield [explained, *same]


def _of_same_cause(
    runner: Runner, cell: Cell, explained: Record, others: Sequence[tuple[Cell, Record]]
) -> list[Record]:
    """Return the records of the cells that give the wrong values of the explained one for its example, or that
    stopped with its words."""
    if explained.error == "OnlyAfter":
        return []
    if explained.stage != "compare":
        return [record for _, record in others]
    if explained.draw is None or not others:
        return []
    answer = runner.answer(cell, explained.draw)
    return [record for other, record in others if is_same_error(answer, runner.answer(other, explained.draw))]
