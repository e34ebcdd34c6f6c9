"""Read a graph: its nodes and those inside of them, which of them make a tensor and read it, and what the exporter
wrote down about them."""

from __future__ import annotations

import copy
import re
from collections.abc import Container, Iterable, Iterator, MutableSequence, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from conformance.process.arrays import Array

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

M = TypeVar("M")
V = TypeVar("V")

OWN = ("", "ai.onnx")
"""The names of ONNX's own domain."""
_PLACE = re.compile(r'(?:File "([^"]+)", line (\d+))|(?:([^\s"]+\.py)[(:](\d+))')
_TRACES = ("pkg.torch.onnx.stack_trace",)
"""Keys of a node's metadata under which torch's exporter keeps where in Python the node comes from."""


def copy_of(message: M) -> M:
    """Return a copy of a model, a node or another message of ONNX, which may be changed."""
    return copy.deepcopy(message)


def refill(field: MutableSequence[V], values: Iterable[V]) -> None:
    """Put other values in place of those of a repeated field of a message."""
    kept = [*values]
    del field[:]
    field.extend(kept)


def inside(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the branches or the body of a node."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield the graph and all graphs inside of its nodes."""
    yield graph
    for node in graph.node:
        for inner in inside(node):
            yield from graphs(inner)


def nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph, each before those inside of it."""
    for node in graph.node:
        yield node
        for inner in inside(node):
            yield from nodes(inner)


def all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield the nodes of a model, and then of its functions."""
    for graph in (model.graph, *model.functions):
        yield from nodes(graph)


def dims_of(tensor: TypeProto.Tensor) -> list[int | str | None] | None:
    """Return the size of each dim, or its name; None for one without either, which some converters write as -1. None
    for a tensor without a shape."""
    if not tensor.HasField("shape"):
        return None
    sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    return [dim.dim_param or (None if size < 0 else size) for dim, size in zip(tensor.shape.dim, sizes, strict=True)]


def opset_of(holder: ModelProto | FunctionProto, otherwise: int = 0) -> int:
    """Return the opset of ONNX's own operators in a model or a function."""
    return next((entry.version for entry in holder.opset_import if entry.domain in OWN), otherwise)


def by_opset(model: ModelProto, otherwise: int = 0) -> Iterator[tuple[int, GraphProto | FunctionProto]]:
    """Yield the graph and the functions of a model, each with the opset by which its nodes are read."""
    yield opset_of(model, otherwise), model.graph
    yield from ((opset_of(one, otherwise), one) for one in model.functions)


def held(nodes: Iterable[NodeProto]) -> dict[str, TensorProto]:
    """Return the tensors that Constant nodes hold, by the name of what they make."""
    constants = (node for node in nodes if node.op_type == "Constant")
    return {node.output[0]: one.t for node in constants for one in node.attribute if one.name == "value"}


def initializers(model: ModelProto) -> dict[str, Array]:
    """Return the values of a model's initializers."""
    from onnx import numpy_helper

    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def operator_of(node: NodeProto) -> str:
    """Return ``Add``, or ``own::Planted`` where it is not of ONNX's own domain."""
    return node.op_type if node.domain in OWN else f"{node.domain}::{node.op_type}"


def plain(attribute: AttributeProto) -> Any:
    """The value of an attribute as a number, a text, or a list."""
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return str(value.decode(errors="replace"))
    return list(value) if isinstance(value, Sequence) else value


def first_output(node: NodeProto) -> str:
    """Return the name of the first output that a node gives."""
    return f"{next(name for name in node.output if name)}"


class Graph:
    """The top level of a model's graph: which node makes a tensor, and which nodes read it."""

    def __init__(self, model: ModelProto) -> None:
        self.nodes: list[NodeProto] = list(model.graph.node)
        weights = {initializer.name for initializer in model.graph.initializer}
        self.inputs = [value.name for value in model.graph.input if value.name not in weights]
        self.outputs = [value.name for value in model.graph.output]
        self.makers = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in reads(node):
                self.readers.setdefault(name, []).append(index)

    def node_of(self, tensor: str) -> NodeProto | None:
        index = self.makers.get(tensor)
        return None if index is None else self.nodes[index]

    def computing(self, tensors: Iterable[str], end: Container[str] = ()) -> list[int]:
        """Return the nodes that tensors are computed by, back to those of ``end``, in order."""
        needed: set[int] = set()
        todo = list(tensors)
        while todo:
            index = self.makers.get(todo.pop())
            if index is not None and index not in needed:
                needed.add(index)
                todo += [name for name in reads(self.nodes[index]) if name not in end]
        return sorted(needed)


def label(node: NodeProto) -> str:
    """``Slice val_6``: its operator, and its name or that of its first output."""
    return f"{node.op_type} {node.name or next(filter(None, node.output), '')}"


def reads(node: NodeProto) -> list[str]:
    """Return what a node reads, its subgraphs included."""
    return [*filter(None, node.input), *captured(node)]


def needs(node: NodeProto) -> list[str]:
    """Return what a node reads, each name once."""
    return [*dict.fromkeys(reads(node))]


def captured(node: NodeProto) -> Iterator[str]:
    """Yield the names that the branches or the body of a node take from around it."""
    for graph in inside(node):
        own = {value.name for value in graph.input} | {constant.name for constant in graph.initializer}
        for inner in graph.node:
            yield from (name for name in reads(inner) if name not in own)
            own.update(inner.output)
        yield from (value.name for value in graph.output if value.name not in own)


def rewritten(node: NodeProto) -> str:
    """The rules of the exporter's optimizer that made the node, where it says so."""
    return metadata(node).get("pkg.onnxscript.rewriter.rule_name", "")


def metadata(node: NodeProto) -> dict[str, str]:
    """Return what the exporter wrote down about a node, by key."""
    return {entry.key: entry.value for entry in node.metadata_props}


def line_of(node: NodeProto) -> str | None:
    """The line of Python that a node comes from, as ``module.py:12``; None where the exporter left no trace."""
    texts = [entry.value for entry in node.metadata_props if entry.key in _TRACES]
    for text in (*texts, node.doc_string):
        places = [match.groups() for match in _PLACE.finditer(text)]
        if places:
            first, line, second, other_line = places[-1]
            return f"{Path(first or second).name}:{line or other_line}"
    return None
