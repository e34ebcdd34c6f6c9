"""The table that ``conformance align`` prints: a row for each value, with where it is from and how far it is off."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.results.records.sanitize import literal
from conformance.runtimes.onnxgraph.reads import Graph

if TYPE_CHECKING:
    from conformance.diagnose.operators.captured_program import Operator


@dataclass(frozen=True)
class FileNode:
    """The origin of a tensor of a file, as a row of the table shows it."""

    operator: str
    """The operator of its node; of a pair of files the node of the first that has the same tensor."""
    line: str | None
    called: str | None = None
    source: str | None = None
    module: str | None = None


@dataclass(frozen=True)
class Row:
    """A value of an operator: where it is from, the node that has it, and how far it is off."""

    operator: Operator | FileNode
    node: str
    measures: Sequence[str]
    badness: float
    """Its distance from what is right, beside others; -inf where it was not compared."""
    parts: bool = False
    first: bool = False
    tensor: str = ""
    """The value's name in the graph."""


@dataclass(frozen=True)
class AlignAnswer:
    heading: str
    measures: Sequence[str]
    """Names of what is measured, as headings of columns."""
    rows: Sequence[Row]
    sentences: Sequence[str]
    parts: bool
    model: Path
    """The file whose nodes the rows are about."""
    failed: str | None = None
    """The cell that failed with this example when it ran last, where one is known."""

    @property
    def counted(self) -> str:
        compared = sum(row.badness > -math.inf for row in self.rows)
        missing = len(self.rows) - compared
        return f"{len(self.rows)} values of operators: {compared} compared, {missing} not known in the graph"


def number(ratio: float) -> str:
    return f"{ratio:,.0f}" if 10 <= ratio < 1e6 else f"{ratio:.2g}"


def decibels(value: float) -> str:
    return {math.inf: "no loss", -math.inf: "all lost"}.get(value, f"{value:.1f}")


NEIGHBOURS = 2
"""Rows shown before and after the first that parts."""
WORST = 10
WIDTH = 300
"""Columns where the output is no terminal, so that no path or name is broken in two."""


def show(answer: AlignAnswer, *, everything: bool) -> None:
    """Print what was aligned, the table, and the conclusion."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)

    def line(text: str) -> None:
        console.print(literal(text), markup=False, highlight=False, soft_wrap=True)

    chosen = answer.rows if everything else choose(answer)
    cells = [[*_cells(row)] for row in chosen]
    names = ("", "line", "source", "module", "operator", "node", *answer.measures)
    used = [place for place in range(len(names)) if place == 0 or any(row[place] for row in cells)]
    table = Table(box=None, pad_edge=False)
    for place in used:
        measured = place >= len(names) - len(answer.measures)
        table.add_column(names[place], overflow="fold", justify="right" if measured else "left")
    for row in cells:
        table.add_row(*(escape(literal(row[place])) for place in used))
    line(answer.heading)
    line(answer.counted)
    console.print(table)
    if len(answer.rows) > len(chosen):
        line(f"and {len(answer.rows) - len(chosen)} more; --all shows them")
    for sentence in answer.sentences:
        line(sentence)


def choose(answer: AlignAnswer) -> list[Row]:
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


RIGHT, OFF, FIRST = "#a5d6a7", "#ffcc80", "#ef5350"
"""Colours of nodes that are right, of others that differ, and of the first that does."""


def node_data(answer: AlignAnswer) -> dict[str, object]:
    """Return plain data: the first measure of each node that was compared, of its worst output, and its colour.

    The keys are those by which the adapter of Model Explorer for ONNX (``model-explorer-onnx``) calls nodes, and the
    rest is ``GraphNodeData`` of ``model_explorer/node_data_builder.py``.
    """
    import onnx

    graph = Graph(onnx.load(answer.model, load_external_data=False))
    nodes = {
        tensor: node.name or f"<node_{place}>" for place, node in enumerate(graph.nodes) for tensor in node.output
    }
    compared = [row for row in answer.rows if row.badness > -math.inf and row.tensor in nodes]
    worst_last = sorted(compared, key=lambda row: (row.first, row.parts, row.badness))
    results = {nodes[row.tensor]: _painted(row, answer.measures[0]) for row in worst_last}
    return {"name": f"{answer.measures[0]}: {answer.heading}", "results": results}


def _painted(row: Row, measure: str) -> dict[str, object]:
    value = -row.badness if measure.startswith("dB") else row.badness
    shown = value if math.isfinite(value) else row.measures[0]  # JSON has no infinity
    return {"value": shown, "bgColor": FIRST if row.first else OFF if row.parts else RIGHT}
