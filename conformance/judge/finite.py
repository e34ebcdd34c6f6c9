"""Check that a converted model gives numbers wherever PyTorch does."""

from __future__ import annotations

import numpy as np

from conformance.case.draw.example import Answers, Example
from conformance.compare.judges import Right
from conformance.compare.tolerance import Comparison, failed, odd_shape, subjects
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import not_finite, rounding_decides
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import or_else
from conformance.results.records.spent import Spending

NOT_FINITE = ("WrongNaN", "WrongInf")
"""The errors of outputs that are no numbers where PyTorch's are."""


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
        with Spending(self._seconds, "run"):
            return self.session.run(inputs)

    def judged(self, example: Example, got: list[Array]) -> Comparison:
        comparison = super().judged(example, got)
        left_open = comparison.error == "WrongShape" and rounding_decides(self, example, got)
        return Comparison("nothing") if left_open else comparison

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
