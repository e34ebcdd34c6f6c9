"""The branch of an ``If`` as part of the graph around it, so that what is inside can be compared too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conformance.align.operators.captured_program import Program
from conformance.onnxgraph.reads import inside as graphs_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


@dataclass(frozen=True)
class Inside:
    """The program that an operator runs for its inputs."""

    branch: int
    """0 for the one that is run where the condition holds."""
    program: Program
    inputs: list[Any]


def opened(model: ModelProto, node: NodeProto, inside: Inside) -> tuple[ModelProto, Program] | None:
    """The model with that branch in place of an ``If``, and the program tied to it; None for another node.

    A call of a local function in the branch, which is what dynamo makes of it, is taken apart too.
    """
    import onnx
    from onnx import helper

    name = ("then_branch", "else_branch")[inside.branch]
    branch = next((attribute.g for attribute in node.attribute if attribute.name == name), None)
    if node.op_type != "If" or branch is None:
        return None
    functions = {(function.domain, function.name): function for function in model.functions}
    nodes: list[Any] = []
    prefixes: dict[str, str] = {}
    for inner in branch.node:
        function = functions.get((inner.domain, inner.op_type))
        if function is None:
            nodes.append(inner)
            continue
        prefix = f"{inner.name or inner.output[0]}/"
        names = dict(zip(function.input, inner.input, strict=False))
        nodes += [renamed(one, names, prefix) for one in function.node]
        nodes += [
            helper.make_node("Identity", [names.get(own, prefix + own)], [outer])
            for own, outer in zip(function.output, inner.output, strict=True)
        ]
        made = {own for one in function.node for own in one.output}
        prefixes.update({own: prefix + own for own in made})
    nodes += [
        helper.make_node("Identity", [own.name], [outer])
        for own, outer in zip(branch.output, node.output, strict=True)
    ]  # fmt: skip
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    place = next(index for index, one in enumerate(model.graph.node) if list(one.output) == list(node.output))
    before, after = list(whole.graph.node[:place]), list(whole.graph.node[place + 1 :])
    del whole.graph.node[:]
    whole.graph.node.extend([*before, *nodes, *after])
    whole.graph.initializer.extend(branch.initializer)
    _import_all(whole, functions.values())
    program = inside.program
    ties = {name: [prefixes.get(tensor or "", tensor) for tensor in tied] for name, tied in program.ties.items()}
    return whole, Program(program.operators, program.outputs, program.start, program.inputs, ties)


def _import_all(model: ModelProto, functions: Any) -> None:
    known = {entry.domain for entry in model.opset_import}
    for function in functions:
        for entry in function.opset_import:
            if entry.domain not in known:
                model.opset_import.append(entry)
                known.add(entry.domain)


def renamed(node: NodeProto, names: Mapping[str, str], prefix: str) -> Any:
    """A node of a function with the names of the graph that calls it."""
    copy = type(node).FromString(node.SerializeToString())
    for values in (copy.input, copy.output):
        values[:] = [name and names.get(name, prefix + name) for name in values]
    for graph in graphs_of(copy):
        _rename(graph, names, prefix)
    return copy


def _rename(graph: GraphProto, names: Mapping[str, str], prefix: str) -> None:
    inner = [renamed(node, names, prefix) for node in graph.node]
    del graph.node[:]
    graph.node.extend(inner)
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, prefix + value.name)
