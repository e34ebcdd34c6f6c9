"""The examples of a cell one after another: counting them, and explaining the first that fails; in the suite and in a
replay alike."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from conformance.compare.tolerance import Comparison, Worst, subjects
from conformance.compare.vacuity import Vacuity
from conformance.errors import Stopped
from conformance.records.explanation import Explanation, blame, unexplained
from conformance.records.record import FLOAT64, Record
from conformance.verdict.blame import shown
from conformance.verdict.comparer import Comparer, Outcome, WrongAnswer
from conformance.verdict.example import Draw, Example, given

Ask = Callable[[Stopped, Example], Explanation]
"""Finds out who is at fault for a failing example."""


def tried(
    record: Record,
    outcomes: Iterable[tuple[Example, Outcome]],
    explain: Callable[[Example, Stopped], Stopped],
) -> Iterator[tuple[Example, Comparison]]:
    """Counts the examples in the record, of which ``Comparer.each`` gives the ``outcomes``; raises the first failure
    as ``explain`` gives it back."""
    for example, outcome in outcomes:
        if isinstance(outcome, Stopped):
            raise explain(example, outcome) from outcome
        count(record, example.draw, outcome)
        yield example, outcome


class Explainer:
    """Explains failures of one cell and notes the example in its record."""

    def __init__(self, record: Record, comparer: Comparer, ask: Ask) -> None:
        self.record, self._comparer, self._ask = record, comparer, ask
        self.example: Example | None = None
        """The failing example that was explained, or will be."""

    def is_put_off(self, stop: Stopped) -> bool:
        """Return whether this failure is explained after all verdicts, or only where somebody wants to know."""
        return False

    def __call__(self, example: Example, stop: Stopped) -> Stopped:
        """The failure of an example that is run again, with its fault; NotRepeatable where it does not fail again."""
        example = self._comparer.again(example)
        again = self.failure(example)
        if again is None:
            text = f"failed once and not again with the same input: {stop.reason}"
            return Stopped(stop.stage, "NotRepeatable", text, "runtime")
        if not self.is_put_off(again):
            example, again = self.clearest(example, again)
        if isinstance(again, WrongAnswer) and again.worst is not None:
            self.record.worst = worst_dict(again.worst, example.draw)
        self.record.draw = example.draw.as_dict()
        return again if again.stage == "declare" else self.blamed(example, again)

    def clearest(self, example: Example, stop: Stopped) -> tuple[Example, Stopped]:
        """The example to show for a failure, with its own failure."""
        return example, stop

    def witnessed(self, stop: Stopped, example: Example) -> Explanation:
        """The other runtimes' answers to an example, held to the ordinary tolerance: float64 excuses nothing."""
        plain = given(example.draw, example.inputs, example.wanted, None, None, ())
        found = self._ask(stop, plain)
        others = tuple(witness for witness in found.witnesses if witness.runtime != FLOAT64)
        return dataclasses.replace(found, witnesses=others)

    def failure(self, example: Example) -> Stopped | None:
        """Return how the example fails; None where it does not."""
        try:
            self._comparer.run(example)
        except Stopped as stop:
            return stop
        return None

    def blamed(self, example: Example, stop: Stopped) -> Stopped:
        """The failure with the fault that the other runtimes' answers point at, and the inputs."""
        self.example = example
        if self.is_put_off(stop):
            return unexplained(stop)
        blame(stop, self._ask(stop, example))
        stop.details["inputs"] = shown(example.inputs)
        return stop


# ---- counting ------------------------------------------------------------------------------------------------


def count(record: Record, draw: Draw, comparison: Comparison) -> None:
    """Counts an example that did not fail in the record, which keeps the largest error of all."""
    record.examples += comparison.verdict == "verified"
    record.ill_conditioned += comparison.verdict == "ill-conditioned"
    record.nothing += comparison.verdict == "nothing"
    record.excused += comparison.excused
    for name, rows in (comparison.rows or {}).items():
        record.rows = {**(record.rows or {}), name: (record.rows or {}).get(name, 0) + rows}
    worst = comparison.worst
    if comparison.verdict != "verified" or worst is None:
        return
    record.histogram = counted(record.histogram, worst.ratio)
    if record.worst is None or worst.ratio > float(record.worst["ratio"]):
        record.worst, record.draw = worst_dict(worst, draw), draw.as_dict()


def worst_dict(worst: Worst, draw: Draw) -> Any:
    """The worst element as it goes into a record."""
    told = dataclasses.asdict(worst)
    del told["together"]
    if (called := told.pop("called")) is not None:
        told["output"] = called
    return {**told, "index": list(worst.index), "dims": dict(draw.dims)}


EDGES = list(range(-6, 4))
"""Powers of ten between which the largest errors of examples are counted, relative to what is allowed."""


def counted(histogram: dict[str, list[float]] | None, ratio: float) -> dict[str, list[float]]:
    """The histogram with one more example; what is beyond its ends counts in the outermost bins."""
    histogram = histogram or {"edges": [*EDGES], "counts": [0] * (len(EDGES) - 1)}
    power = math.floor(math.log10(ratio)) if 0 < ratio < math.inf else (EDGES[0] if ratio <= 0 else EDGES[-1])
    histogram["counts"][min(max(power - EDGES[0], 0), len(EDGES) - 2)] += 1
    return histogram


def check_not_vacuous(record: Record, vacuity: Vacuity, excused: Collection[int], hints: Sequence[str] = ()) -> None:
    """Stopped where wrong outputs would have passed all examples; outputs in ``excused`` may be so."""
    called = subjects(len(vacuity), tuple(record.outputs))
    for output, wrong in vacuity.findings().items():
        if output not in excused:
            passes = f"{' and '.join(wrong)} would have passed every one of {record.examples} examples"
            stop = Stopped("compare", "Vacuous", f"{called[output]}: {passes}", "case")
            stop.details = {"hints": list(hints), "vacuous": {"output": output, "passes": wrong}}
            raise stop
