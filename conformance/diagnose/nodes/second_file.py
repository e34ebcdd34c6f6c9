"""Find where a file parts from the one that it has to compute the same as: the first node with other values of the
same inputs, and its weight, attribute or operator that is another.

Tensors are the same by their values: those of one name are compared first, and then any, since names may be others.
A node that a tool has rewritten has no tensor of its own in the other file, but what is computed of it has: only what
leads to a wrong output through nothing but tensors that the other file lacks is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.compare.close import Limit, differs
from conformance.diagnose.nodes.node_walk import NodePlace
from conformance.process.arrays import Array, Inputs
from conformance.runtimes.inner_tensors import values
from conformance.runtimes.onnxgraph.reads import Graph, initializers, line_of, operator_of, plain, reads
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_SAME = Limit(of_largest=64)
"""The difference up to which two tensors are the same: what other sums of many products make of them."""
_SHOWN = 60


def parting(
    first: Path, second: Path, libraries: Sequence[str], inputs: Inputs, runtime: str = LITERAL
) -> NodePlace | None:
    """Return the first node of the second file with other values; None where no output is wrong, or nothing of the
    node is another. Raises what the runtime raises."""
    one, other = (_Computed(file, libraries, inputs, runtime) for file in (first, second))
    same = dict(_matched(one, other))
    wrong = [
        name
        for name, like in zip(other.graph.outputs, one.graph.outputs, strict=False)
        if not _alike(other.tensors.get(name), one.tensors.get(like))
    ]
    found = _first_lost(other, same, wrong)
    if found is None:
        return None
    node = other.graph.nodes[found]
    name, why = node.name or next(filter(None, node.output), ""), _why(one, other, node, same, first.name)
    return None if why is None else NodePlace(name, operator_of(node), line_of(node), "differs", why=why)


class _Computed:
    """A file with the values of all its tensors."""

    def __init__(self, file: Path, libraries: Sequence[str], inputs: Inputs, runtime: str) -> None:
        import onnx

        model: ModelProto = onnx.load(file)
        self.graph = Graph(model)
        self.constants: dict[str, Array] = initializers(model)
        fixed = [name for node in self.graph.nodes if node.op_type == "Constant" for name in node.output]
        names = [name for node in self.graph.nodes for name in node.output if name]
        self.tensors: dict[str, Array] = {**inputs, **values(model, names, runtime, libraries, inputs)}
        self.constants |= {name: self.tensors[name] for name in fixed if name in self.tensors}

    def computed(self, node: NodeProto) -> list[str]:
        """Return what a node reads that is no constant."""
        return [name for name in reads(node) if name not in self.constants]


def _alike(got: Any, wanted: Any) -> bool:
    if not isinstance(got, np.ndarray) or not isinstance(wanted, np.ndarray):
        return got is wanted
    return differs(got, wanted, _SAME) is None


def _matched(one: _Computed, other: _Computed) -> Iterator[tuple[str, str]]:
    """Yield each tensor of the second file that the first has too, with its name there."""
    by_shape: dict[object, list[str]] = {}
    for name, array in one.tensors.items():
        by_shape.setdefault(getattr(array, "shape", None), []).append(name)
    for name, array in other.tensors.items():
        if name in one.tensors and _alike(array, one.tensors[name]):
            yield name, name
        elif isinstance(array, np.ndarray) and array.size > 1 and np.any(array != array.flat[0]):
            likes = (like for like in by_shape.get(array.shape, ()) if _alike(array, one.tensors[like]))
            like = next(likes, None)
            if like is not None:
                yield name, like


def _first_lost(other: _Computed, same: Mapping[str, str], wrong: Sequence[str]) -> int | None:
    """Return the first node behind wrong outputs that gives other values of inputs which the first file has too."""
    todo, seen, found = [*wrong], {*wrong}, []
    while todo:
        index = other.graph.makers.get(todo.pop())
        if index is None:
            continue
        lost = [name for name in other.computed(other.graph.nodes[index]) if name not in same]
        if not lost:
            found.append(index)
        todo += [name for name in lost if name not in seen]
        seen |= {*lost}
    return min(found, default=None)


def _why(one: _Computed, other: _Computed, node: NodeProto, same: Mapping[str, str], called: str) -> str | None:
    """Say in what a node is another than that of the first file; None where it is the same."""
    like = _counterpart(one, other, node, same)
    if like is None:
        return f"{called} computes its values nowhere"
    if operator_of(like) != operator_of(node):
        return f"{called} has {operator_of(like)} {like.name or like.output[0]} of the same inputs"
    own, theirs = ({each.name: plain(each) for each in one_of.attribute} for one_of in (node, like))
    for name in sorted({*own, *theirs}):
        if not _equal(own.get(name), theirs.get(name)):
            return f"its {name} is {_short(own.get(name))}, in {called} {_short(theirs.get(name))}"
    for place, (name, known) in enumerate(zip(node.input, like.input, strict=False)):
        if name in other.constants and known in one.constants:
            found = _difference(other.constants[name], one.constants[known], called)
            if found is not None:
                return f"its weight {name}{found}"
        elif same.get(name, name) != known and not (name in other.constants or known in one.constants):
            return f"its input {place} is {name or 'left out'}, in {called} {known or 'left out'}"
    if len(node.input) != len(like.input):
        return f"it has {len(node.input)} inputs, in {called} {len(like.input)}"
    return None


def _counterpart(one: _Computed, other: _Computed, node: NodeProto, same: Mapping[str, str]) -> NodeProto | None:
    """Return the node of the first file that a node stands for: of the same output, or else of the same inputs."""
    named = next((one.graph.node_of(name) for name in node.output if one.graph.node_of(name) is not None), None)
    inputs = {same[name] for name in other.computed(node) if name in same}
    found = [each for each in one.graph.nodes if inputs and inputs & {*each.input}]
    if named is not None and (not inputs or named in found):
        return named
    found.sort(key=lambda each: (operator_of(each) != operator_of(node), -len(inputs & {*each.input})))
    return found[0] if found else None


def _difference(got: Array, wanted: Array, called: str) -> str | None:
    """Say how a weight is another; None where it is the same."""
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f" is {got.dtype}{[*got.shape]}, in {called} {wanted.dtype}{[*wanted.shape]}"
    unlike = np.atleast_1d((got != wanted) & ~((got != got) & (wanted != wanted)))
    if not unlike.any():
        return None
    index = tuple(int(place) for place in np.argwhere(unlike)[0])
    at = f"{[*index]}" if got.ndim else ""
    values = (np.atleast_1d(array)[index] for array in (got, wanted))
    mine, theirs = (f"{value:.6g}" if got.dtype.kind == "f" else f"{value}" for value in values)
    return f"{at} is {mine}, in {called} {theirs} ({int(unlike.sum())} of {got.size} values differ)"


def _equal(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    return repr(one) == repr(other)


def _short(value: object) -> str:
    text = "its default" if value is None else f"{value:.6g}" if isinstance(value, float) else f"{value}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
