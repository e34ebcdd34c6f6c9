"""Who is at fault: the same model and input in other runtimes, and what their answers say together.

ONNX Runtime with its optimizer off, the ONNX specification's own evaluator and OpenVINO compute the model as the
exporter gave it. If one agrees with PyTorch, the model is right and the runtime is wrong; if all differ from
PyTorch, the model is wrong. What they leave open, the nodes of the model decide one by one (``verdict.walk``). Where
PyTorch in float64 agrees with the runtime against PyTorch in float32, it is PyTorch's float32 that is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conformance.arrays import Array
from conformance.compare.tolerance import Comparison
from conformance.errors import Stopped
from conformance.records.record import FLOAT64, Witness
from conformance.runtimes import Session, registry
from conformance.verdict.asking import Asked, ask
from conformance.verdict.example import Example, given
from conformance.verdict.loss import bears_out
from conformance.verdict.passes import Broken, guilty, right_without_reuse
from conformance.verdict.walk import decided, walk
from conformance.worker import aside

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


@dataclass
class Opinion:
    """Who is at fault, and on what evidence."""

    fault: str | None
    witnesses: list[Witness] = field(default_factory=list)
    conclusion: str | None = None
    """What the witnesses' answers leave open, or say of the fault; a name that ``records.text`` has the words for."""
    loss: Mapping[str, float | str] | None = None
    cause: Mapping[str, Any] | None = None
    parts_at: Mapping[str, str] | None = None
    """The node that the conclusion is about, as ``walk.Place``."""
    optimizer: Mapping[str, Any] | None = None
    """The pass of an optimizer that the conclusion is about, as ``passes.guilty``."""

    def onto(self, stop: Stopped) -> None:
        """Writes the opinion into the fields of a failure."""
        stop.fault = self.fault
        stop.fields |= {
            "witnesses": [witness.as_dict() for witness in self.witnesses],
            "conclusion": self.conclusion,
            "parts_at": self.parts_at,
            "loss": self.loss if bears_out(self.loss or {}, self.fault) else None,
            "cause": self.cause,
            "optimizer": self.optimizer,
        }


def find(suspect: Suspect, example: Example, stop: Stopped) -> Opinion:
    """Runs a failing example of an exported model elsewhere, and decides who is at fault."""
    witnesses = list(collect(suspect, example, stop))
    special = is_special(example, stop)
    fault, conclusion = decide(witnesses, suspect.runtime, stop.stage, own_code=False, special=special)
    if conclusion in ("differ", "nobody") and suspect.own_code():
        fault, conclusion = decide(witnesses, suspect.runtime, stop.stage, own_code=True, special=special)
    opinion = Opinion(fault, witnesses, conclusion)
    outcome = outcome_of(stop, example, suspect.judged)
    broken = Broken(suspect.model, suspect.libraries, example.inputs, suspect.config, outcome)
    asked_of = suspect.runtime == "onnxruntime" and stop.stage == "compare" and fault != "reference"
    if asked_of and right_without_reuse(broken):
        opinion.fault, opinion.conclusion = "runtime", "memory"
        return opinion
    if conclusion == "optimizer":
        opinion.optimizer = guilty(broken)
    _look_at_nodes(opinion, suspect, example, stop)
    return opinion


def _look_at_nodes(opinion: Opinion, suspect: Suspect, example: Example, stop: Stopped) -> None:
    """Adds to an opinion what the nodes show one by one, where ONNX Runtime fails without its optimizer too.

    What the whole model showed is taken back only where it was open, or guessed for want of other witnesses."""
    answers = {witness.runtime: witness.answer for witness in opinion.witnesses}
    damning = "wrong" if stop.stage == "compare" else "stops"
    if suspect.runtime != "onnxruntime" or answers.get("onnxruntime-unoptimized") != damning:
        return
    if stop.error in ("WrongCount", "WrongLength", "WrongDtype"):
        return
    try:
        walked = aside.ask(lambda: walk(suspect.model, suspect.libraries, example.inputs), WALK_SECONDS)
    except Exception:  # this only explains a failure, and must not be another
        return

    def fails(outputs: list[Array]) -> bool:
        arrays = _where_it_failed(stop, [np.asarray(output) for output in outputs], example.wanted)
        return suspect.judged(example, arrays).verdict == "failed"

    def confirmed(outputs: list[Array]) -> bool:
        return suspect.computed(example, outputs)

    special = is_special(example, stop) and not suspect.own_code()
    shown = decided(walked, fails, stop.stage, confirmed, special=special)
    if shown is None:
        return
    fault, conclusion, place = shown
    opinion.parts_at = place.as_dict() if place is not None else None
    if conclusion in ("rules", "invalid") or (conclusion == "nodes" and walked.count > 1):
        opinion.witnesses = list(map(_by_nodes, opinion.witnesses))
    agreeing = [witness.runtime for witness in opinion.witnesses if witness.answer in ("agrees", "nearer")]
    # one whose word counts for values alone shows no kernel to be right, but that the model may be
    agreed = any(fault == "exporter" or not registry.named(runtime).values_only for runtime in agreeing)
    if conclusion in ("rules", "invalid") or (fault is not None and not agreed):
        opinion.fault, opinion.conclusion = fault, conclusion
    elif opinion.fault is None and fault != "exporter":
        opinion.conclusion = conclusion
        if fault == "runtime":  # which those that agree with PyTorch say too
            opinion.fault = fault


def _by_nodes(witness: Witness) -> Witness:
    """The witness beside nodes that each compute what ONNX says, and wrong outputs together: a runtime of its own
    rules that agrees with PyTorch then has not computed the model. Of a single node it might have."""
    own_rules = witness.runtime != FLOAT64 and registry.named(witness.runtime).values_only
    return dataclasses.replace(witness, answer="strays") if own_rules and witness.answer == "agrees" else witness


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
        got = _in_dtypes_of(example.wanted, got)
    if suspect.judged(example, got).verdict != "failed":
        return Witness(runtime, "agrees")
    if stop.error == "WrongValue" and _nearer(suspect, example, stop, got):
        return Witness(runtime, "nearer")
    # With its own kernels a runtime is no second opinion, whatever it makes of the model without its optimizer.
    own = _kernels(runtime) == _kernels(suspect.runtime)
    if stop.stage == "compare" and not own and _differs(suspect, example, stop, got):
        return Witness(runtime, "otherwise")
    # Where the suspect stopped, the question is whether others can run the model, whatever values come out.
    return Witness(runtime, "wrong" if stop.stage == "compare" else "runs")


def is_special(example: Example, stop: Stopped) -> bool:
    """Return whether a failure is about NaN and infinities."""
    floats = [array for array in example.inputs.values() if array.dtype.kind == "f"]
    return stop.error in ("WrongNaN", "WrongInf") or not all(bool(np.isfinite(array).all()) for array in floats)


def decide(
    witnesses: Sequence[Witness], suspect: str, stage: str, own_code: bool, *, special: bool = False
) -> tuple[str | None, str | None]:
    """Who is at fault by the witnesses' answers (None: open), and the name of the conclusion, as in ``Opinion``.

    ``suspect`` is the runtime that failed at ``stage``; ``own_code`` is whether the export used code of the case's
    own; ``special`` whether it is about NaN and infinities, of which runtimes share what no rule asks for.
    """
    # That one whose word counts for values alone runs a model does not show that others have to.
    witnesses = [
        witness
        for witness in witnesses
        if stage == "compare" or witness.runtime == FLOAT64 or not registry.named(witness.runtime).values_only
    ]
    agreeing = [witness.runtime for witness in witnesses if witness.answer in ("agrees", "nearer")]
    if FLOAT64 in agreeing:
        return "reference", None
    # Where the suspect stopped, witnesses that stop too speak against the model; where its values are wrong, a
    # witness that stops says nothing about values.
    damning = ("wrong",) if stage == "compare" else ("stops",)
    against = [witness.runtime for witness in witnesses if witness.answer in damning]
    otherwise = [witness.runtime for witness in witnesses if witness.answer == "otherwise"]
    own = {_kernels(suspect)}
    if agreeing:
        others = {*map(_kernels, [*against, *otherwise])} - own
        if all(registry.named(runtime).values_only for runtime in agreeing) and others:
            return None, "open"
        if stage == "run" and "onnxruntime-unoptimized" in against:
            return None, "strictness"
        only_the_optimizer = _kernels(agreeing[0]) == suspect
        return "runtime", "optimizer" if only_the_optimizer else None
    if any(witness.answer == "runs" for witness in witnesses):
        return None, "open"
    others = {*map(_kernels, against)} - own
    if special and not own_code and others and all(registry.named(runtime).values_only for runtime in others):
        return None, "shared"
    # The suspect with its optimizer off still computes with its own kernels: its wrong answer is no second opinion.
    if not own_code and {*map(_kernels, against)} <= own:
        return None, "differ" if {*map(_kernels, otherwise)} - own else "nobody"
    return "exporter", None


Judged = Callable[[Example, list[Array]], Comparison]
"""Compares outputs with those that are right for an example."""


def outcome_of(stop: Stopped, example: Example, judged: Judged) -> Callable[[Asked], str]:
    """What an answer to the failing example shows: ``right``, ``alike`` where it fails as it did, or ``other``."""

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


def _kernels(runtime: str) -> str:
    """The runtime whose kernels a runtime computes with, which may be its own."""
    return registry.named(runtime).computes_with


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
    """Whether a witness that is off itself is far nearer to PyTorch than the suspect, at the output that failed.

    Of a wrong model both compute the same wrong values. A witness that adds up 4,096 numbers one by one is off for
    another reason than a runtime that rounds each of them to 10 bits.
    """
    worst = getattr(stop, "worst", None)
    if worst is None or suspect.session is None:
        return False
    try:
        own = suspect.session.run(example.inputs)[worst.output].astype(np.float64)
        right, other = example.wanted[worst.output].astype(np.float64), got[worst.output].astype(np.float64)
    except Exception:  # this only explains a failure, and must not be another
        return False
    if not own.shape == right.shape == other.shape or not np.isfinite([own, right, other]).all():
        return False
    return bool(np.abs(own - right).max(initial=0.0) > NEARER * np.abs(other - right).max(initial=0.0))


def _differs(suspect: Suspect, example: Example, stop: Stopped, got: list[Array]) -> bool:
    """Whether a witness that is wrong has other outputs than the suspect, so that not both of them compute what the
    model means. Where the failure is about their dtypes or shapes, so is this."""
    if suspect.session is None:
        return False
    try:
        own = _where_it_failed(stop, list(suspect.session.run(example.inputs)), example.wanted)
        if stop.error in ("WrongDtype", "WrongShape"):
            return [_form(stop.error, array) for array in own] != [_form(stop.error, array) for array in got]
        beside = given(example.draw, example.inputs, own, None, None, ())
        return suspect.judged(beside, got).verdict == "failed"
    except Exception:  # this only explains a failure, and must not be another
        return False


def _form(error: str, array: Array) -> Any:
    return array.dtype if error == "WrongDtype" else array.shape


def _in_dtypes_of(wanted: list[Array], got: list[Array]) -> list[Array]:
    """``got`` in the dtypes that are wanted, where they are numbers of the same kind."""
    if len(got) != len(wanted):
        return got
    return [
        array.astype(right.dtype) if array.dtype.kind == right.dtype.kind or right.dtype.kind in "iu" else array
        for array, right in zip(got, wanted, strict=True)
    ]


def _agrees_with_float64(suspect: Suspect, example: Example, exact: list[Array]) -> bool:
    """Whether the suspect gives PyTorch's float64 outputs, rounded to the dtypes that are compared."""
    if suspect.session is None or len(exact) != len(example.wanted):
        return False
    try:
        got = suspect.session.run(example.inputs)
    except Exception:
        return False
    rounded = [output.astype(right.dtype) for output, right in zip(exact, example.wanted, strict=True)]
    in_float64 = given(example.draw, example.inputs, rounded, None, None, ())
    return suspect.judged(in_float64, got).verdict != "failed"


def shown(inputs: Mapping[str, Array]) -> dict[str, str]:
    """Each input in a few words, with its values where they are few enough to read."""
    return {name: _text(array) for name, array in inputs.items()}


def _text(array: Array) -> str:
    if array.size <= 12:
        return f"{array.dtype} {array.tolist()}"
    head = f"{array.dtype}{list(array.shape)}"
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    spread = f" from {finite.min()} to {finite.max()}" if finite.size else ""
    return head + spread + "".join(f", {name} at {place}" for name, place in _odd(array))


def _odd(array: Array) -> Iterator[tuple[str, list[int]]]:
    """Yield the first place of NaN and of each infinity, and how many more there are of it."""
    if array.dtype.kind != "f":
        return
    for name, found in (("NaN", np.isnan(array)), ("inf", np.isposinf(array)), ("-inf", np.isneginf(array))):
        places = np.argwhere(found)
        if len(places):
            more = f"{len(places)} times {name}, first" if len(places) > 1 else name
            yield more, places[0].tolist()
