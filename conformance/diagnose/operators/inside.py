"""The branch of an ``If``, and the bodies of a model's own functions, as part of the graph around them, so that
what is inside can be compared too: exporters write some operators as functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conformance.diagnose.operators.captured_program import Program
from conformance.runtimes.onnxgraph.reads import copy_of
from conformance.runtimes.onnxgraph.reads import inside as graphs_of

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto


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
    whole = copy_of(model)
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


def open_calls(nodes: Sequence[NodeProto], model: ModelProto) -> Iterator[tuple[NodeProto, NodeProto]]:
    """Yield each node with itself; in place of the call of a function the nodes of that, each with the call."""
    functions = {(one.domain, one.name): one for one in model.functions}
    versions = {one.domain: one.version for one in model.opset_import}
    for node in nodes:
        function = functions.get((node.domain, node.op_type))
        if function is None or not _fits(function, versions):
            yield node, node
        else:
            for inner, _ in open_calls(list(_body(function, node)), model):
                yield inner, node


def _fits(function: FunctionProto, versions: Mapping[str, int]) -> bool:
    """Return whether the nodes of a function mean the same outside of it."""
    alike = all(versions.get(one.domain) == one.version for one in function.opset_import if not one.domain)
    return alike and not {*function.input} & {*function.output}


def _body(function: FunctionProto, call: NodeProto) -> Iterator[NodeProto]:
    prefix = f"{next(filter(None, call.output))}/"
    given = [*call.input, *[""] * (len(function.input) - len(call.input))]
    names = {**dict(zip(function.input, given, strict=True)), **dict(zip(function.output, call.output, strict=False))}
    values = {one.name: one for one in (*function.attribute_proto, *call.attribute)}
    for inner in function.node:
        copy = renamed(inner, names, prefix)
        resolved = [_resolved(attribute, values) for attribute in copy.attribute]
        del copy.attribute[:]
        copy.attribute.extend(one for one in resolved if one is not None)
        yield copy


def _resolved(attribute: AttributeProto, values: Mapping[str, AttributeProto]) -> AttributeProto | None:
    """An attribute with the value that a call gives it; None where it gives none."""
    if not attribute.ref_attr_name:
        return attribute
    value = values.get(attribute.ref_attr_name)
    if value is None:
        return None
    copy: AttributeProto = type(attribute).FromString(value.SerializeToString())
    copy.name = attribute.name
    return copy
