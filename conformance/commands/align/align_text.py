"""Write the text of ``conformance align``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from conformance.align.parting import Alignment, Row
from conformance.commands.align.question import Answer
from conformance.records.sanitize import literal
from conformance.runtimes import registry

if TYPE_CHECKING:
    from rich.table import Table

NEIGHBOURS = 2
"""Rows shown before and after the first parting."""
WORST = 10
WIDTH = 300
"""Columns where the output is no terminal, so that no path or name is broken in two."""

OPTIMIZES = {"onnxruntime": ", whose optimizer merges fewer nodes than it would were the tensors inside not shown"}
"""What the heading adds to the title of a runtime that optimizes."""

VERDICTS = {
    "ill-conditioned": "within what float32 itself loses here",
    "nothing": "mostly NaN or infinite on both sides",
}
"""Notes on tensors that neither agree plainly nor part, by the verdict of the comparison."""


def show(answer: Answer, *, everything: bool) -> None:
    """Prints what was aligned, the table, and the conclusion."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    alignment = answer.alignment

    def line(text: str) -> None:
        console.print(literal(text), markup=False, highlight=False, soft_wrap=True)

    line(heading(answer))
    line(count_matched(alignment))
    rows = alignment.rows if everything else chosen(alignment)
    console.print(_table(alignment, rows))
    left = len(alignment.rows) - len(rows)
    if left:
        line(f"and {left} more; --all shows them")
    for sentence in sentences(alignment):
        line(sentence)


def heading(answer: Answer) -> str:
    cell, draw = answer.cell, answer.draw
    sizes = ", ".join(f"{name}={size}" for name, size in draw.dims.items())
    how = registry.named(answer.runtime).title + OPTIMIZES.get(answer.runtime, "")
    return (
        f"{cell.case.name}, {cell.exporter} opset {cell.opset}, {cell.precision}, by {how}; "
        f"{sizes or 'no dims'}, {draw.regime} values, seed {draw.seed}"
    )


def count_matched(alignment: Alignment) -> str:
    """Say how many calls of submodules were found in the graph."""
    rows = [row for row in alignment.rows if row.place.call.path]
    calls = {row.place.call.id for row in rows}
    modules = {row.place.call.path for row in rows}
    kinds = Counter(_kind(row) for row in rows)
    words = {
        "own": "compared",
        "same": "the same tensor as one of those",
        "folded": "folded into a batch norm",
        "input": "return their input",
        "unmatched": "not found in the graph",
    }
    counts = ", ".join(f"{kinds[kind]} {text}" for kind, text in words.items() if kinds[kind])
    return f"{len(calls)} calls of {len(modules)} submodules with {len(rows)} outputs: {counts}"


def _kind(row: Row) -> str:
    """The kind of a row; a tensor that another call returned first has the kind of that call's row."""
    place = row.place
    while place.kind == "same" and place.first is not None and place.first.kind != "own":
        place = place.first
    return place.kind


def chosen(alignment: Alignment) -> list[Row]:
    """The first parting with its neighbours and inputs, and the worst, in order."""
    compared = alignment.compared
    wanted = sorted(compared, key=_badness)[:WORST]
    if alignment.first is not None:
        index = compared.index(alignment.first)
        wanted += compared[max(index - NEIGHBOURS, 0) : index + NEIGHBOURS + 1]
        wanted += alignment.first.inputs
    kept = {id(row) for row in wanted}
    return [row for row in alignment.rows if id(row) in kept]


def _badness(row: Row) -> float:
    return -(row.ratio or 0.0) if row.ratio is not None else (math.inf if row.sqnr is None else row.sqnr)


def _table(alignment: Alignment, rows: Sequence[Row]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("submodule", overflow="fold")
    table.add_column("type")
    table.add_column("node", overflow="fold")
    table.add_column("tensor", overflow="fold")
    if alignment.precision == "fp32":
        table.add_column("error/allowed", justify="right")
    else:
        table.add_column("dB", justify="right")
        table.add_column("drop", justify="right")
    table.add_column("", overflow="fold")
    for row in rows:
        mark = ">>" if row is alignment.first else ("x" if row.parts else "")
        cells = [mark, row.place.name, row.place.call.type, row.node, row.got, *_measures(alignment, row), _note(row)]
        table.add_row(*(escape(literal(cell)) for cell in cells))
    return table


def _measures(alignment: Alignment, row: Row) -> list[str]:
    if alignment.precision == "fp32":
        return ["" if row.ratio is None else number(row.ratio)]
    if row.sqnr is None:
        return ["", ""]
    return [_decibels(row.sqnr), f"{row.drop:.1f}" if row.drop else ""]


def number(ratio: float) -> str:
    return f"{ratio:,.0f}" if 10 <= ratio < 1e6 else f"{ratio:.2g}"


def _decibels(value: float) -> str:
    return {math.inf: "no loss", -math.inf: "all lost"}.get(value, f"{value:.1f}")


def _note(row: Row) -> str:
    if row.place.kind == "same" and row.place.first is not None:
        return f"= {row.place.first.name}"
    if row.place.kind == "unmatched":
        return f"not found: {row.place.note}"
    return "; ".join(filter(None, (row.place.note, VERDICTS.get(row.verdict))))


# ---- the conclusion ------------------------------------------------------------------------------------------


def sentences(alignment: Alignment) -> Iterator[str]:
    """The conclusion: nothing parts, or what parts first and what its inputs are like."""
    row = alignment.first
    if not alignment.parts:
        due = "agree" if alignment.precision == "fp32" else "are finite, and the outputs have the SQNR that is due"
        yield f"nothing parts: all {len(alignment.compared)} tensors that could be compared {due}"
        if row is not None:
            yield f"most is lost at {_what(row)}: {_describe_loss(row)}"
        return
    if row is None:  # the loss is spread so evenly that no tensor is below its inputs
        for parting in alignment.rows:
            if parting.parts:
                yield f"{_what(parting)}: {parting.text}"
        return
    if alignment.precision == "fp32" or (row.parts and row.sqnr == -math.inf):
        yield f"they part first at {_what(row)}: {row.text}"
    else:
        yield f"most is lost at {_what(row)}: {_describe_loss(row)}"
        for parting in alignment.rows:
            if parting.parts:
                yield f"{parting.place.name}: {parting.text}"
    yield _before(alignment, row)
    if row.rules:
        yield f"the node was made by the exporter's optimizer: {row.rules}"
    if alignment.precision == "fp32":
        yield from _later_partings(alignment, row)


def _what(row: Row) -> str:
    """``layer1.0.conv1 (Conv2d), node /layer1/layer1.0/conv1/Conv``."""
    counts = Counter(row.operators)
    operators = ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())
    plural = "operators" if len(row.operators) != 1 else "operator"
    return f"{row.place.name} ({row.place.call.type}), node {row.node}, {plural} {operators or 'none'}"


def _describe_loss(row: Row) -> str:
    assert row.sqnr is not None
    return f"{_decibels(row.sqnr)} dB, {row.drop:.1f} less than the worst of what it is computed from"


def _before(alignment: Alignment, row: Row) -> str:
    if not row.inputs:
        return "it is computed from the model's inputs, with no compared submodule in between"

    def state(input_row: Row) -> str:
        if alignment.precision == "fp32":
            return f"{input_row.place.name} (error/allowed {number(input_row.ratio or 0.0)})"
        return f"{input_row.place.name} ({_decibels(input_row.sqnr if input_row.sqnr is not None else math.inf)} dB)"

    few = 6
    more = f" and {len(row.inputs) - few} more" if len(row.inputs) > few else ""
    text = f"it is computed from {', '.join(map(state, row.inputs[:few]))}{more}"
    if alignment.precision != "fp32":
        return text
    return f"{text}, which {'agrees' if len(row.inputs) == 1 else 'agree'}"


def _later_partings(alignment: Alignment, row: Row) -> Iterator[str]:
    later = [parting for parting in alignment.rows if parting.parts and parting is not row]
    starting = [parting for parting in later if parting.begins]
    if len(later) > len(starting):
        yield f"{len(later) - len(starting)} more part, computed from what parts before them"
    if starting:
        names = ", ".join(parting.place.name for parting in starting[:6])
        more = f" and {len(starting) - 6} more" if len(starting) > 6 else ""
        yield f"{len(starting)} more part though what they are computed from agrees: {names}{more}"
