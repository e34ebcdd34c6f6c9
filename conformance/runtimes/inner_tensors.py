"""The tensors inside of a model: what a runtime computes for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from conformance.process.arrays import Array, Inputs
from conformance.runtimes import outputs_of, registry
from conformance.runtimes.inferred import inferred
from conformance.runtimes.onnxgraph.cut import expose

if TYPE_CHECKING:
    from onnx import ModelProto


def values(
    model: ModelProto, tensors: Iterable[str], runtime: str, libraries: Sequence[str], inputs: Inputs
) -> dict[str, Array]:
    """The values of the model's outputs and of these tensors of its main graph, by name, as far as the runtime has
    them.

    Raises what the runtime raises.
    """
    inside = registry.named(runtime).inside
    if inside:
        names = list(dict.fromkeys([*(output.name for output in model.graph.output), *tensors]))
        found = registry.function(f"{inside}:values")(model, names, libraries, inputs)
        return {name: array for name, array in zip(names, found, strict=True) if array is not None}
    copy = expose(model, tensors, {value.name: value for value in inferred(model).graph.value_info})
    outputs = [output.name for output in copy.graph.output]
    return dict(zip(outputs, outputs_of(copy, runtime, libraries, inputs), strict=True))
