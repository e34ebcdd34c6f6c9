"""Match the tensors of two files, or of one file and a runtime, by values, names and structure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.diagnose.nodes.loss import sqnr
from conformance.diagnose.nodes.sides import FileTensors, inner_names
from conformance.process.arrays import Array
from conformance.runtimes.onnxgraph.reads import operator_of

NEAR = 20.0
"""Decibels from which on two tensors of other names and one shape stand for each other in a converted file."""
_CARRY = {"Cast", "DequantizeLinear", "Identity", "QuantizeLinear"}
"""Operators that give on what they are given, in another type."""


def matched(one: FileTensors, other: FileTensors) -> dict[str, str]:
    """Return each tensor of the second side that has the values of one of the first, with its name there: those of
    one name first, and then any of many values."""
    by_shape: dict[object, list[str]] = {}
    for name, array in one.tensors.items():
        by_shape.setdefault(getattr(array, "shape", None), []).append(name)
    found = {}
    for name, array in other.tensors.items():
        if name in one.tensors and one.off(name, array) <= 1:
            found[name] = name
        elif _tells(array):
            likes = (like for like in by_shape.get(array.shape, ()) if one.off(like, array) <= 1)
            like = next(likes, None)
            if like is not None:
                found[name] = like
    return found


def _tells(array: object) -> bool:
    """Return whether the values of an array tell it from others."""
    return isinstance(array, np.ndarray) and array.size > 1 and bool(np.any(array != array.flat[0]))


def by_structure(one: FileTensors, other: FileTensors, found: Mapping[str, str]) -> dict[str, str]:
    """Return what is ``found`` of the second side, and each tensor whose node has the operator and the inputs of one
    of the first that nothing else stands for: what is computed wrongly has neither its values nor, renamed, its
    name."""
    stands, taken = dict(found), {*found.values()}
    carried = {name: name for name in other.graph.inputs} | stands
    for node in other.graph.nodes:
        made = [name for name in node.output if name]
        computed = [carried.get(name) for name in other.computed(node)]
        if node.op_type in _CARRY and len(computed) == 1 and computed[0] is not None:
            carried = {**dict.fromkeys(made, computed[0]), **carried}
        if None in computed or not computed or any(name in stands for name in made):
            continue
        likes = [
            each for each in one.graph.nodes
            if operator_of(each) == operator_of(node) and one.computed(each) == computed
            and len(each.output) == len(node.output) and not taken & {*each.output}
        ]  # fmt: skip
        if len(likes) == 1:
            new = {name: like for name, like in zip(node.output, likes[0].output, strict=True) if name and like}
            stands, carried, taken = stands | new, carried | new, taken | {*new.values()}
    return stands


def standing(one: FileTensors, other: FileTensors) -> dict[str, str]:
    """Return each tensor of a converted file that stands for one of the original, whatever its values are, with its
    name there: outputs by their place, names of one shape and kind, structure, what is nearest from ``NEAR`` on, and
    structure again."""
    found = dict(zip(other.graph.outputs, one.graph.outputs, strict=False))

    def fits(name: str, like: str) -> bool:
        got, right = other.tensors.get(name), one.tensors.get(like)
        if not isinstance(got, np.ndarray) or not isinstance(right, np.ndarray):
            return False
        return got.shape == right.shape and _kind(got) == _kind(right)

    inner = [name for name in inner_names(other.model) if name not in found]
    used = {name: dequantized(other, name) or name for name in inner}
    found |= {used[name]: name for name in inner if name not in found.values() and fits(used[name], name)}
    found = by_structure(one, other, found)
    left = [like for like in inner_names(one.model) if like not in found.values() and _tells(one.tensors.get(like))]
    for name in inner:
        fitting = [] if name in found else [like for like in left if fits(name, like)]
        near = {like: sqnr([other.tensors[name]], [one.tensors[like]]) for like in fitting}
        like = max(near, key=lambda each: near[each], default=None)
        if like is not None and near[like] >= NEAR and _tells(other.tensors[name]):
            found[name] = like
            left.remove(like)
    stands = by_structure(one, other, found)
    return {name: like for name, like in stands.items() if fits(name, like)}


def dequantized(other: FileTensors, name: str) -> str | None:
    """Return what is dequantized again of a tensor that is only quantized; None for any other. It stands for the
    tensor in what is computed of it: its range may be what the original clips it to."""
    graph = other.graph
    quantizing = [graph.nodes[index] for index in graph.readers.get(name, ())]
    if len(quantizing) != 1 or quantizing[0].op_type != "QuantizeLinear" or name in graph.outputs:
        return None
    behind = [graph.nodes[index] for index in graph.readers.get(quantizing[0].output[0], ())]
    same = len(behind) == 1 and behind[0].op_type == "DequantizeLinear"
    return str(behind[0].output[0]) if same else None


def _kind(array: Array) -> str:
    return array.dtype.kind.replace("V", "f")  # as NumPy knows no bfloat16
