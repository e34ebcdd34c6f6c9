"""The branch of an ``If``, and the bodies of a model's own functions, as part of the graph around them, so that
what is inside can be compared too: exporters write some operators as functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.diagnose.operators.captured_program import Program
from conformance.runtimes.onnxgraph.reads import copy_of, refill
from conformance.runtimes.onnxgraph.reads import inside as graphs_of

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto


@dataclass(frozen=True)
class Inside:
    """The program that an operator runs for its inputs."""

    branch: int
    """0 for the one that is run where the condition holds."""
    program: Program
    inputs: list[object]


def opened(model: ModelProto, node: NodeProto, inside: Inside) -> tuple[ModelProto, Program] | None:
    """The model with that branch in place of an ``If``, and the program tied to it; None for another node.

    A call of a local function in the branch, which is what dynamo makes of it, is taken apart too.
    """
    from onnx import helper

    name = ("then_branch", "else_branch")[inside.branch]
    branch = next((attribute.g for attribute in node.attribute if attribute.name == name), None)
    if node.op_type != "If" or branch is None:
        return None
    nodes = [inner for inner, _ in open_calls(branch.node, model)]
    prefixed: dict[str, str] = {}
    for call in branch.node:
        for function in (one for one in model.functions if (one.domain, one.name) == (call.domain, call.op_type)):
            names = _names(function, call)
            prefixed |= {own: names(own) for one in function.node for own in one.output}
    ends = [helper.make_node("Identity", [own.name], [outer])
            for own, outer in zip(branch.output, node.output, strict=True)]  # fmt: skip
    whole = copy_of(model)
    place = next(index for index, one in enumerate(model.graph.node) if list(one.output) == list(node.output))
    around = model.graph.node
    refill(whole.graph.node, [*around[:place], *nodes, *ends, *around[place + 1 :]])
    whole.graph.initializer.extend(branch.initializer)
    _import_all(whole, model.functions)
    program = inside.program
    ties = {name: [prefixed.get(tensor or "", tensor) for tensor in tied] for name, tied in program.ties.items()}
    return whole, dataclasses.replace(program, ties=ties)


def _import_all(model: ModelProto, functions: Iterable[FunctionProto]) -> None:
    domains = {entry.domain for entry in model.opset_import}
    for function in functions:
        for entry in function.opset_import:
            if entry.domain not in domains:
                model.opset_import.append(entry)
                domains.add(entry.domain)


def _renamed(node: NodeProto, name: Callable[[str], str]) -> NodeProto:
    """A node of a function with the names of the graph that calls it."""
    copy = copy_of(node)
    for values in (copy.input, copy.output):
        values[:] = map(name, values)
    for graph in graphs_of(copy):
        refill(graph.node, [_renamed(inner, name) for inner in graph.node])
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = name(value.name)
    return copy


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
    values = {one.name: one for one in (*function.attribute_proto, *call.attribute)}
    for inner in function.node:
        copy = _renamed(inner, _names(function, call))
        resolved = (_resolved(attribute, values) for attribute in copy.attribute)
        refill(copy.attribute, [one for one in resolved if one is not None])
        yield copy


def _names(function: FunctionProto, call: NodeProto) -> Callable[[str], str]:
    """Return what a tensor of a function is called in the graph that calls it: its own name with a prefix."""
    prefix = f"{next(filter(None, call.output))}/"
    arguments = [*call.input, *[""] * (len(function.input) - len(call.input))]
    names = {
        **dict(zip(function.input, arguments, strict=True)),
        **dict(zip(function.output, call.output, strict=False)),
    }
    return lambda name: name and names.get(name, prefix + name)


def _resolved(attribute: AttributeProto, values: Mapping[str, AttributeProto]) -> AttributeProto | None:
    """An attribute with the value that a call gives it; None where it gives none."""
    if not attribute.ref_attr_name:
        return attribute
    value = values.get(attribute.ref_attr_name)
    if value is None:
        return None
    copy = copy_of(value)
    copy.name = attribute.name
    return copy
