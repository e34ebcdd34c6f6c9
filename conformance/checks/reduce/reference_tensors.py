"""Compute all tensors of a model by a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.arrays import Array
from conformance.onnxgraph.expose import expose
from conformance.runtimes import opener
from conformance.worker import aside

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_BYTES = 2**30
"""Above this size the tensors of a model are not held in memory together, and nothing is cut out of it."""


def reference_values(
    model: ModelProto,
    runtime: str,
    libraries: Sequence[str],
    inputs: Mapping[str, Array],
    seconds: float,
    folder: Path,
) -> dict[str, Any]:
    """All tensors of a model by name, as a runtime computes them; raises what that raises, ``aside.Lost`` where it
    takes its process along, and MemoryError where there are too many bytes of them."""
    import onnx

    shown = expose(model, (name for node in model.graph.node for name in node.output))
    file = folder / "shown.onnx"
    onnx.save(shown, file)
    names = [output.name for output in shown.graph.output]

    def question() -> list[Any]:
        with opener(runtime)(file, libraries) as session:
            arrays: list[Any] = session.run(inputs)
        if sum(getattr(array, "nbytes", 0) for array in arrays) > MOST_BYTES:
            raise MemoryError
        return arrays

    arrays = aside.ask(question, seconds)
    if len(arrays) != len(names):
        raise ValueError("a tensor of the model is a sequence")
    return {**inputs, **dict(zip(names, arrays, strict=True))}
