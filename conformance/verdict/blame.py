"""Who is at fault: the same model and input in other runtimes, and what their answers say together.

The model as the exporter gave it is what onnxruntime computes with its optimizer off and what the ONNX
specification's own evaluator computes. If one of these agrees with PyTorch, the model is right and the
runtime is not; if both are wrong, the model is. Where PyTorch in float64 agrees with the runtime against
PyTorch in float32, PyTorch's float32 is what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.arrays import Array
from conformance.compare.judges import Judge
from conformance.errors import Stopped, Unavailable
from conformance.runtimes import Session, opener, registry


@dataclass
class Opinion:
    """Who is at fault, and the lines that say what makes one think so."""

    fault: str | None
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Example:
    """A failing example: what was run on what, and what is right."""

    runtime: str
    model: Path
    libraries: Sequence[str]
    inputs: Mapping[str, Array]
    wanted: list[Array]
    exact: list[Array] | None
    """In float64, where there is such a form."""
    judge: Judge
    session: Session | None
    """The runtime with the model loaded; None where it could not be."""
    own_code: bool
    """Whether the export used code of the case's own."""
    config: Mapping[str, str] = field(default_factory=dict)
    """ONNX Runtime's session options."""


def find(example: Example, stop: Stopped) -> Opinion:
    """Runs a failing example of an exported model elsewhere."""
    runtime, wanted, exact = example.runtime, example.wanted, example.exact
    if exact is not None and _agrees_with_float64(example, exact):
        return Opinion("reference", ["PyTorch in float64 agrees with the runtime, against PyTorch in float32"])
    lines: list[str] = []
    wrong: list[str] = []
    runs = False
    if exact is None and stop.stage == "compare":
        lines.append("the module has no float64 form, so PyTorch's own rounding is not known")
    for other in registry.second_opinions(runtime):
        try:
            with opener(other.name, config=example.config)(example.model, example.libraries) as session:
                got = session.run(example.inputs)
        except (Unavailable, ImportError) as reason:
            lines.append(f"{other.title}: no opinion, {reason}")
            continue
        except Exception as error:
            lines.append(f"{other.title}: stops with {type(error).__name__}")
            # That nobody can run a model speaks against it; that one cannot says nothing about values.
            wrong += [other.name] if stop.stage != "compare" else []
            continue
        if example.judge.compare(_where_it_failed(stop, got, wanted), wanted, exact).verdict == "failed":
            if stop.stage != "compare":  # it runs the model; that its values are wrong is another question
                lines.append(f"{other.title}: runs it, but its outputs are wrong")
                runs = True
                continue
            lines.append(f"{other.title}: is wrong too")
            wrong.append(other.name)
            continue
        lines.append(f"{other.title}: agrees with PyTorch")
        if stop.stage == "run" and "onnxruntime-unoptimized" in wrong:
            lines.append("so it is open whether the runtime is too strict, or the evaluator not strict enough")
            return Opinion(None, lines)
        if other.computes_with == runtime:  # the same runtime, but for its optimizer
            lines.append(f"so the model is right, and {runtime}'s graph optimizer breaks it")
        return Opinion("runtime", lines)
    if runs:
        return Opinion(None, [*lines, "so it is open whether the model or the runtime is wrong"])
    # That it is wrong with its optimizer off too is no second opinion: the kernels are the same.
    kernels = {registry.named(name).computes_with for name in wrong}
    if not example.own_code and not kernels - {registry.named(runtime).computes_with}:
        lines.append("nobody else could be asked, so it is open whether the model or the runtime is wrong")
        return Opinion(None, lines)
    return Opinion("exporter", lines)


def _where_it_failed(stop: Stopped, got: list[Array], wanted: list[Array]) -> list[Array]:
    """``got`` at the output that failed and what is right elsewhere: other outputs may be wrong for other reasons."""
    worst = getattr(stop, "worst", None)
    if worst is None or len(got) != len(wanted):
        return got
    return [one if output == worst.output else wanted[output] for output, one in enumerate(got)]


def _agrees_with_float64(example: Example, exact: list[Array]) -> bool:
    if example.session is None or len(exact) != len(example.wanted):
        return False
    try:
        got = example.session.run(example.inputs)
    except Exception:
        return False
    rounded = [one.astype(right.dtype) for one, right in zip(exact, example.wanted, strict=True)]
    return example.judge.compare(got, rounded, None).verdict != "failed"


def show(inputs: Mapping[str, Array]) -> list[str]:
    """The inputs, where they are small enough to read."""
    return [f"{name} = {_text(array)}" for name, array in inputs.items()]


def _text(array: Array) -> str:
    if array.size <= 12:
        return f"{array.dtype} {array.tolist()}"
    return f"{array.dtype}{list(array.shape)} from {array.min()} to {array.max()}"
