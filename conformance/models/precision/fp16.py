"""fp16 by ONNX Runtime's converter, and what that leaves undone.

Of the converters that were tried on the whole catalogue (``docs/evidence/precision.md``) it converts most and
fastest, but leaves nodes unsorted, breaks operators that have no fp16 form, and rounds between two nodes that both
stay fp32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from conformance.compare.close import distances
from conformance.models.precision.ranges import quietly
from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.runtimes.inferred import infer, inferred, is_weight, without_weights
from conformance.runtimes.onnxgraph.reads import OWN, all_nodes, copy_of, graphs, held, inside, nodes, opset_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
    from onnx_ir import DataType, Node, Value

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14
SMALLEST = 2.0**-24


def has_floats(model: ModelProto) -> bool:
    """Return whether a model has floats of 32 bits, which are what is converted."""
    from onnx import TensorProto

    model = or_else(model, lambda: inferred(copy_of(model)))
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    constants = (*model.graph.initializer, *held([*all_nodes(model)]).values())
    return any(value.type.tensor_type.elem_type == TensorProto.FLOAT for value in values) or any(
        constant.data_type == TensorProto.FLOAT for constant in constants
    )


def convert(model: ModelProto, kept: Collection[str]) -> ModelProto:
    """The model in fp16, its inputs and outputs as they were; nodes named in ``kept`` compute in fp32.

    ``model`` has names for all nodes and no local functions; it stays as it is. Its weights are rounded here, by the
    converter's rule: the converter would go through each of them some twenty times.
    """
    # Importing the quantizer works only while sys.path has what importing the transformers adds to it, which goes
    # with the folder of the case.
    import onnxruntime.quantization  # noqa: F401
    from onnxruntime.transformers.float16 import convert_float_to_float16

    bare, blocked = without_weights(model), staying(model, kept)
    _split_constants(bare, blocked)
    untouched = _take_out_untouched(bare)
    infer(bare)
    for tensor, _ in _weights(bare, model):
        tensor.dims[:] = [0]  # as many as it has values, by which the converter goes
    with quietly():  # the converter warns of each constant that it clamps; ``convert.findings`` names them
        converted = convert_float_to_float16(
            bare, disable_shape_infer=True, min_positive_val=SMALLEST, max_finite_val=LARGEST, keep_io_types=True,
            op_block_list=[], node_block_list=sorted(blocked),
        )  # fmt: skip
    for place, output in untouched:
        converted.graph.output.insert(place, output)
    for tensor, source in _weights(converted, model):
        tensor.dims[:] = source.dims
    tidied = _tidied(converted)
    for tensor, source in _weights(tidied, model):
        _fill(tensor, source)
    return tidied


def _weights(converted: ModelProto, exported: ModelProto) -> Iterator[tuple[TensorProto, TensorProto]]:
    """The initializers of a model that was made of ``without_weights(exported)`` and has no values for them, each
    with the exported one."""
    for tensor, source in _sources(converted, exported):
        if is_weight(source):
            yield tensor, source


def _sources(converted: ModelProto, exported: ModelProto) -> Iterator[tuple[TensorProto, TensorProto]]:
    """The initializers of a converted model, each with the exported one that it was made of."""
    before = {tensor.name: tensor for tensor in exported.graph.initializer}
    for tensor in converted.graph.initializer:
        source = before.get(tensor.name) or before.get(tensor.name.removesuffix(_COPY))
        if source is not None:
            yield tensor, source


def _fill(weight: TensorProto, source: TensorProto) -> None:
    """Give a weight of the converted model, of which there is only the type, the values of the exported weight."""
    from onnx import TensorProto, numpy_helper

    name, kind = weight.name, weight.data_type
    if kind == source.data_type:
        weight.CopyFrom(source)
        weight.name = name
    else:
        assert kind == TensorProto.FLOAT16
        weight.raw_data = rounded(numpy_helper.to_array(source)).tobytes()


def rounded(values: Array) -> Array:
    """float32 values as fp16, by the rule of ONNX Runtime's converter (``convert_np_to_float16``): no value becomes
    zero or infinite that was not."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        result = values.astype(np.float16)
    size = result.view(np.uint16) & 0x7FFF
    for end, bits in ((SMALLEST, 0), (LARGEST, 0x7C00)):  # zero and infinity
        odd = size == bits
        if odd.any():
            exact = values[odd]
            result[odd] = np.where(np.isfinite(exact) & (exact != 0), np.copysign(end, exact), result[odd])
    return result


def staying(model: ModelProto, kept: Collection[str]) -> set[str]:
    """The names of all nodes that compute in fp32: those in ``kept``, operators that have no fp16 form, and constants
    that only such nodes read.

    An If, a Loop or a Scan computes nothing itself: where it is kept, the nodes inside it stay in fp32.
    """
    names: set[str] = set()
    for node in nodes(model.graph):
        if node.name in kept or not _takes_fp16(node, model):
            within = [inner for graph in inside(node) for inner in nodes(graph)]
            names |= {leaf.name for leaf in (within or [node]) if not any(inside(leaf))}
    return names | set(_constants_of(model, names))


def wrongly_rounded(exported: ModelProto, converted: ModelProto) -> list[str]:
    """The fp16 constants that are not the exported constants rounded; values too small or too large for fp16 may
    become the smallest or largest fp16 number."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    texts = []
    for constant, source in _sources(converted, exported):
        if constant.data_type != TensorProto.FLOAT16:
            continue
        got, right = numpy_helper.to_array(constant), numpy_helper.to_array(source)
        with np.errstate(over="ignore"):
            nearest = right.astype(np.float16)
        odd = got.view(np.uint16) != nearest.view(np.uint16)  # hardly any, and what follows takes ten times as long
        got, right, nearest = got[odd], right[odd], nearest[odd]
        same = distances(got, nearest) == 0
        clamped = (np.sign(got) == np.sign(right)) & (
            ((np.abs(right) < SMALLEST) & (np.abs(got) <= SMALLEST))
            | ((np.abs(right) > LARGEST) & (np.abs(got) >= LARGEST))
        )
        wrong = int((~same & ~clamped).sum())
        if wrong:
            what = f"{wrong} of {odd.size} values of the constant {constant.name}"
            texts.append(f"{what} are not the exported ones rounded")
    return texts


def _takes_fp16(node: NodeProto, model: ModelProto) -> bool:
    """Return whether the operator may compute in fp16 throughout at this opset."""
    from onnx import defs

    if node.domain not in OWN:
        return False
    if node.op_type == "Resize":  # its scales stay float, which the converter knows
        return True
    if node.op_type in _RECURRENT and len(node.input) > _LENGTHS and node.input[_LENGTHS]:
        return False
    try:
        schema = defs.get_schema(node.op_type, opset_of(model, 1))
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
    allowed = [{*rule.allowed_type_strs} for rule in schema.type_constraints if rule.type_param_str in used]
    fixed = any("tensor(float)" in types and "tensor(float16)" not in types for types in allowed)
    return not fixed and "tensor(float)" not in used


_RECURRENT, _LENGTHS = ("GRU", "LSTM", "RNN"), 4
"""TensorRT's parser refuses these in fp16 where they have lengths of sequences, which are this input: what it puts in
their place selects between fp16 and fp32 (``ISelectLayer ... has Half and Float``, TensorRT for RTX 1.7)."""

_COPY = "/fp16"
"""Ends the name of an fp16 constant where the constant of the name itself stays in fp32."""


def _split_constants(model: ModelProto, blocked: Collection[str]) -> None:
    """Give fp16 nodes a copy of each constant that a node in fp32, or an output, read too: the converter would
    round it for both."""
    from onnx import TensorProto

    outputs = {value.name for value in model.graph.output}
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
    """Remove the outputs that no node makes and give them with their places: the converter would make their names
    twice."""
    made = {name for node in model.graph.node for name in node.output}
    untouched = [(place, output) for place, output in enumerate(model.graph.output) if output.name not in made]
    for _, output in untouched:
        model.graph.output.remove(output)
    return untouched


def _constants_of(model: ModelProto, blocked: Collection[str]) -> Iterator[str]:
    """The names of constant nodes that only blocked nodes read."""
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
    tidied = ir.from_proto(model)
    for graph in tidied.graphs():
        for node in list(graph):
            source = _source_of_round_trip(node)
            if source is not None:
                node.replace_input_with(0, source)
    common.TopologicalSortPass()(tidied)
    common.RemoveUnusedNodesPass()(tidied)
    return ir.to_proto(tidied)


def _move_casts_inside(graph: GraphProto) -> None:
    """Move casts next to what they cast: the converter puts all into the outermost graph, also those of values
    inside a branch or a body."""
    home = {name: inner for inner in graphs(graph) if inner is not graph for name in _made_in(inner)}
    for cast in list(graph.node) if home else ():
        inner = home.get(cast.input[0]) if cast.op_type == "Cast" else None
        if inner is not None:
            inner.node.append(cast)
            home[cast.output[0]] = inner
            graph.node.remove(cast)


def _made_in(graph: GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (initializer.name for initializer in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _drop_repeated_casts(graph: GraphProto) -> None:
    """Drop casts whose output is made already: for two kept nodes that read the same value the converter makes the
    same cast twice."""
    made: set[str] = set()
    for node in list(graph.node):
        if node.op_type == "Cast" and node.output[0] in made:
            graph.node.remove(node)
        made.update(node.output)


def _source_of_round_trip(node: Node) -> Value | None:
    """Return the fp32 value behind a cast to fp16 and back, or None."""
    import onnx_ir as ir

    def casts_to(node: Node, dtype: DataType) -> bool:
        return node.op_type == "Cast" and node.attributes["to"].as_int() == dtype

    before = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    # Only casts that the converter made: a cast that the module itself makes is meant to round.
    name = "" if before is None else before.name or ""
    ours = name.endswith("_cast_to_fp16_node") or name.startswith("graph_input_cast")
    if before is None or not ours:
        return None
    both = casts_to(node, ir.DataType.FLOAT) and casts_to(before, ir.DataType.FLOAT16)
    return before.inputs[0] if both else None
