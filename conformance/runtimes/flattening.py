"""Softmax, LogSoftmax and Hardmax as they were below opset 13: all axes from ``axis`` on taken together.

From opset 13 on they take that axis alone, and those are the only rules that ONNX's evaluator and OpenVINO have. Of
the last axis of a matrix both rules say the same. So an old node is written out as its specification describes it:
flatten the tensor to a matrix, compute along its last axis, give it back its shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import OWN, by_opset, inside, nodes

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

OPERATORS = ("Hardmax", "LogSoftmax", "Softmax")
SINCE = 13
"""The opset from which on they take a single axis."""


def old(model: ModelProto) -> list[str]:
    """The operators of a model, in its subgraphs and functions too, that are by the old rules, each once."""
    return sorted({node.op_type for graph in _old(model) for node in nodes(graph) if _is_one(node)})


def write_out(model: ModelProto) -> None:
    """Write out the old nodes of a model, in its subgraphs and functions too."""
    for graph in _old(model):
        _write_out(graph)


def _old(model: ModelProto) -> Iterator[GraphProto | FunctionProto]:
    return (graph for opset, graph in by_opset(model, SINCE) if opset < SINCE)


def _is_one(node: NodeProto) -> bool:
    return node.domain in OWN and node.op_type in OPERATORS


def _write_out(graph: GraphProto | FunctionProto) -> None:
    made: list[NodeProto] = []
    for node in graph.node:
        for inner in inside(node):
            _write_out(inner)
        made += _written_out(node) if _is_one(node) else [node]
    copies = [type(node).FromString(node.SerializeToString()) for node in made]
    del graph.node[:]
    graph.node.extend(copies)


def _written_out(node: NodeProto) -> list[NodeProto]:
    from onnx import helper

    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
    (given,), (out,) = node.input, node.output
    shape, matrix, computed = (f"{out}/{part}" for part in ("shape", "matrix", "computed"))
    return [
        helper.make_node("Shape", [given], [shape]),
        helper.make_node("Flatten", [given], [matrix], axis=axis),
        helper.make_node(node.op_type, [matrix], [computed], node.name, axis=1),
        helper.make_node("Reshape", [computed, shape], [out]),
    ]
