"""fp16 by ONNX Runtime's converter, with what it leaves undone.

Of the converters that were tried on the whole catalogue (``docs/evidence/precision.md``) it converts most and
fastest, but leaves nodes unsorted, breaks operators that have no fp16 form, and rounds between two nodes that both
stay fp32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from conformance.precision.ranges import quietly

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14
SMALLEST = 2.0**-24


def convert(model: ModelProto, kept: Collection[str]) -> ModelProto:
    """The model in fp16, its inputs and outputs as they were; nodes named in ``kept`` compute in fp32.

    ``model`` has names for all nodes and no local functions.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    blocked = staying(model, kept)
    _split_constants(model, blocked)
    untouched = _take_out_untouched(model)
    with quietly():  # it warns of each constant that it clamps; ``convert.findings`` names them
        converted = convert_float_to_float16(
            model,
            min_positive_val=SMALLEST, max_finite_val=LARGEST, keep_io_types=True,
            op_block_list=[], node_block_list=sorted(blocked),
        )  # fmt: skip
    for place, output in untouched:
        converted.graph.output.insert(place, output)
    return _tidied(converted)


def staying(model: ModelProto, kept: Collection[str]) -> set[str]:
    """The names of all nodes that compute in fp32: those in ``kept``, operators that have no fp16 form, and constants
    that only such nodes read.

    An If, a Loop or a Scan computes nothing itself: of one that is kept, what is inside stays in fp32.
    """
    found: set[str] = set()
    for node in nodes(model.graph):
        if node.name in kept or not _takes_fp16(node, model):
            within = [one for graph in _inside(node) for one in nodes(graph)]
            found |= {one.name for one in (within or [node]) if not any(_inside(one))}
    return found | set(_constants_of(model, found))


def wrongly_rounded(exported: ModelProto, converted: ModelProto) -> list[str]:
    """The fp16 constants that are not the exported ones rounded; those too small or too large for fp16 may become the
    smallest or largest that it has."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    before = {one.name: one for one in exported.graph.initializer}
    found = []
    for one in converted.graph.initializer:
        source = before.get(one.name) or before.get(one.name.removesuffix(_COPY))
        if one.data_type != TensorProto.FLOAT16 or source is None:
            continue
        got, right = numpy_helper.to_array(one), numpy_helper.to_array(source)
        with np.errstate(over="ignore"):
            same = (got == right.astype(np.float16)) | (np.isnan(got) & np.isnan(right))
        clamped = (np.sign(got) == np.sign(right)) & (
            ((np.abs(right) < SMALLEST) & (np.abs(got) <= SMALLEST))
            | ((np.abs(right) > LARGEST) & (np.abs(got) >= LARGEST))
        )
        wrong = int((~same & ~clamped).sum())
        if wrong:
            found.append(f"{wrong} of {got.size} values of the constant {one.name} are not the exported ones rounded")
    return found


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and all that are inside its nodes."""
    yield graph
    for node in graph.node:
        for inner in _inside(node):
            yield from graphs(inner)


def _inside(node: NodeProto) -> Iterator[GraphProto]:
    """The branches or the body of a node."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)


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


_COPY = "/fp16"
"""Behind the name of a constant of which another copy stays in fp32."""


def _split_constants(model: ModelProto, blocked: Collection[str]) -> None:
    """Gives fp16 nodes a copy of what a node that stays in fp32, or an output, reads too: the converter rounds it for
    both."""
    from onnx import TensorProto

    outputs = {one.name for one in model.graph.output}
    staying, others = ({name for node in nodes(model.graph) if (node.name in blocked) is stays for name in node.input}
                       for stays in (True, False))  # fmt: skip
    for tensor in list(model.graph.initializer):
        if tensor.data_type == TensorProto.FLOAT and tensor.name in others & (staying | outputs):
            copy = model.graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = f"{tensor.name}{_COPY}"
            for node in nodes(model.graph):
                for index, name in enumerate(node.input):
                    if name == tensor.name and node.name not in blocked:
                        node.input[index] = copy.name


def _take_out_untouched(model: ModelProto) -> list[tuple[int, ValueInfoProto]]:
    """The outputs that no node makes, with their places: the converter would make the same name twice."""
    made = {name for node in model.graph.node for name in node.output}
    found = [(place, one) for place, one in enumerate(model.graph.output) if one.name not in made]
    for _, one in found:
        model.graph.output.remove(one)
    return found


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

    _move_casts_inside(model.graph)
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


def _move_casts_inside(graph: GraphProto) -> None:
    """The converter puts every cast into the outermost graph, also one of a value inside a branch or a body."""
    home = {name: inner for inner in graphs(graph) if inner is not graph for name in _made_in(inner)}
    for cast in list(graph.node) if home else ():
        inner = home.get(cast.input[0]) if cast.op_type == "Cast" else None
        if inner is not None:
            inner.node.append(cast)
            home[cast.output[0]] = inner
            graph.node.remove(cast)


def _made_in(graph: GraphProto) -> Iterator[str]:
    yield from (one.name for one in graph.input)
    yield from (one.name for one in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


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
