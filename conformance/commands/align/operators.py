"""``conformance align --operators``: each operator that PyTorch calls against its tensor in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.align.operators.captured_program import Unable
from conformance.align.operators.first_operator import Search
from conformance.align.operators.forced import Step
from conformance.checks.locate import question as failing
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.commands.align.align_text import NEIGHBOURS, number
from conformance.commands.align.question import Question, asked
from conformance.draw.draw import Draw
from conformance.errors import UserError
from conformance.onnxgraph.reads import Graph, operator_of
from conformance.plan.cell import Cell
from conformance.records.sanitize import literal
from conformance.records.text import located


@dataclass(frozen=True)
class Path:
    """The operators of a case at one example, and the first that parts."""

    cell: Cell
    draw: Draw
    steps: Sequence[Step]
    told: Mapping[str, Any] | None
    """``Record.operator``; None where nothing parts."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """By tensor the node that has it: ``Div node_Div_7``."""


def align(question: Question) -> Path:
    """Raises UserError with what the user has to correct, and where operators cannot be seen."""
    if question.precision != "fp32":
        raise UserError("--operators: a converted model is aligned by submodules alone; take --precision fp32")
    return asked(question, _path)


def _path(run: CellRun, draw: Draw, question: Question) -> Path:
    stored = run.model()
    verify = Verifier(run.of_cell(stored))
    example = verify.example(draw)
    run.reference.restore()
    told: Mapping[str, Any] | None = None
    try:
        search = Search(failing(run, verify, stored, example), whole=True)
        try:
            told = search.found()
        except Unable as reason:
            if reason.why != "vanished":  # which is what an example that does not fail is here
                told = {"unable": reason.why, "detail": str(reason)}
    except Unable as reason:
        (line,) = located({"operator": {"unable": reason.why, "detail": str(reason)}})
        raise UserError(f"{run.cell.case.name}, {run.cell.exporter} opset {run.cell.opset}: {line}") from None
    graph = Graph(search.model)
    nodes = {
        name: f"{operator_of(node)} {node.name}".rstrip() for node in graph.nodes for name in node.output if name
    }
    return Path(run.cell, draw, search.steps, told, nodes)


def show(path: Path, *, everything: bool) -> None:
    """Prints what was aligned, the table, and the conclusion."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 300)
    table = Table(box=None, pad_edge=False)
    for name in ("", "line", "source", "operator", "node"):
        table.add_column(name, overflow="fold")
    table.add_column("error/allowed", justify="right")
    chosen = list(path.steps) if everything else list(_choose(path))
    for step in chosen:
        table.add_row(*(escape(literal(cell)) for cell in _cells(path, step)))
    for line in (heading(path), counted(path.steps)):
        console.print(literal(line), markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    if len(path.steps) > len(chosen):
        console.print(f"and {len(path.steps) - len(chosen)} more; --all shows them", highlight=False)
    for line in sentences(path):
        console.print(literal(line), markup=False, highlight=False, soft_wrap=True)


def heading(path: Path) -> str:
    cell, draw = path.cell, path.draw
    sizes = ", ".join(f"{name}={size}" for name, size in draw.dims.items())
    return (
        f"{cell.case.name}, {cell.exporter} opset {cell.opset}, fp32, operator by operator, each given what "
        f"the graph has before it; {sizes or 'no dims'}, {draw.regime} values, seed {draw.seed}"
    )


def counted(steps: Sequence[Step]) -> str:
    compared = sum(step.tensor is not None for step in steps)
    return f"{len(steps)} values of operators: {compared} compared, {len(steps) - compared} not known in the graph"


def sentences(path: Path) -> Iterator[str]:
    if path.told is None:
        yield f"nothing parts: {counted(path.steps).partition(': ')[2]}"
        return
    yield from located({"operator": path.told})


def _first(path: Path) -> int | None:
    told = path.told or {}
    for index, step in enumerate(path.steps):
        if step.parting is not None and step.tensor == told.get("tensor"):
            return index
    return None


def _choose(path: Path) -> Iterator[Step]:
    """Choose the steps around the first that parts, and the others that do."""
    first = _first(path)
    for index, step in enumerate(path.steps):
        near = first is not None and first - 2 * NEIGHBOURS <= index <= first + NEIGHBOURS
        if step.parting is not None or near:
            yield step


def _cells(path: Path, step: Step) -> list[str]:
    first = _first(path)
    mark = ">>" if first is not None and path.steps[first] is step else ("x" if step.parting is not None else "")
    operator = step.operator
    node = path.nodes.get(step.tensor or "", "" if step.tensor is None else step.tensor)
    ratio = "" if step.ratio is None else number(step.ratio)
    if step.parting is not None and step.parting.how != "value":
        ratio = step.parting.how
    return [mark, operator.line or "", operator.source or "", operator.called or operator.operator, node, ratio]
