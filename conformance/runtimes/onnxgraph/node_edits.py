"""Edits of a node in its graph: what a wrong symbolic, exporter or optimizer makes of it, and what puts it right."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.onnxgraph.reads import first_output, refill

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def set_attribute(graph: GraphProto, node: NodeProto, name: str, value: object) -> None:
    """Give a node an attribute, or one that it has another value."""
    from onnx import helper

    known = next((one for one in node.attribute if one.name == name), None)
    (node.attribute.add() if known is None else known).CopyFrom(helper.make_attribute(name, value))


def keep_attributes(graph: GraphProto, node: NodeProto, names: Collection[str]) -> None:
    """Take all other attributes out."""
    refill(node.attribute, [one for one in node.attribute if one.name in names])


def drop_attribute(graph: GraphProto, node: NodeProto, name: str) -> None:
    """Take an attribute out."""
    keep_attributes(graph, node, {one.name for one in node.attribute} - {name})


def swap_inputs(graph: GraphProto, node: NodeProto, left: int, right: int) -> None:
    """Have two inputs in each other's place."""
    node.input[left], node.input[right] = node.input[right], node.input[left]


def set_input(graph: GraphProto, node: NodeProto, slot: int, name: str) -> None:
    """Give a node another tensor as an input, or one that it lacks."""
    node.input.extend([""] * (slot + 1 - len(node.input)))
    node.input[slot] = name


def set_constant(graph: GraphProto, node: NodeProto, slot: int, value: Array, name: str | None = None) -> None:
    """Give a node a constant as an input, or one that it lacks; by a name that is free."""
    from onnx import numpy_helper

    taken = {tensor.name for tensor in graph.initializer}
    free = name or next(one for number in itertools.count() if (one := f"changed_{number}") not in taken)
    graph.initializer.append(numpy_helper.from_array(value, free))
    set_input(graph, node, slot, free)


def set_operator(graph: GraphProto, node: NodeProto, operator: str, attributes: Collection[str]) -> None:
    """Make another of ONNX's own operators of a node, with these of its attributes; Identity has its first input."""
    node.op_type, node.domain = operator, ""
    keep_attributes(graph, node, attributes)
    if operator == "Identity":
        del node.input[1:]


def insert(
    graph: GraphProto, node: NodeProto, slot: int | None, operator: str, numbers: Sequence[float | None],
    attributes: Mapping[str, Any], dtype: Any,
) -> None:  # fmt: skip
    """Put a node before an input, or after the first output; ``numbers`` are its inputs after the first, None for one
    that it lacks."""
    from onnx import helper, numpy_helper

    made = first_output(node)
    place = next(at for at, one in enumerate(graph.node) if made in one.output)
    names = ["" if one is None else f"inserted_{at}" for at, one in enumerate(numbers)]
    if slot is None:
        given, gives = "inserted", made
        node.output[[*node.output].index(made)] = "inserted"
    else:
        given, gives = node.input[slot], "inserted"
        node.input[slot] = "inserted"
    graph.node.insert(place + (slot is None), helper.make_node(operator, [given, *names], [gives], **attributes))
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(one, dtype), name)
        for one, name in zip(numbers, names, strict=True)
        if one is not None
    )
