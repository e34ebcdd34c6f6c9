"""Explaining a failure: does it come again, what is the smallest example that shows it, who is at fault."""

from __future__ import annotations

import dataclasses
import time

from conformance.arrays import Inputs
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.checks.witnesses import whom_to_ask
from conformance.draw.draw import seed_of
from conformance.draw.shapes import shrink
from conformance.draw.simplest import simplest
from conformance.errors import Stopped
from conformance.export.model_store import Stored
from conformance.plan.expected import fails_as_declared
from conformance.verdict.comparer import Explainer
from conformance.verdict.example import Example

SHRINK_SECONDS = 20.0
"""How long to look for a smaller example; then the smallest so far is shown, which for a slow model may be large."""


class CaseExplainer(Explainer):
    """Explains failures of a cell whose case is at hand, by the smallest example that shows them."""

    def __init__(self, run: CellRun, verify: Verifier, stored: Stored, converted: Stored | None) -> None:
        """``stored`` is the exported model of the cell, ``converted`` what became of it at another precision."""
        super().__init__(run.record, verify, whom_to_ask(run, verify, stored, converted))
        self._settings, self._verify, self._dims = run.settings, verify, run.dims()
        verify.expects = self.is_declared

    def is_put_off(self, stop: Stopped) -> bool:
        return self._settings.explain == "later" and not self.is_declared(stop)

    def clearest(self, example: Example, stop: Stopped) -> tuple[Example, Stopped]:
        self._verify.tell(stop, example)
        return (example, stop) if self.is_declared(stop) else self._smallest(example, stop)

    def blamed(self, example: Example, stop: Stopped) -> Stopped:
        self._verify.tell(stop, example)
        super().blamed(example, stop)
        self._verify.tell(stop, example)
        if stop.fault == "exporter" and not stop.details.get("unexplained"):
            stop.details["own_code"] = self._verify.cell.own_code
        return stop

    def is_declared(self, stop: Stopped) -> bool:
        """Return whether the case says that the whole cell fails like this."""
        return fails_as_declared(self._verify.cell, self._settings.instructions, stop.stage, stop.error, stop.reason)

    def _smallest(self, example: Example, stop: Stopped) -> tuple[Example, Stopped]:
        """The smallest shape, by bisection, and then the simplest values with the same failure."""
        deadline = time.monotonic() + SHRINK_SECONDS
        smallest: dict[frozenset[tuple[str, int]], tuple[Example, Stopped]] = {}
        """By sizes, in whatever order these come: a kept draw has its dims in another one than the case."""

        def fails_alike(variant: Example) -> Stopped | None:
            if time.monotonic() > deadline:
                return None
            failure = self.failure(variant)
            alike = failure is not None and (failure.stage, failure.error) == (stop.stage, stop.error)
            return failure if alike else None

        def fails(sizes: dict[str, int]) -> bool:
            # Other sizes have other values, so a failure of few values may need more than one try.
            for seed in (example.draw.seed, seed_of("smaller", 1), seed_of("smaller", 2)):
                smaller = self._verify.example(dataclasses.replace(example.draw, dims=sizes, seed=seed))
                failure = fails_alike(smaller)
                if failure is not None:
                    smallest[frozenset(sizes.items())] = (smaller, failure)
                    return True
            return False

        sizes = shrink(self._dims, example.draw.dims, fails)
        clearest = smallest.get(frozenset(sizes.items()), (example, stop))
        draw = clearest[0].draw
        if stop.stage == "declare":
            return clearest

        def still(inputs: Inputs) -> bool:
            nonlocal clearest
            simpler = self._verify.example(draw, inputs)
            failure = fails_alike(simpler)
            if failure is None:
                return False
            clearest = (simpler, failure)
            return True

        simplest(self._verify.cell.case, draw.dims, clearest[0].inputs, still)
        return clearest
