"""Check that a converted model stays finite where PyTorch does, on every kind of values that the case allows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.arrays import Array, Inputs
from conformance.checks.draws import Draws
from conformance.checks.explain_failure import CaseExplainer
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.checks.witnesses import whom_to_ask
from conformance.compare.judges import Right
from conformance.compare.tolerance import Comparison, Subject, failed, odd_shape, subjects, worst_at
from conformance.draw.draw import about
from conformance.errors import Stopped, or_else
from conformance.export.model_store import Stored
from conformance.plan.expected import apart, on_host
from conformance.runtimes import Session
from conformance.verdict import overflow
from conformance.verdict.comparer import WrongAnswer
from conformance.verdict.example import Answers, Example

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
        start = time.perf_counter()
        outputs = self.session.run(inputs)
        self.add_seconds("run", time.perf_counter() - start)
        return outputs

    def compare(self, got: list[Array], right: Right) -> Comparison:
        self.judge_of(right.wanted)  # which Stopped ends, where the case declares other outputs
        called = subjects(len(right.wanted), tuple(output.name for output in self.outputs()))
        if len(got) != len(called):
            return failed("WrongCount", f"{len(got)} outputs instead of {len(called)}")
        for output, array, wanted in zip(called, got, right.wanted, strict=True):
            failure = odd_shape(output, array, wanted) or _lost(output, array, wanted)
            if failure is not None:
                return failure
        return Comparison("verified")


def _lost(output: Subject, got: Array, wanted: Array) -> Comparison | None:
    """The failure where values are NaN or infinite and PyTorch's are not; None where there are none."""
    if wanted.dtype.kind != "f":
        return None
    odd = np.isfinite(wanted) & ~np.isfinite(got)
    if not odd.any():
        return None
    first = tuple(int(i) for i in np.argwhere(odd)[0])
    name = "WrongNaN" if np.isnan(got[first]) else "WrongInf"
    text = f"{output}: {int(odd.sum())} of {got.size} values are NaN or infinite where PyTorch's are not"
    return failed(name, text, worst_at(output.number, first, got, wanted, np.inf, np.inf))


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
    verify.expects = lambda stop: stop.error in _NOT_FINITE
    explain = CaseExplainer(run.settings, record, verify, run.dims(), whom_to_ask(run, verify, stored, converted))
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
