"""Write operators out by the functions that ONNX's specification defines them with.

Where ONNX's evaluator has no say on an operator, it has one on those that its function is made of; and how far
rounding moves what an operator such as Attention gives is seen only where each step in it is rounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from conformance.process.errors import or_else
from conformance.runtimes.inferred import inferred
from conformance.runtimes.onnxgraph.reads import OWN, copy_of, nodes, opset_of

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto, TypeProto

COMPOSITE = frozenset((
    "Attention", "CausalConvWithState", "GroupNormalization", "LayerNormalization", "LinearAttention", "LogSoftmax",
    "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "RMSNormalization", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "RotaryEmbedding", "Softmax", "SoftmaxCrossEntropyLoss",
))  # fmt: skip
"""Operators of several steps. That of Range gives what the evaluator puts together to other shapes."""
DOMAIN = "written.out"
"""The domain of the functions that take the place of operators."""


def write_out_operators(model: ModelProto, operators: Collection[str]) -> ModelProto:
    """Return a model in which the nodes of these operators call the functions that define them, as far as there are
    any. Nodes inside of branches, bodies and functions stay as they are."""
    copy = copy_of(model)
    opset, types = opset_of(model), None
    made: list[FunctionProto] = []
    for number, node in enumerate(copy.graph.node):
        if node.domain not in OWN or node.op_type not in operators:
            continue
        types = _types(model) if types is None else types
        body = or_else(None, partial(_body, node, opset, types))
        if body is not None:
            body.domain, body.name = DOMAIN, f"{node.op_type}_{number}"
            _call(node, body, opset)
            made.append(body)
    if made:
        copy.functions.extend(made)
        copy.opset_import.add(domain=DOMAIN, version=1)
    return copy


def _types(model: ModelProto) -> dict[str, TypeProto]:
    """Return the types of the tensors of a model's graph, as far as they are known."""
    from onnx import helper

    graph = or_else(model, lambda: inferred(model)).graph
    constants = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
    }
    return constants | {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def _body(node: NodeProto, opset: int, types: Mapping[str, TypeProto]) -> FunctionProto | None:
    from onnx import FunctionProto as Function
    from onnx import defs

    schema: Any = defs.get_schema(node.op_type, opset)
    if schema.has_context_dependent_function:
        given = [types[name].SerializeToString() if name else b"" for name in node.input]
        versions = [one for one in schema.context_dependent_function_opset_versions if one <= opset]
        body = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), given
        )
    elif schema.has_function:
        body = schema.get_function_with_opset_version(
            max(one for one in schema.function_opset_versions if one <= opset)
        )
    else:
        return None
    made: FunctionProto = Function.FromString(body)
    return made


def _call(node: NodeProto, body: FunctionProto, opset: int) -> None:
    """Have a node call a function, with an empty name for each input that it lacks, for its own outputs alone, and
    with the operator's defaults of attributes that it does not say."""
    from onnx import defs

    defaults = {name: one.default_value for name, one in defs.get_schema(node.op_type, opset).attributes.items()}
    node.op_type, node.domain = body.name, body.domain
    node.input.extend([""] * (len(body.input) - len(node.input)))
    pairs = [pair for pair in zip(node.output, body.output, strict=False) if pair[0]]
    for holder, place in ((node.output, 0), (body.output, 1)):
        del holder[:]
        holder.extend(pair[place] for pair in pairs)
    known = {*body.attribute, *(one.name for one in body.attribute_proto)}
    kept = [attribute for attribute in node.attribute if attribute.name in known]
    del node.attribute[:]
    node.attribute.extend(kept)
    said = {attribute.name for attribute in kept}
    node.attribute.extend(defaults[name] for name in known - said if name in defaults and defaults[name].type)
    said = {attribute.name for attribute in node.attribute}
    read = [name for name in body.attribute if name in said]  # the function lacks what the node has no value for
    del body.attribute[:]
    body.attribute.extend(read)
    for inner in nodes(body):
        lacking = [one for one in inner.attribute if one.ref_attr_name and one.ref_attr_name not in said]
        for attribute in lacking:
            inner.attribute.remove(attribute)
