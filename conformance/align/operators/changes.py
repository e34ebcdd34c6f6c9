"""Small changes of a graph's nodes, in what a wrong symbolic gets wrong: an attribute, an input, a constant, the
operator itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.arrays import Array

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto

WORDS = {
    ("DepthToSpace", "mode"): ["DCR", "CRD"],
    ("Gelu", "approximate"): ["none", "tanh"],
    ("GridSample", "mode"): ["bilinear", "linear", "nearest", "bicubic", "cubic"],
    ("GridSample", "padding_mode"): ["zeros", "border", "reflection"],
    ("Pad", "mode"): ["constant", "reflect", "edge", "wrap"],
    ("Resize", "coordinate_transformation_mode"): [
        "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric",
    ],
    ("Resize", "mode"): ["nearest", "linear", "cubic"],
    ("Resize", "nearest_mode"): ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"],
    ("ScatterElements", "reduction"): ["none", "add", "mul", "max", "min"],
    ("ScatterND", "reduction"): ["none", "add", "mul", "max", "min"],
}  # fmt: skip
FLAGS = {
    "align_corners", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "exclude_outside", "fmod",
    "exclusive", "keepdims", "largest", "noop_with_empty_axes", "reverse", "select_last_index", "sorted", "transA",
    "storage_order", "training_mode", "transB",
}  # fmt: skip
TYPES = {"dtype", "saturate", "stash_type", "to"}
"""Attributes that say in which type to compute; another one does not load, or is a question of precision."""
COMMUTATIVE = {"Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"}
SIBLINGS = [
    ("Add", "Sub"), ("Mul", "Div"), ("Max", "Min"), ("Floor", "Round", "Ceil"), ("Less", "LessOrEqual"),
    ("Greater", "GreaterOrEqual"), ("ReduceMean", "ReduceSum", "ReduceMax"), ("ReduceMax", "ReduceMin"),
    ("ReduceL2", "ReduceL1"), ("ReduceLogSumExp", "ReduceLogSum"), ("ArgMax", "ArgMin"), ("Relu", "LeakyRelu", "Elu"),
    ("Erf", "Tanh"), ("Sigmoid", "HardSigmoid"), ("And", "Or", "Xor"), ("Softmax", "LogSoftmax"),
    ("Asinh", "Sinh", "Asin"), ("Exp", "Expm1"), ("Abs", "Neg"), ("Sin", "Cos"), ("HardSwish", "Mish"),
    ("Softplus", "Softsign"), ("GlobalAveragePool", "GlobalMaxPool"), ("IsNaN", "IsInf"), ("Sign", "Abs"),
    ("MaxPool", "AveragePool"), ("Sqrt", "Abs"),
]  # fmt: skip
"""Operators that take and give the same, and are mistaken for one another."""
_ALIKE = [
    ("Add", "Sub", "Mul", "Div"), ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    ("Identity", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Floor", "Ceil", "Round", "Sign", "Relu",
     "Sigmoid", "Tanh"),
    ("Identity", "Not"), ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"),
    ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "Softplus", "Mish", "HardSwish", "HardSigmoid", "Sigmoid"),
]  # fmt: skip
"""More of them: any of these may be tried in place of another where it costs nothing that most do not fit."""
ENTRIES = 8
"""Constants of at most so many elements are changed in each of them."""
NEAR = (1, -1, 2, -2)
"""By how much a whole number is changed."""
_PERMUTED = 4
"""Axes up to which all orders of them are tried; of more, neighbours change places."""


@dataclass(frozen=True)
class Change:
    """A change of a node; that of a constant is told at the node that reads it."""

    made: str
    """The first output of the node, by which it is known in any graph that has it."""
    what: str
    """``axis is 1 instead of 2``."""
    apply: Callable[[GraphProto], None]
    """Makes the change in a graph that has the node."""


@dataclass(frozen=True)
class Scene:
    """What can be put in place of what: the nodes, and the values that their tensors have at one input."""

    nodes: Sequence[NodeProto]
    """In an order in which they can be computed."""
    values: Mapping[str, Array]
    """By name: what the nodes are computed of, constants included, and what they give, as far as that is known."""
    constants: Mapping[str, Array]
    """Those of the values that are fixed in the graph."""
    numbers: Sequence[float]
    """What PyTorch's operator is called with besides tensors: what a constant or an attribute may have to be."""
    opset: int


def changes(scene: Scene) -> Iterator[Change]:
    """All changes, the likeliest kinds first, and of each kind the last nodes first."""
    for kind in (_attributes, _swapped, _constants, _operators, _added, _replaced):
        for index in reversed(range(len(scene.nodes))):
            if scene.nodes[index].op_type != "Constant":
                yield from kind(scene, index)


def plain(attribute: AttributeProto) -> Any:
    """The value of an attribute as a number, a text, or a list."""
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return str(value.decode(errors="replace"))
    return list(value) if isinstance(value, Sequence) else value


def _change(made: str, what: str, edit: Callable[[GraphProto, NodeProto], None]) -> Change:
    def apply(graph: GraphProto) -> None:
        edit(graph, next(node for node in graph.node if made in node.output))

    return Change(made, what, apply)


def _made(node: NodeProto) -> str:
    return f"{next(name for name in node.output if name)}"


def _attributes(scene: Scene, index: int) -> Iterator[Change]:
    from onnx import helper

    node = scene.nodes[index]
    for attribute in node.attribute:
        value, name = plain(attribute), attribute.name

        def drop(graph: GraphProto, node: NodeProto, name: str = name) -> None:
            kept = [one for one in node.attribute if one.name != name]
            del node.attribute[:]
            node.attribute.extend(kept)

        for other in _others(node.op_type, name, value, scene.numbers):

            def edit(
                graph: GraphProto, node: NodeProto, name: str = name, other: Any = other, drop: Any = drop
            ) -> None:
                drop(graph, node)
                node.attribute.append(helper.make_attribute(name, other))

            yield _change(_made(node), f"its {name} {other} instead of {value}", edit)
        if name not in TYPES and isinstance(value, str | int | float | list):
            yield _change(_made(node), f"without its {name} {value}", drop)


def _others(operator: str, name: str, value: Any, numbers: Sequence[float]) -> list[Any]:
    """Values that an attribute may have had to have."""
    found: list[Any] = []
    if isinstance(value, str):
        found = list(WORDS.get((operator, name), []))
    elif isinstance(value, float):
        found = [float(one) for one in numbers] + [-value]
    elif isinstance(value, int) and name in FLAGS:
        found = [1 - value]
    elif isinstance(value, int) and name not in TYPES:
        found = [value + step for step in NEAR] + [int(one) for one in numbers if one == int(one)]
    elif isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        found = _lists(value, numbers) if name != "perm" else _orders(value)
    return [one for place, one in enumerate(found) if one != value and one not in found[:place]]


def _orders(value: list[int]) -> list[list[int]]:
    if len(value) <= _PERMUTED:
        return [list(one) for one in itertools.permutations(range(len(value)))]
    return [[*value[:at], value[at + 1], value[at], *value[at + 2 :]] for at in range(len(value) - 1)]


def _lists(value: list[int], numbers: Sequence[float]) -> list[list[int]]:
    """Whole numbers in another order, or with one of them changed."""
    half = len(value) // 2
    found = [value[::-1], [*value[half:], *value[:half]], [-one for one in value]]
    whole = [int(one) for one in numbers if one == int(one)]
    for at, one in enumerate(value[:ENTRIES]):
        for other in (*(one + step for step in NEAR), -one, *whole):
            found.append([*value[:at], other, *value[at + 1 :]])
    return found


def _added(scene: Scene, index: int) -> Iterator[Change]:
    """An attribute that the operator may have, and the node has not."""
    from onnx import defs, helper

    node = scene.nodes[index]
    if node.domain or not defs.has(node.op_type, scene.opset):
        return
    has = {one.name for one in node.attribute}
    axes = max((scene.values[name].ndim for name in node.input if name in scene.values), default=0)
    for name, known in defs.get_schema(node.op_type, scene.opset, "").attributes.items():
        if name in has | TYPES:
            continue
        values: list[Any] = []
        default = plain(known.default_value) if known.default_value.type else None
        if known.type == defs.OpSchema.AttrType.INT:
            values = [0, 1] if name in FLAGS else list(range(-axes, axes + 1))
        elif known.type == defs.OpSchema.AttrType.STRING:
            values = list(WORDS.get((node.op_type, name), []))
        elif known.type == defs.OpSchema.AttrType.FLOAT:
            values = [float(one) for one in scene.numbers]
        elif name == "axes":
            values = [[axis] for axis in range(-1, axes)]
        elif name == "perm":
            values = _orders(list(range(axes)))
        for value in values:
            if value == default:
                continue

            def edit(graph: GraphProto, node: NodeProto, name: str = name, value: Any = value) -> None:
                node.attribute.append(helper.make_attribute(name, value))

            yield _change(_made(node), f"with {name} {value}, which it lacks", edit)


def _swapped(scene: Scene, index: int) -> Iterator[Change]:
    node = scene.nodes[index]
    for left, right in itertools.combinations(range(len(node.input)), 2) if node.op_type not in COMMUTATIVE else ():
        one, other = (scene.values.get(node.input[slot]) for slot in (left, right))
        if (
            node.input[left] != node.input[right]
            and one is not None
            and other is not None
            and one.dtype == other.dtype
        ):

            def edit(graph: GraphProto, node: NodeProto, left: int = left, right: int = right) -> None:
                node.input[left], node.input[right] = node.input[right], node.input[left]

            yield _change(_made(node), f"its inputs {left} and {right} the other way round", edit)


def _constants(scene: Scene, index: int) -> Iterator[Change]:
    """Another small constant in the place of one; whoever else reads that keeps it."""
    node = scene.nodes[index]
    for slot, name in enumerate(node.input):
        value = scene.constants.get(name)
        if value is None or value.size > ENTRIES or not value.size:
            continue
        for other in _numbers(value, scene.numbers):
            what = f"its input {slot} {other.tolist()} instead of {value.tolist()}"
            yield _change(_made(node), what, _constant(slot, other))


def _constant(slot: int, value: Array) -> Callable[[GraphProto, NodeProto], None]:
    def edit(graph: GraphProto, node: NodeProto) -> None:
        from onnx import numpy_helper

        taken = {tensor.name for tensor in graph.initializer}
        name = next(one for number in itertools.count() if (one := f"changed_{number}") not in taken)
        graph.initializer.append(numpy_helper.from_array(value, name))
        node.input[slot] = name

    return edit


def _numbers(value: Array, numbers: Sequence[float]) -> list[Array]:
    """Other constants of the same type and shape."""
    flat = value.reshape(-1)
    found: list[Array] = []

    def add(values: Any) -> None:
        other = np.asarray(values, dtype=value.dtype).reshape(value.shape)
        if not np.array_equal(other, value) and not any(np.array_equal(other, one) for one in found):
            found.append(other)

    if value.dtype.kind == "b":
        add(~flat)
    elif value.dtype.kind == "i":
        limits = np.iinfo(value.dtype)
        for other in _lists(flat.tolist(), numbers):
            if limits.min <= min(other) and max(other) <= limits.max:
                add(other)
    elif value.dtype.kind == "f":
        known = flat.astype(float)
        near = [*-known, *known + 1, *known - 1, *2 * known, *known / 2, *1 / known[known != 0]]
        for one in (*numbers, *near, 0.0, 1.0):
            for place in range(flat.size):
                add([*flat[:place], one, *flat[place + 1 :]])
    return found


def _operators(scene: Scene, index: int) -> Iterator[Change]:
    node = scene.nodes[index]
    groups = [group for group in (*SIBLINGS, *_ALIKE) if node.op_type in group]
    alike = dict.fromkeys(one for group in groups for one in group if one != node.op_type)
    if node.op_type != "Identity" and _bypasses(scene, node):
        alike["Identity"] = None
    for other in alike:

        def edit(graph: GraphProto, node: NodeProto, other: str = other) -> None:
            node.op_type, node.domain = other, ""
            if other == "Identity":
                del node.input[1:], node.attribute[:]

        yield _change(_made(node), f"{other} instead of {node.op_type}" if other != "Identity" else "left out", edit)


def _bypasses(scene: Scene, node: NodeProto) -> bool:
    """Whether what a node gives is like its first input, which could be handed on in its place."""
    given = scene.values.get(node.input[0]) if node.input else None
    made = scene.values.get(_made(node))
    if given is None or len(node.output) != 1:
        return False
    return made is None or (given.dtype, given.ndim) == (made.dtype, made.ndim)


def _replaced(scene: Scene, index: int) -> Iterator[Change]:
    """Another tensor of that type, which is known before the node, the nearest first."""
    node = scene.nodes[index]
    later = {name for one in scene.nodes[index:] for name in one.output}
    before = [name for name in scene.values if name not in later]
    for slot, name in enumerate(node.input):
        value = scene.values.get(name)
        if value is None:
            continue
        for other in reversed(before):
            found = scene.values[other]
            if other != name and (found.dtype, found.ndim) == (value.dtype, value.ndim):

                def edit(graph: GraphProto, node: NodeProto, slot: int = slot, other: str = other) -> None:
                    node.input[slot] = other

                yield _change(_made(node), f"its input {slot} {other} instead of {name}", edit)
