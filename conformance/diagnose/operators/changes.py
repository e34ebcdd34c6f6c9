"""Small changes of a graph's nodes, in what a wrong symbolic gets wrong: an attribute, an input, a constant, the
operator itself, an attribute, an input or a node that is missing. Numbers are those that a maintainer could write."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.diagnose.nodes.forms import words_of
from conformance.diagnose.operators.alike import ALIKE, COMMUTATIVE, COUNTS, FLAGS, INSERTED, KNOWN, SIBLINGS, TYPES
from conformance.diagnose.operators.scene import (
    ENTRIES,
    NodeChange,
    Scene,
    keep_whole,
    list_casts,
    list_orders,
    make_change,
    name_type,
    write_value,
)
from conformance.process.arrays import Array
from conformance.runtimes.onnxgraph import node_edits
from conformance.runtimes.onnxgraph.reads import first_output, plain

if TYPE_CHECKING:
    from onnx import NodeProto


NEAR = (1, -1, 2, -2)
"""By how much a whole number is changed."""


def changes(scene: Scene) -> Iterator[Iterator[NodeChange]]:
    """All changes by kind, the likeliest kinds first, and of each kind the last nodes first, but of what is inserted
    the first: what is forgotten mostly belongs to what PyTorch's operator is given."""
    backward = [index for index in reversed(range(len(scene.nodes))) if scene.nodes[index].op_type != "Constant"]
    constants, formulas = (partial(_other_constants, others) for others in (_of_the_call, _of_formulas))
    for kind in (_attributes, _swapped, constants, _operators, added, lacking, inserted, formulas, _replaced):
        order = backward[::-1] if kind is inserted else backward
        yield itertools.chain.from_iterable(map(partial(kind, scene), order))


def _attributes(scene: Scene, index: int) -> Iterator[NodeChange]:
    node = scene.nodes[index]
    for attribute in node.attribute:
        value, name = plain(attribute), attribute.name
        if name in COUNTS:
            continue
        for other in _others(node.op_type, name, value, scene):
            was, now = (write_value(one) if name != "to" else name_type(one) for one in (value, other))
            yield make_change(
                first_output(node), name, f"its {name} {now} instead of {was}", node_edits.set_attribute, name, other
            )
        if name not in TYPES and isinstance(value, str | int | float | list):
            what = f"without its {name} {write_value(value)}"
            yield make_change(first_output(node), name, what, node_edits.drop_attribute, name)


def _others(operator: str, name: str, value: Any, scene: Scene) -> list[Any]:
    """Values that an attribute may have had to have."""
    from onnx import helper

    found: list[Any] = []
    numbers = scene.numbers
    if isinstance(value, str):
        found = words_of(operator, name)
    elif isinstance(value, float):  # as an attribute holds it
        found = [float(np.float32(one)) for one in (*numbers, *KNOWN)]
    elif name == "to":
        found = list_casts(scene, np.dtype(helper.tensor_dtype_to_np_dtype(value)).kind)
    elif isinstance(value, int) and name in FLAGS:
        found = [1 - value]
    elif isinstance(value, int) and name not in TYPES:
        found = [value + step for step in NEAR] + keep_whole(numbers)
    elif isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        found = _lists(value, scene) if name != "perm" else list_orders(value)
    return [one for place, one in enumerate(found) if one != value and one not in found[:place]]


def _derived(numbers: Sequence[float]) -> list[float]:
    """Return what a formula makes of numbers: them negated, their inverses, what is missing to 1."""
    return [*(-one for one in numbers), *(1 / one for one in numbers if one), *(1 - one for one in numbers)]


def _lists(value: list[int], scene: Scene) -> list[list[int]]:
    """Those that PyTorch's operator is called with, or these in another order, or with one of them changed."""
    half = len(value) // 2
    pads = [_pads(one, half) for one in scene.lists if len(one) <= len(value) and len(one) % 2 == 0]
    found = [one for one in (*scene.lists, *(2 * one for one in scene.lists), *pads) if len(one) == len(value)]
    found += [value[::-1], [*value[half:], *value[:half]], [-one for one in value]]
    whole = keep_whole(scene.numbers)
    for at, one in enumerate(value[:ENTRIES]):
        for other in (*(one + step for step in NEAR), -one, *whole):
            found.append([*value[:at], other, *value[at + 1 :]])
    return found


def _pads(pairs: list[int], axes: int) -> list[int]:
    """Return what PyTorch pads axes by, a pair each from the last, as ONNX has it: the beginnings, then the ends."""
    none = [0] * (axes - len(pairs) // 2)
    return [*none, *pairs[-2::-2], *none, *pairs[::-2]]


def _swapped(scene: Scene, index: int) -> Iterator[NodeChange]:
    node = scene.nodes[index]
    for left, right in itertools.combinations(range(len(node.input)), 2) if node.op_type not in COMMUTATIVE else ():
        one, other = (scene.values.get(node.input[slot]) for slot in (left, right))
        if (
            node.input[left] != node.input[right]
            and one is not None
            and other is not None
            and one.dtype == other.dtype
        ):
            place = f"inputs {left} and {right}"
            yield make_change(
                first_output(node), place, f"its {place} the other way round", node_edits.swap_inputs, left, right
            )


def _other_constants(
    others: Callable[[list[object], Scene], Iterator[list[object]]], scene: Scene, index: int
) -> Iterator[NodeChange]:
    """Another small constant in the place of one; whoever else reads that keeps it."""
    node = scene.nodes[index]
    for slot, name in enumerate(node.input):
        value = scene.constants.get(name)
        if value is None or value.size > ENTRIES or not value.size:
            continue
        seen = [value]
        for flat in others(value.reshape(-1).tolist(), scene):
            with contextlib.suppress(OverflowError), np.errstate(over="ignore"):  # what the type does not hold
                other = np.asarray(flat, dtype=value.dtype).reshape(value.shape)
                if not any(np.array_equal(other, one) for one in seen):
                    seen.append(other)
                    what = f"its input {slot} {write_value(other.tolist())} instead of {write_value(value.tolist())}"
                    yield make_change(first_output(node), f"input {slot}", what, node_edits.set_constant, slot, other)


def _of_the_call(flat: list[Any], scene: Scene) -> Iterator[list[Any]]:
    """Constants as PyTorch's operator is called with, or could be."""
    if isinstance(flat[0], bool):
        yield [not one for one in flat]
    elif isinstance(flat[0], int):
        yield from _lists(flat, scene)
    elif isinstance(flat[0], float):
        yield from _one_each(flat, scene.numbers)


def _of_formulas(flat: list[Any], scene: Scene) -> Iterator[list[Any]]:
    """Constants with numbers that formulas have or make of those of the call, and counts that are off by one."""
    if isinstance(flat[0], float):
        most = (float(np.finfo(np.float32).max), float(np.finfo(np.float32).min))
        known = (*KNOWN, *most) if len(flat) == 1 else (0.0, 1.0)
        counts = [one + step for one in flat if one.is_integer() for step in (1, -1)]
        yield from _one_each(flat, [*_derived(scene.numbers), *known, *counts])


def _one_each(flat: list[float], numbers: Sequence[float]) -> Iterator[list[float]]:
    """Each of the numbers in each place."""
    for one in numbers:
        for place in range(len(flat)):
            yield [*flat[:place], one, *flat[place + 1 :]]


def _operators(scene: Scene, index: int) -> Iterator[NodeChange]:
    node = scene.nodes[index]
    groups = [group for group in (*SIBLINGS, *ALIKE) if node.op_type in group]
    alike = dict.fromkeys(one for group in groups for one in group if one != node.op_type)
    if node.op_type != "Identity" and _bypasses(scene, node):
        alike["Identity"] = None
    for other in alike:
        what = f"{other} instead of {node.op_type}" if other != "Identity" else "left out"
        yield make_change(
            first_output(node), "operator", what, node_edits.set_operator, other, _known(other, scene.opset)
        )


def _known(operator: str, opset: int) -> Set[str]:
    """The attributes that an operator may have."""
    from onnx import defs

    return {*defs.get_schema(operator, opset, "").attributes} if defs.has(operator, opset) else set()


def _bypasses(scene: Scene, node: NodeProto) -> bool:
    """Return whether what a node gives is like its first input, which could be handed on in its place."""
    given = scene.values.get(node.input[0]) if node.input else None
    made = scene.values.get(first_output(node))
    if given is None or len(node.output) != 1:
        return False
    return made is None or (given.dtype, given.ndim) == (made.dtype, made.ndim)


def _replaced(scene: Scene, index: int) -> Iterator[NodeChange]:
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
                what = f"its input {slot} {other} instead of {name}"
                yield make_change(first_output(node), f"input {slot}", what, node_edits.set_input, slot, other)


_NUMBERS = 4
"""How many of the numbers that an operator is called with a node may lack."""


def added(scene: Scene, index: int) -> Iterator[NodeChange]:
    """An attribute that the operator may have, and the node has not."""
    from onnx import defs

    node = scene.nodes[index]
    if node.domain or not defs.has(node.op_type, scene.opset):
        return
    has = {one.name for one in node.attribute}
    axes = max((scene.values[name].ndim for name in node.input if name in scene.values), default=0)
    for name, known in defs.get_schema(node.op_type, scene.opset, "").attributes.items():
        if name in has | TYPES | COUNTS:
            continue
        values: list[Any] = []
        default = plain(known.default_value) if known.default_value.type else None
        if known.type == defs.OpSchema.AttrType.INT:
            values = [0, 1] if name in FLAGS else [*range(-axes, axes + 1), *keep_whole(scene.numbers)]
        elif known.type == defs.OpSchema.AttrType.STRING:
            values = words_of(node.op_type, name)
        elif known.type == defs.OpSchema.AttrType.FLOAT:
            values = [float(np.float32(one)) for one in (*scene.numbers, *KNOWN)]
        elif name == "axes":
            values = [[axis] for axis in range(-1, axes)]
        elif name == "perm":
            values = list_orders(list(range(axes)))
        elif known.type == defs.OpSchema.AttrType.INTS:  # pads have an end for each beginning
            values = [*scene.lists, *(2 * one for one in scene.lists)]
        for value in values:
            if value == default:
                continue
            lacks = f"{name} {write_value(value)}"
            what = f"with {lacks}, which it lacks"
            yield make_change(first_output(node), name, what, node_edits.set_attribute, name, value, lacks=lacks)


def lacking(scene: Scene, index: int) -> Iterator[NodeChange]:
    """A number as an input that the operator may have, and the node has not."""
    from onnx import defs

    node = scene.nodes[index]
    if node.domain or not defs.has(node.op_type, scene.opset):
        return
    schema = defs.get_schema(node.op_type, scene.opset, "")
    first = scene.values.get(node.input[0]) if node.input else None
    numbers = dict.fromkeys([*keep_whole(scene.numbers), *range(-1, 0 if first is None else first.ndim)])
    for slot, known in enumerate(schema.inputs):
        if known.option != defs.OpSchema.FormalParameterOption.Optional or "".join(node.input[slot : slot + 1]):
            continue
        values: list[Array] = []
        if first is not None and known.type_str == schema.inputs[0].type_str:
            values = [np.asarray(one, first.dtype) for one in scene.numbers] if first.dtype.kind in "fi" else []
        elif known.type_str == "tensor(int64)" or known.name in ("axes", "steps"):
            values = [np.asarray(one, np.int64) for number in numbers for one in ([number], number)]
        for value in values:
            lacks = f"the {known.name} {write_value(value.tolist())}"
            what, place = f"with {lacks}, which it lacks", f"input {slot}"
            yield make_change(first_output(node), place, what, node_edits.set_constant, slot, value, lacks=lacks)


@dataclass(frozen=True)
class _New:
    """A node that may be missing behind a tensor."""

    operator: str
    numbers: tuple[float | None, ...] = ()
    """Its inputs after the first, None for one that it lacks."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    told: str = ""
    """More of it than its operator, as ``to INT64``."""

    def __str__(self) -> str:
        return f"{self.operator} {self.told}".rstrip()

    def at(self, slot: int | None, dtype: object) -> tuple[object, ...]:
        """Return what ``node_edits.insert`` takes."""
        return slot, self.operator, self.numbers, self.attributes, dtype


def inserted(scene: Scene, index: int) -> Iterator[NodeChange]:
    """A node before an input; after the node, where not exactly one other reads what it gives. Where the nodes begin
    and end more are tried than between them."""
    node, made = scene.nodes[index], first_output(scene.nodes[index])
    between = {name for one in scene.nodes for name in one.output} - scene.given
    for slot, name in enumerate(node.input):
        value = scene.values.get(name)
        if value is not None and (name not in scene.constants or value.size > ENTRIES):
            for new in _nodes(scene, value, name not in between):
                what = f"with {new} before its input {slot}"
                yield make_change(made, f"input {slot}", what, node_edits.insert, *new.at(slot, value.dtype))
    value = scene.values.get(made)
    if value is not None and (made in scene.given or sum([*one.input].count(made) for one in scene.nodes) != 1):
        for new in _nodes(scene, value, made not in between):
            yield make_change(made, "output", f"with {new} after it", node_edits.insert, *new.at(None, value.dtype))


def _nodes(scene: Scene, value: Array, at_an_end: bool) -> Iterator[_New]:
    if value.dtype.kind == "i" and not at_an_end:  # sizes mostly
        return
    for operator in INSERTED.get(value.dtype.kind, ()):
        yield _New(operator)
    for to in list_casts(scene, value.dtype.kind):
        yield _New("Cast", attributes={"to": to}, told=f"to {name_type(to)}")
    if not at_an_end:
        return
    if value.ndim > 1:
        last = value.ndim - 1
        yield _New("Transpose", attributes={"perm": [*range(last - 1), last, last - 1]}, told="of the last two axes")
    numbers = scene.numbers[:_NUMBERS] if value.dtype.kind == "f" else []
    for one in numbers:
        yield _New("Clip", (one,), told=f"from {one}")
        yield _New("Clip", (None, one), told=f"to {one}")
        yield _New("Mul", (one,), told=f"by {one}")
        yield _New("Add", (one,), told=f"of {one}")
    for low, high in itertools.permutations(numbers, 2):
        if low < high:
            yield _New("Clip", (low, high), told=f"from {low} to {high}")
