"""Who is at fault: the same model and input in other runtimes, and what their answers say together.

The model as the exporter gave it is what onnxruntime computes with its optimizer off and what the ONNX
specification's own evaluator computes. If one of these agrees with PyTorch, the model is right and the
runtime is not; if none does, the model is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conformance.compare import Array, compare
from conformance.errors import Stopped, Unavailable
from conformance.inputs import Inputs
from conformance.runtimes import opener

if TYPE_CHECKING:
    from conformance.accuracy import Verifier

_OTHERS = {
    "onnxruntime": ("onnxruntime-unoptimized", "onnx-reference"),
    "onnx-reference": ("onnxruntime-unoptimized",),
}
_NAMES = {
    "onnxruntime-unoptimized": "onnxruntime with its optimizer off",
    "onnx-reference": "the ONNX specification's evaluator",
}


@dataclass
class Opinion:
    fault: str
    lines: list[str] = field(default_factory=list)


def find(verifier: Verifier, stop: Stopped, inputs: Inputs) -> Opinion:
    """Runs the failing example elsewhere. ``stop`` is what happened in the cell's own runtime."""
    try:
        wanted = verifier.reference(inputs)
    except Stopped:
        return Opinion("case")
    exact = verifier.reference.oracle(inputs)
    runtime = verifier.cell.runtime or ""
    lines: list[str] = []
    right: list[str] = []
    for other in _OTHERS.get(runtime, ()):
        try:
            with opener(other)(verifier.stored.file, verifier.libraries) as session:
                got = session.run(inputs)
        except Unavailable:
            continue
        except Exception as error:
            lines.append(f"{_NAMES[other]}: {type(error).__name__}")
            continue
        found = compare(
            got,
            wanted,
            exact,
            verifier._tolerances or [None] * len(wanted),
            verifier._any_order or [False] * len(wanted),
        )
        agrees = found.verdict != "failed"
        if agrees:
            right.append(other)
        lines.append(f"{_NAMES[other]}: {'agrees with PyTorch' if agrees else 'is wrong too'}")
    if right:
        if right[0] == "onnxruntime-unoptimized" and runtime == "onnxruntime":
            lines.append("so the model is right, and onnxruntime's graph optimizer breaks it")
        return Opinion("runtime", lines)
    return Opinion("exporter", lines)


def show(inputs: Inputs) -> list[str]:
    """The inputs, where they are small enough to read."""
    return [f"{name} = {_text(array)}" for name, array in inputs.items()]


def _text(array: Array) -> str:
    if array.size <= 12:
        return f"{array.dtype} {array.tolist()}"
    return f"{array.dtype}{list(array.shape)} from {array.min()} to {array.max()}"
