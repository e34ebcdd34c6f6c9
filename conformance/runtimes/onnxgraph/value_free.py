"""Find the outputs of a model that are the same whatever the values of its inputs are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import OWN, needs

if TYPE_CHECKING:
    from onnx import ModelProto

_SIZES_ALONE = ("Shape", "Size", "SequenceLength", "OptionalHasElement")
"""Operators that read of what they are given how much there is of it, and no value."""
_FIRST_BY_SIZE = ("EyeLike",)


def value_free(model: ModelProto) -> list[int]:
    """Return the outputs, by place, that depend on no value of an input: on sizes and constants alone."""
    depends = {value.name for value in model.graph.input} - {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        by_size = node.domain in OWN and node.op_type in (*_SIZES_ALONE, *_FIRST_BY_SIZE)
        if not by_size and depends.intersection(needs(node)):
            depends.update(filter(None, node.output))
    return [place for place, value in enumerate(model.graph.output) if value.name not in depends]
