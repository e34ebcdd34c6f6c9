"""Ask who is at fault: the same model and input in other runtimes. ``results.records.explanation`` says what follows.

ONNX Runtime with its optimizer off, the ONNX specification's own evaluator and OpenVINO compute the model as the
exporter gave it. If one agrees with PyTorch, the model is right and the runtime is wrong; if all differ from
PyTorch, the model is wrong. What they leave open, the nodes of the model decide one by one (``node_walk``). Where
PyTorch in float64 agrees with the runtime against PyTorch in float32, it is PyTorch's float32 that is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from conformance.case.draw.example import Example, given
from conformance.compare.tolerance import Comparison
from conformance.diagnose.nodes.guilty_pass import Broken, guilty, right_without_reuse
from conformance.diagnose.nodes.node_walk import NodePlace, decided, walk
from conformance.diagnose.nodes.other_runtime import Asked, ask
from conformance.process.arrays import Array, in_dtype_of
from conformance.process.errors import Details, Stopped, or_else
from conformance.process.worker import aside
from conformance.results.records.explanation import (
    Explanation,
    Finding,
    NodeByNode,
    Shows,
    UnexplainedFailure,
    explain,
    kernels,
)
from conformance.results.records.record import FLOAT64, Witness
from conformance.runtimes import Session, registry

WALK_SECONDS = 60.0
"""How long the nodes of a model may be looked at one by one."""


@dataclass(frozen=True)
class Suspect:
    """A runtime with the exported model that it runs, and what judges outputs."""

    runtime: str
    model: Path
    libraries: Sequence[str]
    judged: Callable[[Example, list[Array]], Comparison]
    """Compares outputs with those that are right for an example, whichever runtime they are from: a witness is
    allowed what the suspect is."""
    session: Session | None
    """The runtime with the model loaded; None where it could not be."""
    own_code: Callable[[], bool]
    """Says whether the export used code of the case's own, which may take an export to find out."""
    config: Mapping[str, str] = field(default_factory=dict)
    """ONNX Runtime's session options."""
    computed: Callable[[Example, list[Array]], bool] = lambda *_: False
    """Whether PyTorch computes these values on its way through an example."""
    unsaid: Callable[..., NodePlace | None] = lambda *_: None
    """The node of which ONNX does not say what comes of NaN, as ``nodes.unsaid.unsaid`` finds it."""


@dataclass(frozen=True)
class Inquiry:
    """The findings about a failure so far."""

    failure: UnexplainedFailure
    findings: tuple[Finding, ...] = ()
    details: Details = field(default_factory=Details)

    def plus(self, *findings: Finding, details: Details | None = None) -> Inquiry:
        """Return the inquiry with what else was found."""
        return Inquiry(self.failure, (*self.findings, *findings), {**self.details, **(details or {})})

    def explained(self) -> Explanation:
        """Say what follows from it."""
        return explain(self.failure, self.findings, self.details)


def find(suspect: Suspect, example: Example, stop: Stopped) -> Inquiry:
    """Run a failing example of an exported model elsewhere, as far as that shows who is at fault."""
    failure = UnexplainedFailure(stop.stage, None, suspect.runtime, special=is_special(example, stop))
    inquiry = Inquiry(failure, (*collect(suspect, example, stop),))
    if (nowhere_said := _unsaid(suspect, example, stop)) is not None:
        return inquiry.plus(nowhere_said)
    if inquiry.explained().conclusion in ("differ", "nobody") and suspect.own_code():
        inquiry = dataclasses.replace(inquiry, failure=dataclasses.replace(failure, own_code=True))
    found = inquiry.explained()
    broken = Broken(
        suspect.model, suspect.libraries, example.inputs, suspect.config, outcome_of(stop, example, suspect.judged)
    )
    asked_of = suspect.runtime == "onnxruntime" and stop.stage in ("run", "compare") and found.fault != "reference"
    if asked_of and right_without_reuse(
        _with_right_values(broken, suspect, example) if stop.stage == "run" else broken
    ):
        return inquiry.plus(Shows("memory"))
    if found.conclusion == "optimizer":
        inquiry = inquiry.plus(details={"optimizer": guilty(broken)})
    shown = _look_at_nodes(found, suspect, example, stop)
    return inquiry if shown is None else inquiry.plus(shown)


def _look_at_nodes(found: Explanation, suspect: Suspect, example: Example, stop: Stopped) -> NodeByNode | None:
    """Return what the nodes show one by one, where ONNX Runtime fails without its optimizer too."""
    answers = {witness.runtime: witness.answer for witness in found.witnesses}
    damning = "wrong" if stop.stage == "compare" else "stops"
    if suspect.runtime != "onnxruntime" or answers.get("onnxruntime-unoptimized") != damning:
        return None
    if stop.error in ("WrongCount", "WrongLength", "WrongDtype"):
        return None
    worst = getattr(stop, "worst", None)
    failing = () if worst is None else (worst.output, *worst.together)
    walked = or_else(
        None, lambda: aside.ask(lambda: walk(suspect.model, suspect.libraries, example.inputs, failing), WALK_SECONDS)
    )
    if walked is None:
        return None

    def fails(outputs: list[Array]) -> bool:
        arrays = _where_it_failed(stop, [np.asarray(output) for output in outputs], example.wanted)
        return suspect.judged(example, arrays).verdict == "failed"

    special = is_special(example, stop) and not suspect.own_code()
    return decided(walked, fails, stop.stage, partial(suspect.computed, example), special=special)


def _unsaid(suspect: Suspect, example: Example, stop: Stopped) -> NodeByNode | None:
    """Return the node of which ONNX does not say what comes of NaN, where nothing else is wrong."""
    session = suspect.session
    if session is None or stop.error not in ("WrongNaN", "WrongInf", "WrongValue") or not is_special(example, stop):
        return None

    def right(outputs: list[Array]) -> bool:
        return suspect.judged(example, in_dtypes_of(example.wanted, outputs)).verdict != "failed"

    def asked() -> NodePlace | None:
        got = in_dtypes_of(example.wanted, session.run(example.inputs))  # here, as its threads are of this process
        ask = partial(suspect.unsaid, suspect.model, example.inputs, got, example.wanted, right)
        return aside.ask(ask, WALK_SECONDS)

    place = or_else(None, asked)
    return None if place is None else NodeByNode("unsaid", place.as_dict())


def collect(suspect: Suspect, example: Example, stop: Stopped) -> Iterator[Witness]:
    """The answers of the witnesses, up to the first that agrees with PyTorch, or in float64 with the suspect."""
    if example.exact is None and stop.stage == "compare":
        yield Witness(FLOAT64, "abstains")
    if example.exact is not None and _agrees_with_float64(suspect, example, example.exact):
        yield Witness(FLOAT64, "agrees")
        return
    for runtime in registry.second_opinions(suspect.runtime):
        witness = _ask(runtime.name, suspect, example, stop)
        yield witness
        if witness.answer == "agrees":
            return


def _ask(runtime: str, suspect: Suspect, example: Example, stop: Stopped) -> Witness:
    """The answer of another runtime that runs the suspect's model on the failing example."""
    if registry.named(runtime).values_only and stop.error == "WrongDtype":
        return Witness(runtime, "abstains", reason="its dtypes are its own")
    asked = ask(runtime, suspect.model, suspect.libraries, example.inputs, suspect.config)
    if asked.outputs is None:
        return asked.witness(runtime)
    got = _where_it_failed(stop, asked.outputs, example.wanted)
    if registry.named(runtime).values_only:
        got = in_dtypes_of(example.wanted, got)
    if suspect.judged(example, got).verdict != "failed":
        return Witness(runtime, "agrees")
    if stop.error == "WrongValue" and _nearer(suspect, example, stop, got):
        return Witness(runtime, "nearer")
    # With its own kernels a runtime is no second opinion, whatever it makes of the model without its optimizer.
    own = kernels(runtime) == kernels(suspect.runtime)
    if stop.stage == "compare" and not own and _differs(suspect, example, stop, got):
        return Witness(runtime, "otherwise")
    # Where the suspect stopped, the question is whether others can run the model, whatever values come out.
    return Witness(runtime, "wrong" if stop.stage == "compare" else "runs")


def is_special(example: Example, stop: Stopped) -> bool:
    """Return whether a failure is about NaN and infinities."""
    floats = [array for array in example.inputs.values() if array.dtype.kind == "f"]
    return stop.error in ("WrongNaN", "WrongInf") or not all(bool(np.isfinite(array).all()) for array in floats)


Judged = Callable[[Example, list[Array]], Comparison]
"""Compares outputs with those that are right for an example."""


def outcome_of(stop: Stopped, example: Example, judged: Judged) -> Callable[[Asked], str]:
    """Return what an answer to the failing example shows: ``right``, ``alike`` where it fails as it did, or
    ``other``."""

    def outcome(asked: Asked) -> str:
        if asked.outputs is None:
            stops_alike = stop.stage != "compare" and (asked.answer, asked.error) == ("stops", stop.error)
            return "alike" if stops_alike else "other"
        if stop.stage != "compare":
            return "right"
        comparison = judged(example, _where_it_failed(stop, asked.outputs, example.wanted))
        if comparison.verdict != "failed":
            return "right"
        return "alike" if comparison.error == stop.error else "other"

    return outcome


def _with_right_values(broken: Broken, suspect: Suspect, example: Example) -> Broken:
    """Return a model that has stopped, for which it does not suffice to run."""

    def outcome(asked: Asked) -> str:
        wrong = asked.outputs is not None and suspect.judged(example, asked.outputs).verdict == "failed"
        return "other" if wrong else broken.outcome(asked)

    return dataclasses.replace(broken, outcome=outcome)


def _where_it_failed(stop: Stopped, got: list[Array], wanted: list[Array]) -> list[Array]:
    """``got`` at the output that failed and what is right elsewhere: other outputs may be wrong for other reasons."""
    worst = getattr(stop, "worst", None)
    if worst is None or len(got) != len(wanted):
        return got
    failing = {worst.output, *worst.together}
    return [array if output in failing else wanted[output] for output, array in enumerate(got)]


NEARER = 10.0
"""How many times nearer to PyTorch a witness has to be than the suspect, to be no witness of the same wrong model."""


def _nearer(suspect: Suspect, example: Example, stop: Stopped, got: list[Array]) -> bool:
    """Return whether a witness that is off itself is far nearer to PyTorch than the suspect, at the output that
    failed.

    Of a wrong model both compute the same wrong values. A witness that adds up 4,096 numbers one by one is off for
    another reason than a runtime that rounds each of them to 10 bits.
    """
    worst, session = getattr(stop, "worst", None), suspect.session
    if worst is None or session is None or example.wanted[worst.output].dtype.kind == "U":
        return False

    def in_float64() -> list[Array]:
        outputs = (session.run(example.inputs), example.wanted, got)
        return [arrays[worst.output].astype(np.float64) for arrays in outputs]

    arrays = or_else(None, in_float64)
    if arrays is None:
        return False
    own, right, other = arrays
    if not own.shape == right.shape == other.shape or not np.isfinite([own, right, other]).all():
        return False
    return bool(np.abs(own - right).max(initial=0.0) > NEARER * np.abs(other - right).max(initial=0.0))


def _differs(suspect: Suspect, example: Example, stop: Stopped, got: list[Array]) -> bool:
    """Return whether a witness that is wrong has other outputs than the suspect, so that not both of them compute
    what the model means. Where the failure is about their dtypes or shapes, so is this."""
    session = suspect.session
    if session is None:
        return False

    def differs() -> bool:
        own = _where_it_failed(stop, list(session.run(example.inputs)), example.wanted)
        if stop.error in ("WrongDtype", "WrongShape"):
            return [_form(stop.error, array) for array in own] != [_form(stop.error, array) for array in got]
        beside = given(example.draw, example.inputs, own, None, None, ())
        return suspect.judged(beside, got).verdict == "failed"

    return or_else(False, differs)


def _form(error: str, array: Array) -> object:
    return array.dtype if error == "WrongDtype" else array.shape


def in_dtypes_of(wanted: list[Array], got: list[Array]) -> list[Array]:
    """``got`` in the dtypes that are wanted, where they are numbers of the same kind."""
    if len(got) != len(wanted):
        return got
    return [
        in_dtype_of(right, array) if array.dtype.kind == right.dtype.kind or right.dtype.kind in "iu" else array
        for array, right in zip(got, wanted, strict=True)
    ]


def _agrees_with_float64(suspect: Suspect, example: Example, exact: list[Array]) -> bool:
    """Return whether the suspect gives PyTorch's float64 outputs, rounded to the dtypes that are compared."""
    session = suspect.session
    if session is None or len(exact) != len(example.wanted):
        return False
    got = or_else(None, lambda: session.run(example.inputs))
    if got is None:
        return False
    rounded = [in_dtype_of(right, output) for output, right in zip(exact, example.wanted, strict=True)]
    in_float64 = given(example.draw, example.inputs, rounded, None, None, ())
    return suspect.judged(in_float64, got).verdict != "failed"
