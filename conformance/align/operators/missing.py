"""Changes that add what a node may lack, or a lowering around it: an attribute, an input, a node."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.align.operators.alike import COUNTS, FLAGS, INSERTED, KNOWN, TYPES
from conformance.align.operators.scene import (
    ENTRIES,
    Change,
    Scene,
    keep_whole,
    list_casts,
    list_orders,
    make_change,
    name_type,
    write_value,
)
from conformance.arrays import Array
from conformance.onnxgraph import node_edits
from conformance.onnxgraph.reads import first_output, plain
from conformance.verdict.forms import words_of

_NUMBERS = 4
"""How many of the numbers that an operator is called with a node may lack."""


def added(scene: Scene, index: int) -> Iterator[Change]:
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
            what = f"with {name} {write_value(value)}, which it lacks"
            yield make_change(first_output(node), name, what, node_edits.set_attribute, name, value)


def lacking(scene: Scene, index: int) -> Iterator[Change]:
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
            what = f"with the {known.name} {write_value(value.tolist())}, which it lacks"
            yield make_change(first_output(node), f"input {slot}", what, node_edits.set_constant, slot, value)


@dataclass(frozen=True)
class _New:
    """A node that may be missing behind a tensor."""

    operator: str
    numbers: tuple[float | None, ...] = ()
    """Its inputs after the first, None for one that it lacks."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    told: str = ""
    """More of it than its operator, as ``to INT64``."""

    def __str__(self) -> str:
        return f"{self.operator} {self.told}".rstrip()

    def at(self, slot: int | None, dtype: Any) -> tuple[Any, ...]:
        """Return what ``node_edits.insert`` takes."""
        return slot, self.operator, self.numbers, self.attributes, dtype


def inserted(scene: Scene, index: int) -> Iterator[Change]:
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
