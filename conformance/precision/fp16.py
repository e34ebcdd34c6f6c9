"""fp16 by ONNX Runtime's converter, with what it leaves undone.

Of the converters that were tried on the whole catalogue (``docs/precision.md``) it converts most and fastest, but
leaves nodes unsorted, breaks operators that have no fp16 form, and rounds between two nodes that both stay fp32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from conformance.precision.ranges import quietly

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14
SMALLEST = 2.0**-24


def convert(model: ModelProto, kept: Collection[str]) -> ModelProto:
    """The model in fp16, its inputs and outputs as they were; nodes named in ``kept`` compute in fp32.

    ``model`` has names for all nodes and no local functions.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    blocked = {*kept, *(node.name for node in nodes(model.graph) if not _takes_fp16(node, model))}
    blocked |= set(_constants_of(model, blocked))
    with quietly():  # it warns of each constant that it clamps; ``convert.findings`` names them
        converted = convert_float_to_float16(
            model,
            min_positive_val=SMALLEST, max_finite_val=LARGEST, keep_io_types=True,
            op_block_list=[], node_block_list=sorted(blocked),
        )  # fmt: skip
    return _tidied(converted)


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and all that are inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs(inner)


def nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes, subgraphs included."""
    for one in graphs(graph):
        yield from one.node


def _takes_fp16(node: NodeProto, model: ModelProto) -> bool:
    """Whether the operator, as the model's opset defines it, may compute in fp16 throughout."""
    from onnx import defs

    opset = {one.domain: one.version for one in model.opset_import}
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Resize":  # its scales stay float, which the converter knows
        return True
    try:
        schema = defs.get_schema(node.op_type, opset.get("", opset.get("ai.onnx", 1)))
    except defs.SchemaError:
        return False
    if "output_datatype" in schema.attributes:
        return False
    # Types of inputs and outputs that this node leaves out do not count: an optional mean, for example.
    used = {
        formal[min(index, len(formal) - 1)].type_str
        for formal, names in ((schema.inputs, node.input), (schema.outputs, node.output))
        for index, name in enumerate(names)
        if name
    }
    allowed = [{*one.allowed_type_strs} for one in schema.type_constraints if one.type_param_str in used]
    fixed = any("tensor(float)" in one and "tensor(float16)" not in one for one in allowed)
    return not fixed and "tensor(float)" not in used


def _constants_of(model: ModelProto, blocked: Collection[str]) -> Iterator[str]:
    """Constant nodes that only blocked nodes read."""
    users: dict[str, set[str]] = {}
    for node in nodes(model.graph):
        for name in node.input:
            users.setdefault(name, set()).add(node.name)
    for node in nodes(model.graph):
        if node.op_type == "Constant" and users.get(node.output[0], {""}) <= {*blocked}:
            yield node.name


def _tidied(model: ModelProto) -> ModelProto:
    """Nodes in order, no rounding between two nodes that stay fp32, no types that are out of date."""
    import onnx_ir as ir
    from onnx_ir.passes import common

    for proto in graphs(model.graph):
        del proto.value_info[:]
        _drop_repeated_casts(proto)
    found = ir.from_proto(model)
    for graph in found.graphs():
        for node in list(graph):
            source = _source_of_round_trip(node)
            if source is not None:
                node.replace_input_with(0, source)
    common.TopologicalSortPass()(found)
    common.RemoveUnusedNodesPass()(found)
    return ir.to_proto(found)


def _drop_repeated_casts(graph: GraphProto) -> None:
    """Two kept nodes that read the same value get the same cast twice."""
    made: set[str] = set()
    for node in list(graph.node):
        if node.op_type == "Cast" and node.output[0] in made:
            graph.node.remove(node)
        made.update(node.output)


def _source_of_round_trip(node: Any) -> Any:
    """The fp32 value behind a cast to fp16 and back, or None."""
    import onnx_ir as ir

    def cast_to(one: Any, dtype: Any) -> bool:
        return one is not None and one.op_type == "Cast" and one.attributes["to"].as_int() == dtype

    before = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    # Those of the converter; a cast that the module itself makes is meant to round.
    name = "" if before is None else before.name or ""
    ours = name.endswith("_cast_to_fp16_node") or name.startswith("graph_input_cast")
    if before is None or not ours:
        return None
    both = cast_to(node, ir.DataType.FLOAT) and cast_to(before, ir.DataType.FLOAT16)
    return before.inputs[0] if both else None
