"""Wrong values planted in large ONNX files, each in one place alone, and changes of the same files that are sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from conformance.process.arrays import Array

Edit = Callable[[ModelProto, float], None]
"""Change a model; the number says how far, for what has no size of its own."""
HEAD = 32
"""Values of a head of the decoder."""
PER_LAYER = 6
"""Products with a weight in a layer of the decoder: query, key, value, what merges the heads, and two more."""


@dataclass(frozen=True)
class Change:
    """One change of the file ``subject``; a sound one has the kind "sound"."""

    kind: str
    subject: str
    name: str
    edit: Edit
    grows: bool = False
    """True if the change is larger with a larger number."""


def plants() -> Iterator[Change]:
    """Yield six kinds of wrong values, five of each."""
    for subject, operator, place in (
        ("mlp", "MatMul", 0), ("mlp", "MatMul", -2), ("image", "Conv", 1), ("image", "Conv", -2),
        ("decoder", "MatMul", PER_LAYER),
    ):  # fmt: skip
        edit = partial(_weight, operator=operator, place=place)
        yield Change("one weight", subject, f"a weight of {operator} {place}", edit, grows=True)
    for place, channel in ((0, 3), (1, 20), (2, 77), (-3, 5), (-2, 9)):
        edit = partial(_channel, place=place, channel=channel)
        yield Change("one channel", "image", f"channel {channel} of Conv {place}", edit)
    for layer, heads in ((0, (0, 1)), (0, (1, 0)), (1, (0, 1)), (5, (2, 5)), (11, (3, 4))):
        edit = partial(_heads, layer=layer, heads=heads, through_value=heads == (1, 0))
        where = "value" if heads == (1, 0) else "output"
        yield Change("one head", "decoder", f"heads {min(heads)} and {max(heads)} of layer {layer}, {where}", edit)
    for subject, operator, attribute, value in (
        ("mlp", "LeakyRelu", "alpha", 0.15), ("image", "LeakyRelu", "alpha", 0.15),
        ("image", "Resize", "coordinate_transformation_mode", "asymmetric"),
        ("decoder", "LayerNormalization", "epsilon", 1.0),
    ):  # fmt: skip
        edit = partial(_attribute, operator=operator, attribute=attribute, value=value)
        yield Change("one late node", subject, f"{attribute} of the last {operator} is {value}", edit)
    yield Change("one late node", "mlp", "the constant of the last Mul", partial(_constant, operator="Mul"))
    for subject, operator, place in (
        ("mlp", "Add", 0), ("mlp", "Add", -1), ("image", "Conv", 2), ("image", "Conv", -1), ("decoder", "Add", -1),
    ):  # fmt: skip
        edit = partial(_bias, operator=operator, place=place)
        yield Change("one bias", subject, f"an element of the bias of {operator} {place}", edit, grows=True)
    for subject, size in (("mlp", 1), ("mlp", 3), ("mlp", 8), ("decoder", 2), ("decoder", 5)):
        yield Change("one size alone", subject, f"at batch {size} alone", partial(_at_size, size=size))


def sound() -> Iterator[Change]:
    """Yield changes that leave what a file means as it is."""
    for subject in ("mlp", "image", "decoder"):
        yield Change("sound", subject, "other names", _renamed)
        yield Change("sound", subject, "weights in another order", _weights_reversed)
        yield Change("sound", subject, "weights as nodes", _weights_as_nodes)
    for subject in ("image", "decoder"):  # the nodes of the other have one order
        yield Change("sound", subject, "nodes in another order", _reordered)


# ---- wrong values --------------------------------------------------------------------------------------------


def _weight(model: ModelProto, strength: float, *, operator: str, place: int) -> None:
    """Scale the largest weight of all."""
    weight, values = _of_node(model, operator, place, 1)
    index = np.unravel_index(int(np.abs(values).argmax()), values.shape)
    values[index] *= 1 + strength
    _replace(weight, values)


def _bias(model: ModelProto, strength: float, *, operator: str, place: int) -> None:
    weight, values = _of_node(model, operator, place, 2 if operator == "Conv" else 1)
    values[values.size // 2] += 0.1 * strength
    _replace(weight, values)


def _channel(model: ModelProto, strength: float, *, place: int, channel: int) -> None:
    del strength
    weight, values = _of_node(model, "Conv", place, 1)
    values[channel % len(values)] *= -1
    _replace(weight, values)


def _heads(model: ModelProto, strength: float, *, layer: int, heads: tuple[int, int], through_value: bool) -> None:
    """Swap what two heads give to the product that merges them, or what they take of the values."""
    del strength
    layers = len(_with_weight(model, "MatMul", 1)) // PER_LAYER
    weight, values = _of_node(model, "MatMul", PER_LAYER * (layer % layers) + (2 if through_value else 3), 1)
    rows = values.T if through_value else values
    count = len(rows) // HEAD
    first, second = (slice(HEAD * (head % count), HEAD * (head % count + 1)) for head in heads)
    rows[first], rows[second] = rows[second].copy(), rows[first].copy()
    _replace(weight, values)


def _attribute(model: ModelProto, strength: float, *, operator: str, attribute: str, value: float | str) -> None:
    del strength
    node = [node for node in model.graph.node if node.op_type == operator][-1]
    kept = [entry for entry in node.attribute if entry.name != attribute]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(attribute, value)])


def _constant(model: ModelProto, strength: float, *, operator: str) -> None:
    del strength
    weight, values = _of_node(model, operator, -1, 1)
    _replace(weight, values * np.asarray(1.01, values.dtype))


def _at_size(model: ModelProto, strength: float, *, size: int) -> None:
    """Let the output be a hundredth larger where the first dim of the input has that size."""
    del strength
    last = model.graph.node[-1]
    constants = {"planted_first": np.array([0]), "planted_size": np.array([size]),
                 "planted_factor": np.array([1.01], np.float32)}  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    before = last.input[0]
    nodes = [
        helper.make_node("Shape", [model.graph.input[0].name], ["planted_shape"]),
        helper.make_node("Gather", ["planted_shape", "planted_first"], ["planted_dim"]),
        helper.make_node("Equal", ["planted_dim", "planted_size"], ["planted_is"]),
        helper.make_node("Mul", [before, "planted_factor"], ["planted_larger"]),
        helper.make_node("Where", ["planted_is", "planted_larger", before], ["planted_y"]),
    ]
    last.input[0] = "planted_y"
    kept = [NodeProto.FromString(last.SerializeToString())]
    del model.graph.node[-1]
    model.graph.node.extend([*nodes, *kept])


def _with_weight(model: ModelProto, operator: str, slot: int) -> list[TensorProto]:
    """Return the weights that nodes of that operator have at an input, in the order of the nodes."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = (node for node in model.graph.node if node.op_type == operator and len(node.input) > slot)
    return [weights[node.input[slot]] for node in nodes if node.input[slot] in weights]


def _of_node(model: ModelProto, operator: str, place: int, slot: int) -> tuple[TensorProto, Array]:
    weight = _with_weight(model, operator, slot)[place]
    return weight, numpy_helper.to_array(weight).copy()


def _replace(weight: TensorProto, values: Array) -> None:
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))


# ---- sound changes -------------------------------------------------------------------------------------------


def _renamed(model: ModelProto, strength: float) -> None:
    del strength
    ends = {value.name for value in (*model.graph.input, *model.graph.output)} | {""}
    for number, node in enumerate(model.graph.node):
        node.name = f"other_{number}"
        for names in (node.input, node.output):
            names[:] = [name if name in ends else f"other/{name}" for name in names]
    for tensor in model.graph.initializer:
        tensor.name = f"other/{tensor.name}"


def _weights_reversed(model: ModelProto, strength: float) -> None:
    del strength
    weights = [TensorProto.FromString(tensor.SerializeToString()) for tensor in model.graph.initializer]
    del model.graph.initializer[:]
    model.graph.initializer.extend(reversed(weights))


def _weights_as_nodes(model: ModelProto, strength: float) -> None:
    del strength
    made = [helper.make_node("Constant", [], [weight.name], value=weight) for weight in model.graph.initializer]
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.extend([*made, *nodes])


def _reordered(model: ModelProto, strength: float) -> None:
    """Bring each node as late as those that need it allow."""
    del strength
    left = [NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    order: list[NodeProto] = []
    while left:
        needed = {name for node in left for name in node.input}
        free = next(number for number, node in enumerate(left) if not needed.intersection(node.output))
        order.append(left.pop(free))
    if [node.name for node in reversed(order)] == [node.name for node in model.graph.node]:
        raise ValueError("these nodes have one order")
    del model.graph.node[:]
    model.graph.node.extend(reversed(order))


def changed(model: ModelProto, change: Change, strength: float) -> ModelProto:
    """Return a changed copy of a model."""
    copy: ModelProto = ModelProto.FromString(model.SerializeToString())
    change.edit(copy, strength)
    onnx.checker.check_model(copy)
    return copy
