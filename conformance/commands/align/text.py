"""What ``conformance align`` says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from conformance.align.parting import Alignment, Row
from conformance.commands.align.question import Answer
from conformance.runtimes import registry

if TYPE_CHECKING:
    from rich.table import Table

NEIGHBOURS = 2
"""Rows shown before and after the first parting."""
WORST = 10
WIDTH = 300
"""Columns where the output is no terminal: no path or name is then broken in two."""

OPTIMIZES = {"onnxruntime": ", whose optimizer merges fewer nodes than it would were the tensors inside not shown"}
"""What is said besides of a runtime with an optimizer."""

VERDICTS = {
    "ill-conditioned": "within what float32 itself loses here",
    "nothing": "mostly NaN or infinite on both sides",
}
"""What is told of a tensor that neither agrees plainly nor parts."""


def show(answer: Answer, *, everything: bool) -> None:
    """Prints the table and the sentence."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    found = answer.found

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    line(heading(answer))
    line(matched(found))
    rows = found.rows if everything else chosen(found)
    console.print(_table(found, rows))
    left = len(found.rows) - len(rows)
    if left:
        line(f"and {left} more; --all shows them")
    for one in sentences(found):
        line(one)


def heading(answer: Answer) -> str:
    cell, draw = answer.cell, answer.draw
    sizes = ", ".join(f"{name}={size}" for name, size in draw.dims.items())
    how = registry.named(answer.runtime).title + OPTIMIZES.get(answer.runtime, "")
    return (
        f"{cell.case.name}, {cell.exporter} opset {cell.opset}, {cell.precision}, by {how}; "
        f"{sizes or 'no dims'}, {draw.regime} values, seed {draw.seed}"
    )


def matched(found: Alignment) -> str:
    """How many calls of submodules were found in the graph."""
    rows = [row for row in found.rows if row.place.call.path]
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
    """What a row comes to: a tensor that another call returned first shares that one's fate."""
    place = row.place
    while place.kind == "same" and place.first is not None and place.first.kind != "own":
        place = place.first
    return place.kind


def chosen(found: Alignment) -> list[Row]:
    """The first parting with its neighbours and inputs, and the worst, in order."""
    compared = found.compared
    wanted = sorted(compared, key=_badness)[:WORST]
    if found.first is not None:
        index = compared.index(found.first)
        wanted += compared[max(index - NEIGHBOURS, 0) : index + NEIGHBOURS + 1]
        wanted += found.first.inputs
    kept = {id(row) for row in wanted}
    return [row for row in found.rows if id(row) in kept]


def _badness(row: Row) -> float:
    return -(row.ratio or 0.0) if row.ratio is not None else (math.inf if row.sqnr is None else row.sqnr)


def _table(found: Alignment, rows: Sequence[Row]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("submodule", overflow="fold")
    table.add_column("type")
    table.add_column("node", overflow="fold")
    table.add_column("tensor", overflow="fold")
    if found.precision == "fp32":
        table.add_column("error/allowed", justify="right")
    else:
        table.add_column("dB", justify="right")
        table.add_column("drop", justify="right")
    table.add_column("", overflow="fold")
    for row in rows:
        mark = ">>" if row is found.first else ("x" if row.parts else "")
        cells = [mark, row.place.name, row.place.call.type, row.node, row.got, *_measures(found, row), _note(row)]
        table.add_row(*map(escape, cells))
    return table


def _measures(found: Alignment, row: Row) -> list[str]:
    if found.precision == "fp32":
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


# ---- the sentence --------------------------------------------------------------------------------------------


def sentences(found: Alignment) -> Iterator[str]:
    """What the finding is."""
    row = found.first
    if not found.parts:
        due = "agree" if found.precision == "fp32" else "are finite, and the outputs have the SQNR that is due"
        yield f"nothing parts: all {len(found.compared)} tensors that could be compared {due}"
        if row is not None:
            yield f"most is lost at {_what(row)}: {_lost(row)}"
        return
    if row is None:  # the loss is spread so evenly that no tensor is below its inputs
        for one in found.rows:
            if one.parts:
                yield f"{_what(one)}: {one.text}"
        return
    if found.precision == "fp32" or (row.parts and row.sqnr == -math.inf):
        yield f"they part first at {_what(row)}: {row.text}"
    else:
        yield f"most is lost at {_what(row)}: {_lost(row)}"
        for one in found.rows:
            if one.parts:
                yield f"{one.place.name}: {one.text}"
    yield _before(found, row)
    if row.rules:
        yield f"the node was made by the exporter's optimizer: {row.rules}"
    if found.precision == "fp32":
        yield from _others(found, row)


def _what(row: Row) -> str:
    """``layer1.0.conv1 (Conv2d), node /layer1/layer1.0/conv1/Conv``."""
    counts = Counter(row.operators)
    operators = ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())
    plural = "operators" if len(row.operators) != 1 else "operator"
    return f"{row.place.name} ({row.place.call.type}), node {row.node}, {plural} {operators or 'none'}"


def _lost(row: Row) -> str:
    assert row.sqnr is not None
    return f"{_decibels(row.sqnr)} dB, {row.drop:.1f} less than the worst of what it is computed from"


def _before(found: Alignment, row: Row) -> str:
    if not row.inputs:
        return "it is computed from the model's inputs, with no compared submodule in between"

    def state(one: Row) -> str:
        if found.precision == "fp32":
            return f"{one.place.name} (error/allowed {number(one.ratio or 0.0)})"
        return f"{one.place.name} ({_decibels(one.sqnr if one.sqnr is not None else math.inf)} dB)"

    few = 6
    more = f" and {len(row.inputs) - few} more" if len(row.inputs) > few else ""
    text = f"it is computed from {', '.join(map(state, row.inputs[:few]))}{more}"
    if found.precision != "fp32":
        return text
    return f"{text}, which {'agrees' if len(row.inputs) == 1 else 'agree'}"


def _others(found: Alignment, row: Row) -> Iterator[str]:
    others = [one for one in found.rows if one.parts and one is not row]
    again = [one for one in others if one.begins]
    if len(others) > len(again):
        yield f"{len(others) - len(again)} more part, computed from what parts before them"
    if again:
        names = ", ".join(one.place.name for one in again[:6])
        more = f" and {len(again) - 6} more" if len(again) > 6 else ""
        yield f"{len(again)} more part though what they are computed from agrees: {names}{more}"
