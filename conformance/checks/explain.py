"""Explaining a failure: does it come again, what is the smallest example that shows it, who is at fault."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from conformance.arrays import Inputs
from conformance.case.dims import Dims
from conformance.checks.verify import Verifier, WrongAnswer
from conformance.compare.tolerance import Worst
from conformance.draw.draw import Draw, seed_of
from conformance.draw.shapes import shrink
from conformance.draw.simplest import simplest
from conformance.errors import Stopped
from conformance.plan.expected import declared, on_host, shows
from conformance.plan.settings import Settings
from conformance.records.record import Record
from conformance.verdict import blame

SHRINK_SECONDS = 20.0
"""How long to look for a smaller example; a slow model is shown with the one that was found."""


Ask = Callable[[Stopped, Inputs], blame.Opinion]


class Explainer:
    """Explains failures of one cell and notes the example in its record."""

    def __init__(self, settings: Settings, record: Record, verify: Verifier, dims: Dims, ask: Ask) -> None:
        """``ask`` finds out who is at fault for a failure with given inputs."""
        self._record, self._verify, self._dims, self._ask = record, verify, dims, ask
        self._declared = on_host(declared(verify.cell), settings.instructions)
        self.shown: Inputs | None = None
        """The inputs of the failure that was explained."""

    def __call__(self, draw: Draw, stop: Stopped) -> Stopped:
        """The failure of ``draw`` at its smallest example, with its fault and what to look at."""
        again = self._failure(draw)
        if again is None:
            text = f"failed once and not again with the same input: {stop.reason}"
            return Stopped(stop.stage, "NotRepeatable", text, "runtime")
        inputs: Inputs | None = None
        if not self.is_declared(again):
            draw, again, inputs = self._smallest(draw, again)
        if isinstance(again, WrongAnswer) and again.worst is not None:
            self._record.worst = worst_dict(again.worst, draw)
        self._record.draw = draw.as_dict()
        if again.stage == "declare":
            return again
        return self.blamed(again, self._verify.inputs(draw) if inputs is None else inputs)

    def blamed(self, stop: Stopped, inputs: Inputs) -> Stopped:
        """The failure with the fault that the other runtimes' answers point at, and the inputs."""
        self.shown = inputs
        opinion = self._ask(stop, inputs)
        stop.fault = opinion.fault
        stop.details += opinion.lines
        own = self._own_code()
        if stop.fault == "exporter" and own:
            stop.details.append(f"the export used the case's own {', '.join(own)}: look there first")
        stop.details += blame.show(inputs)
        return stop

    def _own_code(self) -> list[str]:
        cell = self._verify.cell
        used = cell.case.says.export.exporters[cell.exporter].own_code()
        return [function if name == function else f"{function} for {name}" for name, function in used.items()]

    def is_declared(self, stop: Stopped) -> bool:
        """Whether the case says that the whole cell fails like this."""
        return any(
            shows(entry, stop.stage, stop.error, stop.reason)
            for entry in self._declared
            if not entry.when.only_some_draws
        )

    def _failure(self, draw: Draw, inputs: Inputs | None = None) -> Stopped | None:
        try:
            self._verify.run(self._verify.inputs(draw) if inputs is None else inputs, draw)
        except Stopped as stop:
            return stop
        return None

    def _smallest(self, draw: Draw, stop: Stopped) -> tuple[Draw, Stopped, Inputs | None]:
        """The smallest shape, by Hypothesis, and then the simplest values with the same failure."""
        deadline = time.monotonic() + SHRINK_SECONDS
        found: dict[str, tuple[Draw, Stopped]] = {}

        def same(other: Stopped | None) -> bool:
            return other is not None and (other.stage, other.error) == (stop.stage, stop.error)

        def fails(sizes: dict[str, int]) -> bool:
            # Other sizes have other values, so a failure of few values may need more than one try.
            for seed in (draw.seed, seed_of("smaller", 1), seed_of("smaller", 2)):
                if time.monotonic() > deadline:
                    return False
                smaller = dataclasses.replace(draw, dims=sizes, seed=seed)
                other = self._failure(smaller)
                if other is not None and same(other):
                    found[str(sizes)] = (smaller, other)
                    return True
            return False

        sizes = shrink(self._dims, draw.dims, fails)
        draw, stop = found.get(str(sizes), (draw, stop))
        if stop.stage == "declare":
            return draw, stop, None

        def still(inputs: Inputs) -> bool:
            return time.monotonic() < deadline and same(self._failure(draw, inputs))

        inputs = simplest(self._verify.cell.case, draw.dims, self._verify.inputs(draw), still)
        last = self._failure(draw, inputs)
        return (draw, last, inputs) if last is not None and same(last) else (draw, stop, None)


def worst_dict(worst: Worst, draw: Draw) -> dict[str, Any]:
    """The worst element as it goes into a record."""
    return {**dataclasses.asdict(worst), "index": list(worst.index), "dims": dict(draw.dims)}
