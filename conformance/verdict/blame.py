"""Who is at fault: the same model and input in other runtimes, and what their answers say together.

ONNX Runtime with its optimizer off and the ONNX specification's own evaluator compute the model as the
exporter gave it. If either agrees with PyTorch, the model is right and the runtime is wrong; if both differ
from PyTorch, the model is wrong. Where PyTorch in float64 agrees with the runtime against PyTorch in float32,
it is PyTorch's float32 that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.arrays import Array
from conformance.compare.tolerance import Comparison
from conformance.errors import Stopped, Unavailable
from conformance.records.record import FLOAT64, Witness
from conformance.runtimes import Session, opener, registry
from conformance.verdict.example import Example, given


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
    own_code: bool
    """Whether the export used code of the case's own."""
    config: Mapping[str, str] = field(default_factory=dict)
    """ONNX Runtime's session options."""


@dataclass
class Opinion:
    """Who is at fault, and on what evidence."""

    fault: str | None
    witnesses: list[Witness] = field(default_factory=list)
    conclusion: str | None = None
    """What the witnesses' answers leave open, or say of the fault; a name that ``records.text`` has the words for."""
    loss: Mapping[str, float | str] | None = None
    cause: Mapping[str, Any] | None = None

    def onto(self, stop: Stopped) -> None:
        """Writes the opinion into the fields of a failure."""
        stop.fault = self.fault
        stop.fields |= {
            "witnesses": [witness.as_dict() for witness in self.witnesses],
            "conclusion": self.conclusion,
            "loss": self.loss,
            "cause": self.cause,
        }


def find(suspect: Suspect, example: Example, stop: Stopped) -> Opinion:
    """Runs a failing example of an exported model elsewhere, and decides who is at fault."""
    witnesses = list(collect(suspect, example, stop))
    fault, conclusion = decide(witnesses, suspect.runtime, stop.stage, suspect.own_code)
    return Opinion(fault, witnesses, conclusion)


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
    try:
        with opener(runtime, config=suspect.config)(suspect.model, suspect.libraries) as session:
            got = session.run(example.inputs)
    except (Unavailable, ImportError) as reason:
        return Witness(runtime, "abstains", reason=str(reason))
    except Exception as error:
        return Witness(runtime, "stops", type(error).__name__)
    got = _where_it_failed(stop, got, example.wanted)
    if suspect.judged(example, got).verdict != "failed":
        return Witness(runtime, "agrees")
    # Where the suspect stopped, the question is whether others can run the model, whatever values come out.
    return Witness(runtime, "wrong" if stop.stage == "compare" else "runs")


def decide(witnesses: Sequence[Witness], suspect: str, stage: str, own_code: bool) -> tuple[str | None, str | None]:
    """Who is at fault by the witnesses' answers (None: open), and the name of the conclusion, as in ``Opinion``.

    ``suspect`` is the runtime that failed at ``stage``; ``own_code`` is whether the export used code of the case's
    own.
    """
    agreeing = [witness.runtime for witness in witnesses if witness.answer == "agrees"]
    if FLOAT64 in agreeing:
        return "reference", None
    # Where the suspect stopped, witnesses that stop too speak against the model; where its values are wrong, a
    # witness that stops says nothing about values.
    damning = ("wrong",) if stage == "compare" else ("stops",)
    against = [witness.runtime for witness in witnesses if witness.answer in damning]
    if agreeing:
        if stage == "run" and "onnxruntime-unoptimized" in against:
            return None, "strictness"
        only_the_optimizer = _kernels(agreeing[0]) == suspect
        return "runtime", "optimizer" if only_the_optimizer else None
    if any(witness.answer == "runs" for witness in witnesses):
        return None, "open"
    # The suspect with its optimizer off still computes with its own kernels: its wrong answer is no second opinion.
    if not own_code and {*map(_kernels, against)} <= {_kernels(suspect)}:
        return None, "nobody"
    return "exporter", None


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
    return f"{array.dtype}{list(array.shape)} from {array.min()} to {array.max()}"
