"""Softmax, LogSoftmax and Hardmax as they were below opset 13: all axes from ``axis`` on taken together.

From opset 13 on they take that axis alone, and those are the only rules that ONNX's evaluator and OpenVINO have. Of
the last axis of a matrix both rules say the same. So an old node is written out as its specification describes it:
flatten the tensor to a matrix, compute along its last axis, give it back its shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

OPERATORS = ("Hardmax", "LogSoftmax", "Softmax")
SINCE = 13
"""The opset from which on they take a single axis."""


def old(model: ModelProto) -> list[str]:
    """The operators of a model, in its subgraphs and functions too, that are by the old rules, each once."""
    graphs = [graph for graph in (model.graph, *model.functions) if _opset(model, graph) < SINCE]
    return sorted({node.op_type for graph in graphs for node in _within(graph)})


def write_out(model: ModelProto) -> None:
    """Writes out the old nodes of a model, in its subgraphs and functions too."""
    for graph in (model.graph, *model.functions):
        if _opset(model, graph) < SINCE:
            _write_out(graph)


def _opset(model: ModelProto, graph: GraphProto | FunctionProto) -> int:
    imports = model.opset_import if graph is model.graph else graph.opset_import
    return next((entry.version for entry in imports if entry.domain in ("", "ai.onnx")), SINCE)


def _inner(node: NodeProto) -> list[GraphProto]:
    return [
        graph
        for attribute in node.attribute
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)
    ]


def _is_one(node: NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in OPERATORS


def _within(graph: GraphProto | FunctionProto) -> list[NodeProto]:
    found = [node for node in graph.node if _is_one(node)]
    return [*found, *(one for node in graph.node for inner in _inner(node) for one in _within(inner))]


def _write_out(graph: GraphProto | FunctionProto) -> None:
    nodes: list[NodeProto] = []
    for node in graph.node:
        for inner in _inner(node):
            _write_out(inner)
        nodes += _written_out(node) if _is_one(node) else [node]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
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
