"""Explaining a red cell: who is at fault, where, and the smallest example, function or model that shows it.

The verdict is there before (``cells.run_cell``), and nothing here changes it. A cell that is to be explained runs
again, beginning with the draw that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from conformance.case.draw.example import Example
from conformance.case.files.python import describe
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.meaning import parting_node
from conformance.cells.pack_cells import leave
from conformance.cells.run_cell import run_cell
from conformance.diagnose.explain_failure import explained
from conformance.diagnose.explanations import Question, explain
from conformance.diagnose.locate import find_operator, most_lost
from conformance.diagnose.refused import explain_export
from conformance.diagnose.smallest.parser_script import leave_parser_script
from conformance.diagnose.smallest.smallest import leave_smallest
from conformance.diagnose.smallest.smallest_function import (
    Reduced,
    causes_known,
    leave_function,
    smallest_of_failed_export,
)
from conformance.judge.finite import FinitenessVerifier
from conformance.judge.red_cell import RedCell, RedExport
from conformance.process.arrays import Array
from conformance.process.errors import Details, Stopped, attempt
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.state.fence import Fence
from conformance.results.records.explanation import add
from conformance.results.records.record import Record
from conformance.results.records.record_types import Smallest
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.random_nodes import random_nodes


def explain_cell(progress: Progress, cell: Cell, settings: Settings, fence: Fence | None = None) -> Record:
    """Run one cell and say what happened and why. Raises nothing but KeyboardInterrupt."""
    return run_cell(progress, cell, settings, fence, explain_red)


def explain_red(red: RedCell | RedExport) -> Stopped:
    """Return a failure that is not declared, with all that can be found out about it."""
    if isinstance(red, RedExport):
        explain_export(red)
        return add(red.stop, smallest_of_failed_export(red.run, red.stop) if red.run.cell.check == "export" else {})
    red = explained(red)
    if red.example is None or red.stop.error == "IllConditioned" or isinstance(red.of.verify, FinitenessVerifier):
        return red.stop
    if red.of.run.cell.check == "fidelity":
        return add(red.stop, find_operator(red)[0] if red.stop.fault == "exporter" else most_lost(red))
    found, small = find_operator(red)
    if red.of.run.cell.check == "meaning":
        found, small = {**found, **parting_node(red)}, None
    return add(red.stop, found, _ask_explanations(red, red.example), _leave_bundle(red, red.example, found, small))


def _leave_bundle(red: RedCell, example: Example, found: Details, small: Reduced | None) -> Details:
    """Leave a bundle that reproduces an unexpected failure where there is no PyTorch; return what is known of the
    smallest function or model in it."""
    run = red.of.run
    folder = attempt(lambda: leave(red.of, example))
    if isinstance(folder, Exception):  # the failure itself is what counts
        return {"no_bundle": describe(folder, run.cell.case.folder)}
    if not run.settings.smallest:
        return {}

    def left() -> Smallest | None:
        place = folder / "smallest"
        if run.cell.check == "meaning":
            at = found.get("parts_at")
            return leave_parser_script(red.of.model.file, example.inputs, at, place) if at else None
        if small is not None:
            return leave_function(run, small, place, causes_known(run, found.get("operator") or {}))
        return leave_smallest(run, red.of.model.file, example, red.stop, place)

    told = attempt(left)
    if isinstance(told, Exception):
        told = {"why_not": describe(told, run.cell.case.folder)}
    return {"smallest": told}


def _ask_explanations(red: RedCell, example: Example) -> Details:
    """Return what the explanations that anybody may add say of a failing example."""
    run, stop = red.of.run, red.stop
    if stop.stage not in ("load", "run", "compare") or random_nodes(read_graph(red.of.model.file)):
        return {}  # what draws random numbers may be right at any time, whatever is tried
    try:
        wanted = example.wanted
    except Stopped:  # nobody can say what is right, as where a converted model stops at its meaning too
        return {}
    cell = run.cell

    def judge(outputs: Sequence[Array]) -> bool:
        return red.of.verify.judged(example, list(outputs)).verdict == "verified"

    question = Question(
        cell.case.name, cell.exporter, cell.opset, str(cell.runtime), cell.precision, stop.stage, stop.error,
        stop.fault, red.of.model.file, tuple(map(str, run.libraries())), run.config(), example.inputs, wanted, judge,
    )  # fmt: skip
    told = explain(question)
    return {"explained": told} if told else {}
