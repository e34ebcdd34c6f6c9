"""Put the bodies of a model's own functions in place of their calls: exporters write some operators as functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from conformance.align.operators.inside import renamed

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto


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
