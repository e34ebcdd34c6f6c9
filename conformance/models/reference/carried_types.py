"""Give a model an interface of types that NumPy has, in place of those of a few bits that it has not.

Numbers of bfloat16 and of 8, 4 and 2 bits are carried in float32 and int8, which hold each of them exactly: inputs
of the model are cast to their own type first, and its outputs from it last. In between nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.case.files.dims import carrier_of
from conformance.case.files.onnx_header import OPSET_OF_OTHERS, TYPES, elements_of
from conformance.runtimes.onnxgraph.reads import OWN, graphs

if TYPE_CHECKING:
    from onnx import ModelProto


_NAMES = {"float32": "FLOAT", "int8": "INT8", "uint8": "UINT8"}


def carry(model: ModelProto, *, halves: bool = False) -> ModelProto:
    """Cast the inputs and outputs of a model that NumPy has no types for, with ``halves`` those of float16 too, and
    have it take tensors alone. The model given is changed."""
    from onnx import TensorProto, helper

    if not any(entry.domain in OWN for entry in model.opset_import):  # its nodes are of other domains
        model.opset_import.add(domain="", version=OPSET_OF_OTHERS)
    _unpack(model)
    weights, given = {tensor.name for tensor in model.graph.initializer}, {value.name for value in model.graph.input}
    for values, gives in ((model.graph.input, False), (model.graph.output, True)):
        for value in values:
            kind = value.type.tensor_type
            name = TYPES.get(kind.elem_type, "")
            carrier = "float32" if halves and name == "float16" else carrier_of(name)
            passed_as_is = carrier == name or name == "string"
            if not value.type.HasField("tensor_type") or passed_as_is or (value.name in weights and not gives):
                continue
            own, inner = kind.elem_type, f"{value.name}/{name}"
            kind.elem_type = getattr(TensorProto, {"float32": "FLOAT"}.get(carrier, carrier.upper()))
            if gives and value.name in given - weights:  # which is carried already
                continue
            _rename(model, value.name, inner)
            if gives:
                model.graph.node.append(helper.make_node("Cast", [inner], [value.name], to=kind.elem_type))
            else:
                # none is too large for its own type, and an infinity is to stay one
                keep: dict[str, Any] = {"saturate": 0} if name.startswith(("float8_e4m3", "float8_e5m2")) else {}
                model.graph.node.insert(0, helper.make_node("Cast", [value.name], [inner], to=own, **keep))
    return model


def _unpack(model: ModelProto) -> None:
    """Have the model take the tensors of which a sequence or an optional input is made, and make it of these."""
    from onnx import helper

    inputs, made = list(model.graph.input), []
    del model.graph.input[:]
    for value in inputs:
        kind, given = value.type, [value.name]
        optional = kind.HasField("optional_type")
        kind = kind.optional_type.elem_type if optional else kind
        if sequence := kind.HasField("sequence_type"):
            kind, given = kind.sequence_type.elem_type, elements_of(value.name)
        if not kind.HasField("tensor_type"):
            given, optional, sequence, kind = [value.name], False, False, value.type
        model.graph.input.extend(helper.make_value_info(name, kind) for name in given)
        if optional and not sequence:
            _rename(model, value.name, f"{value.name}/optional")
            made.append(helper.make_node("Optional", given, [f"{value.name}/optional"]))
        elif sequence:
            inner = f"{value.name}/sequence" if optional else value.name
            made.append(helper.make_node("SequenceConstruct", given, [inner]))
            if optional:
                made.append(helper.make_node("Optional", [inner], [value.name]))
    for node in reversed(made):
        model.graph.node.insert(0, node)


def _rename(model: ModelProto, old: str, new: str) -> None:
    """Rename a tensor in the nodes and constants of a model's graph and in what is inside of them."""
    for tensor in model.graph.initializer:
        tensor.name = new if tensor.name == old else tensor.name
    for graph in graphs(model.graph):
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]
        for value in graph.output if graph is not model.graph else ():
            value.name = new if value.name == old else value.name
