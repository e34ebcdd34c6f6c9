"""Explanations that anybody may add, of a failing example."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.arrays import Array
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.errors import Stopped
from conformance.explanations import Question, explain
from conformance.export.model_store import Stored
from conformance.verdict.example import Example


def note_explanations(run: CellRun, verify: Verifier, model: Stored, example: Example | None, stop: Stopped) -> None:
    """Write what the explanations say of a failing example into the fields of that failure."""
    if example is None or stop.stage not in ("load", "run", "compare"):
        return
    try:
        wanted = example.wanted
    except Stopped:  # nobody can say what is right, as where a converted model stops at its meaning too
        return
    cell = run.cell

    def judge(outputs: Sequence[Array]) -> bool:
        return verify.judged(example, list(outputs)).verdict == "verified"

    question = Question(
        cell.case.name, cell.exporter, cell.opset, str(cell.runtime), cell.precision, stop.stage, stop.error,
        stop.fault, model.file, tuple(map(str, run.libraries())), run.config(), example.inputs, wanted, judge,
    )  # fmt: skip
    told = explain(question)
    if told:
        stop.details["explained"] = told
