"""The check ``fidelity``: what a precision costs, and whether the converted model stays finite where PyTorch does, on
every kind of values that the case allows."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.arrays import Array, Inputs
from conformance.case.words import base_of
from conformance.checks.conversion import converted_model
from conformance.checks.draws import Draws
from conformance.checks.examples import Examples
from conformance.checks.explain_failure import CaseExplainer
from conformance.checks.locate import note_operator
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.checks.verify_converted import FidelityVerifier, not_finite, opening_literal
from conformance.compare.judges import Right
from conformance.compare.tolerance import Comparison, failed, odd_shape, subjects
from conformance.draw.draw import about
from conformance.errors import Stopped, or_else
from conformance.export.model_store import Stored
from conformance.plan.expected import apart, on_host
from conformance.records.spent import spending
from conformance.runtimes import Session
from conformance.verdict import overflow
from conformance.verdict.comparer import WrongAnswer
from conformance.verdict.example import Answers, Example


def check_fidelity(run: CellRun) -> None:
    """The converted model, by its own semantics, is as close to PyTorch in float32 as its precision is due to be, and
    gives numbers wherever PyTorch does."""
    cell = run.cell
    stored = run.model()
    converted = converted_model(run, stored)
    with contextlib.ExitStack() as stack:
        session = opening_literal(run, converted, stack)()
        storage = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
        run.record.arithmetic = {**session.arithmetic, "storage": storage}
        verify = FidelityVerifier(run.of_cell(stored), session)
        verify.kept = run.kept_answers(converted)
        explainer = CaseExplainer(run, verify, stored, converted)
        draws = Draws(cell, run.settings, run.prepared, run.dims(), run.prepared.trace())
        try:
            Examples(run, draws, verify, explainer).run()
            check_finite(run, session, draws, stored, converted, trusting=verify.kept.first is not None)
        except Stopped as stop:
            if stop.fault == "exporter" and not explainer.is_declared(stop) and not stop.details.get("unexplained"):
                note_operator(run, verify, stored, explainer.example, stop)
            raise


TOO_LARGE = ("large", "offset")
"""Regimes whose values do not fit fp16 in much that is sound, as in x * x at 1000. Where the case does not declare
the values of an input, such an overflow is told and is no failure."""
_NOT_FINITE = ("WrongNaN", "WrongInf")


class FinitenessVerifier(Verifier):
    """Check that outputs are numbers wherever PyTorch's are; ``fidelity`` measures how close they are."""

    def answers(self, inputs: Inputs) -> Answers:
        return self.in_pytorch(inputs), lambda: None

    def gives_numbers(self, example: Example) -> bool:
        """Return whether the model gives numbers alone, without asking PyTorch; False where it does not run."""
        assert self.session is not None
        self._note(example.draw, "declare")
        outputs = or_else(None, lambda: self._computed(example))
        if outputs is None:  # what is raised comes again where it is explained
            return False
        return all(bool(np.isfinite(array).all()) for array in outputs if array.dtype.kind == "f")

    def _computed(self, example: Example) -> list[Array]:
        assert self.session is not None
        inputs = example.inputs
        self._note(example.draw, "run")
        with spending(self._seconds, "run"):
            return self.session.run(inputs)

    def compare(self, got: list[Array], right: Right) -> Comparison:
        self.judge_of(right.wanted)  # which Stopped ends, where the case declares other outputs
        called = subjects(len(right.wanted), tuple(output.name for output in self.outputs()))
        if len(got) != len(called):
            return failed("WrongCount", f"{len(got)} outputs instead of {len(called)}")
        for output, array, wanted in zip(called, got, right.wanted, strict=True):
            failure = odd_shape(output, array, wanted) or not_finite(output, array, wanted, lost_alone=True)
            if failure is not None:
                return failure
        return Comparison("verified")


def check_finite(
    run: CellRun, session: Session, draws: Draws, stored: Stored, converted: Stored, *, trusting: bool
) -> None:
    """Stopped for the first example of which the converted model, opened as ``session``, makes NaN or infinities
    where PyTorch's outputs are finite. Answers of PyTorch that an earlier run kept are taken if ``trusting``, which
    is for a cell that has seen that PyTorch still answers alike.

    What a precision costs is measured on the values that a model is made for; whether it holds shows at their ends:
    the norm of a row of zeros, a row that is masked out, a sum of large values.
    """
    cell, record = run.cell, run.record
    verify = FinitenessVerifier(run.of_cell(stored), session)
    verify.kept = run.kept_answers(converted, "finite")
    if not trusting:
        verify.kept.forget()
    explain = CaseExplainer(run, verify, stored, converted)
    verify.expects = lambda stop: stop.error in _NOT_FINITE
    declared = on_host(apart(cell), run.settings.instructions)
    inputs = cell.case.says.inputs.values()
    # a normal distribution is no range either
    chosen = any(
        entry.type.is_float and (entry.values is None or entry.values.normal is not None) for entry in inputs
    )

    def told(example: Example, stop: Stopped) -> Any:
        output = stop.worst.output if isinstance(stop, WrongAnswer) and stop.worst is not None else None
        origin = overflow.origin(stored.file, converted.file, run.libraries(), example.inputs)
        return {"regime": example.draw.regime, "output": output, **(origin or {})}

    compared: list[Mapping[str, int]] = []
    for draw in draws.of_every_regime():
        if any(about(entry.when, draw) for entry in declared):
            continue
        example = verify.example(draw)
        # PyTorch has no say in numbers; the first example of each size shows that the outputs have PyTorch's shapes
        if draw.dims in compared and verify.gives_numbers(example):
            continue
        compared.append(draw.dims)
        stop = explain.failure(example)
        if stop is None:
            continue
        if chosen and draw.regime in TOO_LARGE and stop.error in _NOT_FINITE:
            record.beyond.append(told(example, stop))
            continue
        stop = explain(example, stop)
        if stop.details.get("unexplained"):
            raise stop
        shown = explain.example or example
        stop.details |= {"beyond": [*record.beyond, told(shown, stop)], "hints": ["exclude"]}
        raise stop
    verify.kept.write([])
