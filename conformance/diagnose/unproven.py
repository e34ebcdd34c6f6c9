"""Explaining a cell whose examples prove nothing: what its outputs are like, and what to try first."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable

from conformance.case.draw.example import Example, given
from conformance.compare.excuses import own_error
from conformance.compare.tolerance import Worst
from conformance.judge.comparer import WrongAnswer
from conformance.judge.red_cell import RedCell
from conformance.judge.remedy import Remedies, Remedy
from conformance.process.errors import Details, Stopped
from conformance.results.records.explanation import Explanation, Shows, add, blame, reconsider
from conformance.results.records.record import FLOAT64, Witness
from conformance.results.records.record_types import Conditioning

Ask = Callable[[Stopped, Example], Explanation]
"""Finds out who is at fault for a failing example."""


def explain_ill_conditioned(red: RedCell, ask: Ask) -> None:
    """Explain an ill-conditioned draw of values that the case declares.

    Where another runtime agrees with PyTorch by the ordinary tolerance, it is open whether this one is wrong: float64
    says no more than that rounding could explain it.
    """
    stop, example = red.stop, red.example
    assert isinstance(stop, WrongAnswer) and example is not None
    worst = stop.worst
    found = reconsider(_by_ordinary_tolerance(stop, example, ask), Shows("ill-conditioned"))
    if worst is not None and isinstance(worst.wanted, int):
        found = reconsider(found, Shows("ties"))
    if worst is None:
        blame(stop, found, {"conditioning": {"sizes": [*red.sizes]}, "hints": ["conditioning"]})
        return
    slack = worst.error / worst.ratio if 0 < worst.ratio < math.inf else 0.0
    remedy: Remedy | None = None
    with contextlib.suppress(Stopped):  # advice is no further failure
        remedy = _remedies(red).tolerance(slack, worst.output)
    conditioning: Conditioning = {**_in_float64(example, worst), "sizes": [*red.sizes]}
    hints = [] if remedy else ["conditioning"]
    blame(stop, found, {"conditioning": conditioning, "remedy": remedy, "hints": hints})


def _by_ordinary_tolerance(stop: Stopped, example: Example, ask: Ask) -> Explanation:
    """The other runtimes' answers to an example, held to the ordinary tolerance: float64 excuses nothing."""
    found = ask(stop, given(example.draw, example.inputs, example.wanted, None, None, ()))
    others = tuple(witness for witness in found.witnesses if witness.runtime != FLOAT64)
    return dataclasses.replace(found, witnesses=others)


def _in_float64(example: Example, worst: Worst) -> Conditioning:
    """Return what float64 gives for the element, and how far PyTorch's float32 is off in its output at most."""
    if example.exact is None or worst.output >= len(example.exact):
        return {"sizes": []}
    wanted, exact = example.wanted[worst.output], example.exact[worst.output]
    if wanted.shape != exact.shape:
        return {"sizes": []}
    own = own_error(wanted, exact) if wanted.dtype.kind == "f" else None
    return {"float64": exact[worst.index].item(), "own": own, "sizes": []}


def explain_nothing(red: RedCell, ask: Ask) -> None:
    """Say why no example verified anything."""
    remedy: Remedy | None = None
    with contextlib.suppress(Stopped):  # advice is no further failure
        remedy = _remedies(red).of_nothing()
    add(red.stop, _why_nothing(red), {"remedy": remedy})


def _why_nothing(red: RedCell) -> Details:
    verify = red.of.verify
    first = verify.inputs(red.of.draws.first())
    missing = None if verify.reference.oracle(first) else verify.reference.oracle_missing
    if verify.cell.check == "specials":
        return {"hints": ["specials"]}
    if missing:
        return {"witnesses": [Witness(FLOAT64, "abstains", reason=missing).as_dict()]}
    return {"hints": ["rounding"]}


def explain_vacuous(red: RedCell, ask: Ask) -> None:
    """Say what a vacuous output is like."""
    about = red.stop.details["vacuous"]
    with contextlib.suppress(Stopped):  # advice is no further failure
        remedies = _remedies(red)
        told: Details = {"vacuous": {**about, "fact": remedies.fact(about["output"])}}
        add(red.stop, told, {"remedy": remedies.of_vacuous(about["output"], red.vacuous), "hints": []})


def _remedies(red: RedCell) -> Remedies:
    return Remedies(red.of.verify, list(red.of.draws))


UNPROVEN = {"IllConditioned": explain_ill_conditioned, "NothingVerified": explain_nothing, "Vacuous": explain_vacuous}
"""By the name of the error, who explains it."""
