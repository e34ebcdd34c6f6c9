"""Compare each operator that PyTorch calls with its tensor in the graph, for ``conformance align``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

from conformance.compare.judges import NoiseLimits
from conformance.diagnose.locate import follow, question
from conformance.diagnose.operators.captured_program import Operator, Unable, with_outputs
from conformance.diagnose.operators.first_operator import Search
from conformance.diagnose.operators.forced import Parting, Step
from conformance.diagnose.operators.losses import Loss, largest, losses
from conformance.front.commands.align.file_answer import of_file
from conformance.front.commands.align.question import AlignQuestion, Chosen, answered, heading
from conformance.front.commands.align.table import AlignAnswer, Row, decibels, number
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import RuntimeVerifier
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.process.errors import UserError
from conformance.results.records.location import describe_unable, located
from conformance.results.records.record_types import OperatorFields
from conformance.runtimes.inner_tensors import values
from conformance.runtimes.onnxgraph.reads import Graph, operator_of


def align(question: AlignQuestion) -> AlignAnswer:
    """Raise UserError with what the user has to correct, and where operators cannot be seen."""
    return answered(question, _answer)


def _answer(run: CellRun, chosen: Chosen, runtime: str) -> AlignAnswer:
    if run.cell.exporter == "onnx":
        return of_file(run, chosen, runtime)
    try:
        return (_converted if run.cell.converted else _exported)(run, chosen, runtime)
    except Unable as reason:
        why = describe_unable({"unable": reason.why, "detail": str(reason)})
        raise UserError(f"{run.cell.case.name}, {run.cell.exporter} opset {run.cell.opset}: {why}") from None


def _exported(run: CellRun, chosen: Chosen, runtime: str) -> AlignAnswer:
    """Give each operator what the graph has before it."""
    stored = run.model()
    verify = Verifier(run.of_cell(stored))
    search, told = follow(run, verify, stored, verify.example(chosen.draw), runtime)
    nodes = _nodes(Graph(search.model))
    rows = [_of_step(step, nodes.get(f"{step.tensor}", step.tensor or ""), search.parting) for step in search.steps]
    inside = sum(row.parts for row in rows)
    sentences = [*located(cast("OperatorFields", told))] if told else ["nothing parts in this example"]
    if inside and not told:
        sentences = [f"no output is wrong, though {inside} values inside differ (x)"]
    return AlignAnswer(
        heading(run, chosen, runtime), ["error/allowed"], rows, sentences, told is not None, stored.file,
        chosen.failed,
    )  # fmt: skip


def _of_step(step: Step, node: str, first: Parting | None) -> Row:
    is_first = first is not None and any(first is own for own in (step.parting, step.form))
    parting = first if is_first else step.parting
    measure = "" if step.ratio is None else number(step.ratio)
    measure = parting.how if parting is not None and parting.how != "value" else measure
    badness = step.ratio or 0.0
    if step.tensor is None or step.ratio is None:
        badness = -math.inf if parting is None else math.inf
    return Row(step.operator, node, [measure], badness, parting is not None, is_first, step.tensor or "")


def _converted(run: CellRun, chosen: Chosen, runtime: str) -> AlignAnswer:
    """Let PyTorch and the converted model each compute by themselves."""
    import onnx

    stored = run.model()
    verify = Verifier(run.of_cell(stored))
    example = verify.example(chosen.draw)
    search = Search(question(run, verify, stored, example))
    program = with_outputs(search.exhibit.program, search.exhibit.model)
    file = converted_model(run, stored, refuse=False).file
    model = onnx.load(file)
    graph = Graph(model)
    names = [name for _, _, name in program.tied() if name in graph.makers]
    got = values(model, names, runtime, run.libraries(), example.inputs)
    judge = RuntimeVerifier(run.of_cell(stored)).judge_of(example.wanted)
    assert isinstance(judge, NoiseLimits)
    found = losses(program, search.inputs, got, judge.limits, run.cell.precision)
    worst, nodes = largest(found), _nodes(graph)
    rows = [
        Row(loss.operator, nodes[loss.tensor], [decibels(loss.sqnr), f"{loss.drop:.1f}" if loss.drop else ""],
            -loss.sqnr if math.isfinite(loss.sqnr) else math.inf, loss.text is not None, loss is worst, loss.tensor)
        for loss in found
    ]  # fmt: skip
    parts = any(loss.text for loss in found)
    sentences = [*_conclude(found, worst)]
    return AlignAnswer(heading(run, chosen, runtime), ["dB", "drop"], rows, sentences, parts, file, chosen.failed)


def _nodes(graph: Graph) -> dict[str, str]:
    """By tensor the node that has it: ``Div node_Div_7``."""
    return {name: f"{operator_of(node)} {node.name}".rstrip() for node in graph.nodes for name in node.output if name}


def _conclude(found: Sequence[Loss], worst: Loss | None) -> Iterator[str]:
    if not any(loss.text for loss in found):
        yield (
            "nothing parts in this example: all values that could be compared are finite, and the outputs have the "
            "SQNR that is due"
        )
    if worst is not None and worst.text and worst.sqnr == -math.inf:
        yield f"first wrong operator at {name(worst.operator)}: {worst.text}"
    elif worst is not None:
        before = ", ".join(f"{name(loss.operator)} ({decibels(loss.sqnr)} dB)" for loss in worst.before[:6])
        yield (
            f"most is lost at {name(worst.operator)}: {decibels(worst.sqnr)} dB, {worst.drop:.1f} less than the "
            f"worst of what it is computed from{': ' if before else ''}{before}"
        )
    rest = (loss for loss in found if loss.text and (loss is not worst or loss.sqnr > -math.inf))
    yield from (f"{name(loss.operator)}: {loss.text}" for loss in rest)


def name(operator: Operator) -> str:
    """``aten.conv2d in gather, model.py:7``."""
    module = f" in {operator.module}" if operator.module else ""
    return f"{operator.called or operator.operator}{module}{f', {operator.line}' if operator.line else ''}"
