"""Print the table of ``conformance align``."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.commands.align.answer import Answer, Row
from conformance.records.sanitize import literal

NEIGHBOURS = 2
"""Rows shown before and after the first that parts."""
WORST = 10
WIDTH = 300
"""Columns where the output is no terminal, so that no path or name is broken in two."""


def show(answer: Answer, *, everything: bool) -> None:
    """Prints what was aligned, the table, and the conclusion."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)

    def line(text: str) -> None:
        console.print(literal(text), markup=False, highlight=False, soft_wrap=True)

    table = Table(box=None, pad_edge=False)
    for name in ("", "line", "source", "module", "operator", "node"):
        table.add_column(name, overflow="fold")
    for name in answer.measures:
        table.add_column(name, justify="right")
    chosen = answer.rows if everything else choose(answer)
    for row in chosen:
        table.add_row(*(escape(literal(cell)) for cell in _cells(row)))
    line(answer.heading)
    line(answer.counted)
    console.print(table)
    if len(answer.rows) > len(chosen):
        line(f"and {len(answer.rows) - len(chosen)} more; --all shows them")
    for sentence in answer.sentences:
        line(sentence)


def choose(answer: Answer) -> list[Row]:
    """The first that parts with its neighbours, the others that part, and the worst, in order."""
    worst = {id(row) for row in sorted(answer.rows, key=lambda row: -row.badness)[:WORST]}
    first = [place for place, row in enumerate(answer.rows) if row.first]
    return [row for place, row in enumerate(answer.rows)
            if row.parts or id(row) in worst or any(abs(place - at) <= NEIGHBOURS for at in first)]  # fmt: skip


def _cells(row: Row) -> Iterator[str]:
    operator = row.operator
    yield ">>" if row.first else "x" if row.parts else ""
    yield from (operator.line or "", operator.source or "", operator.module or "")
    yield operator.called or operator.operator
    yield row.node
    yield from row.measures
