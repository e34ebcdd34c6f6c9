"""Show what is inside of a graph: copies of a model with more of its tensors as outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


def expose(
    model: ModelProto,
    tensors: Iterable[str],
    types: Mapping[str, ValueInfoProto] | None = None,
    *,
    instead: bool = False,
) -> ModelProto:
    """Return a copy of a model that gives these tensors of its main graph too, or ``instead`` of its outputs; of one
    that is among ``types`` the element type is declared."""
    copy = type(model)()
    copy.CopyFrom(model)
    if instead:
        del copy.graph.output[:]
    given = {output.name for output in copy.graph.output}
    for name in dict.fromkeys(tensors):
        if name and name not in given:
            value = copy.graph.output.add(name=name)
            if types and name in types:  # without its shape, which may be inferred wrong, or for other sizes
                value.type.tensor_type.elem_type = types[name].type.tensor_type.elem_type
    return copy
