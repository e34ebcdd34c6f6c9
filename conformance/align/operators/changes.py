"""Small changes of a graph's nodes, in what a wrong symbolic gets wrong: an attribute, an input, a constant, the
operator itself, a node that is missing. Numbers are those that a maintainer could write."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.align.operators.alike import ALIKE, COMMUTATIVE, COUNTS, FLAGS, KNOWN, SIBLINGS, TYPES
from conformance.align.operators.missing import added, inserted, lacking
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
from conformance.onnxgraph import node_edits
from conformance.onnxgraph.reads import first_output, plain
from conformance.verdict.forms import words_of

if TYPE_CHECKING:
    from onnx import NodeProto

NEAR = (1, -1, 2, -2)
"""By how much a whole number is changed."""


def changes(scene: Scene) -> Iterator[Iterator[Change]]:
    """All changes by kind, the likeliest kinds first, and of each kind the last nodes first, but of what is inserted
    the first: what is forgotten mostly belongs to what PyTorch's operator is given."""
    backward = [index for index in reversed(range(len(scene.nodes))) if scene.nodes[index].op_type != "Constant"]
    for kind in (_attributes, _swapped, _constants, _operators, added, lacking, inserted, _formulas, _replaced):
        order = backward[::-1] if kind is inserted else backward
        yield itertools.chain.from_iterable(map(partial(kind, scene), order))


def _attributes(scene: Scene, index: int) -> Iterator[Change]:
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
            place = f"inputs {left} and {right}"
            yield make_change(
                first_output(node), place, f"its {place} the other way round", node_edits.swap_inputs, left, right
            )


def _constants(scene: Scene, index: int) -> Iterator[Change]:
    """Another small constant in the place of one; whoever else reads that keeps it."""
    yield from _other_constants(scene, index, _of_the_call)


def _formulas(scene: Scene, index: int) -> Iterator[Change]:
    """The same with numbers that formulas have."""
    yield from _other_constants(scene, index, _of_formulas)


def _other_constants(
    scene: Scene, index: int, others: Callable[[list[Any], Scene], Iterator[list[Any]]]
) -> Iterator[Change]:
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


def _operators(scene: Scene, index: int) -> Iterator[Change]:
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
                what = f"its input {slot} {other} instead of {name}"
                yield make_change(first_output(node), f"input {slot}", what, node_edits.set_input, slot, other)
