"""The tensors inside of a model: what a runtime computes for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from conformance.process.arrays import Array, Inputs, same
from conformance.process.errors import or_else
from conformance.runtimes import outputs_of, registry
from conformance.runtimes.inferred import inferred
from conformance.runtimes.onnxgraph.cut import cut, expose
from conformance.runtimes.onnxgraph.reads import Graph

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


Run = Callable[["ModelProto"], list[Array] | None]
"""Returns what a runtime computes of a model; None where it stops."""


def unmarked_values(model: ModelProto, tensors: Sequence[str], run: Run) -> dict[str, Array]:
    """Return the model's outputs and these tensors of its main graph, by name, as they are where nobody looks: of one
    run that shows all of them if its outputs are those of the model as it is, bit for bit; else each as the output of
    the part of the model that ends with it, in which the runtime merges nodes as in the whole.

    Sequences are left out, and a tensor whose part does not run.
    """
    own = [output.name for output in model.graph.output]
    types = or_else({}, lambda: {value.name: value for value in inferred(model).graph.value_info})
    single = [name for name in tensors if name not in types or types[name].type.HasField("tensor_type")]
    copy = expose(model, single, types)
    every = [output.name for output in copy.graph.output]
    plain, shown = run(model), run(copy)
    if plain is not None and shown is not None and len(shown) == len(every) and same(shown[: len(own)], plain):
        return dict(zip(every, shown, strict=True))
    found = dict(zip(own, plain, strict=True)) if plain is not None and len(plain) == len(own) else {}
    graph = Graph(model)
    for name in single:
        if name not in found and (part := run(cut(model, graph, [name]))) is not None and len(part) == 1:
            found[name] = part[0]
    return found
