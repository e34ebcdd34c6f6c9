"""Find where a file parts from the one that it has to compute the same as, or a runtime from a file: the first node
with other values of the same inputs, and its weight, attribute or operator that is another.

Tensors are the same by their values: those of one name are compared first, and then any, since names may be others.
A node that a tool has rewritten has no tensor of its own in the other file, but what is computed of it has: only what
leads to a wrong output through nothing but tensors that the other file lacks is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.compare.zeros import turned
from conformance.diagnose.nodes.counterparts import by_structure, matched
from conformance.diagnose.nodes.node_walk import NodePlace
from conformance.diagnose.nodes.sides import ONE, FileTensors, literal_side, runtime_side
from conformance.process.arrays import Array, Inputs
from conformance.process.worker import aside
from conformance.runtimes.onnxgraph.reads import first_output, line_of, operator_of, plain
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import NodeProto

_SHOWN = 60


def parting(first: Path, second: Path, libraries: Sequence[str], inputs: Inputs) -> NodePlace | None:
    """Return the first node of the second file with other values; None where no output is wrong, or nothing of the
    node is another. Raises what ONNX Runtime raises, which computes both node by node."""
    beside = Beside(*(literal_side(file, libraries, inputs, LITERAL) for file in (first, second)))
    why = beside.difference(first.name)
    return None if beside.lost is None or why is None else place_of(beside.lost, "differs", why=why)


def parting_in(
    file: Path, libraries: Sequence[str], inputs: Inputs, runtime: str, right: str
) -> NodePlace | None:  # fmt: skip
    """Return the first node of which a runtime computes other values than one that is ``right``, by cuts; None where
    no output is wrong. Raises what ``right`` raises."""
    one = aside.ask(partial(literal_side, file, libraries, inputs, right), ONE)
    lost = Beside(one, runtime_side(file, libraries, inputs, runtime)).lost
    return None if lost is None else place_of(lost, "parts", by=right)


def place_of(node: NodeProto, how: str, **more: str) -> NodePlace:
    """Return the place of a node that may have no name."""
    return NodePlace(node.name or first_output(node), operator_of(node), line_of(node), how, **more)


@dataclass
class Beside:
    """A file, or a runtime, beside what is right."""

    one: FileTensors
    """What is right."""
    other: FileTensors

    def __post_init__(self) -> None:
        self.same = matched(self.one, self.other)
        """Each tensor of the other that has the values of one of the first, with its name there."""
        pairs = zip(self.other.graph.outputs, self.one.graph.outputs, strict=False)
        wrong = [name for name, like in pairs if self.one.off(like, self.other.tensors.get(name)) > 1]
        found = _first_lost(self.other, self.same, wrong)
        if found is not None and _gives_infinities(self.other, found):
            # whose signs are those of zeros, which are equal to others
            self.same = {name: like for name, like in self.same.items() if not self._turned(name, like)}
            found = _first_lost(self.other, self.same, wrong)
        self.lost = None if found is None else self.other.graph.nodes[found]
        """The first node behind a wrong output that gives other values of inputs which the first has too; None where
        no output is wrong."""

    def _turned(self, name: str, like: str) -> bool:
        got, right = self.other.tensors[name], self.one.tensors[like]
        return isinstance(got, np.ndarray) and bool(turned(got, right).any())

    @cached_property
    def stands(self) -> dict[str, str]:
        """Each tensor of the other that stands for one of the first, whatever its values are, with its name there."""
        named = {name: name for name in self.other.tensors if name not in self.same and self._alike(name)}
        return by_structure(self.one, self.other, {**named, **self.same})

    def _alike(self, name: str) -> bool:
        """Return whether both have a tensor of that name, made by one operator."""
        nodes = [side.graph.node_of(name) for side in (self.one, self.other)]
        return None not in nodes and len({operator_of(node) for node in nodes if node is not None}) == 1

    def difference(self, called: str) -> str | None:
        """Say in what that node is another than in the first file, which is ``called`` so; None where it is not."""
        return None if self.lost is None else _difference(self.one, self.other, self.lost, self.same, called)


def _gives_infinities(side: FileTensors, index: int) -> bool:
    values = (side.tensors.get(name) for name in side.graph.nodes[index].output)
    floats = (value for value in values if isinstance(value, np.ndarray) and value.dtype.kind == "f")
    return any(bool(np.isinf(value).any()) for value in floats)


def _first_lost(other: FileTensors, same: Mapping[str, str], wrong: Sequence[str]) -> int | None:
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


def _difference(
    one: FileTensors, other: FileTensors, node: NodeProto, same: Mapping[str, str], called: str
) -> str | None:
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
            found = _of_weight(other.constants[name], one.constants[known], called)
            if found is not None:
                return f"its weight {name}{found}"
        elif same.get(name, name) != known and not (name in other.constants or known in one.constants):
            return f"its input {place} is {name or 'left out'}, in {called} {known or 'left out'}"
    if len(node.input) != len(like.input):
        return f"it has {len(node.input)} inputs, in {called} {len(like.input)}"
    return None


def _counterpart(one: FileTensors, other: FileTensors, node: NodeProto, same: Mapping[str, str]) -> NodeProto | None:
    """Return the node of the first file that a node stands for: of the same output, or else of the same inputs."""
    named = next((one.graph.node_of(name) for name in node.output if one.graph.node_of(name) is not None), None)
    inputs = {same[name] for name in other.computed(node) if name in same}
    found = [each for each in one.graph.nodes if inputs and inputs & {*each.input}]
    if named is not None and (not inputs or named in found or _differs_by_inputs(one, other, node, named)):
        return named
    found.sort(key=lambda each: (operator_of(each) != operator_of(node), -len(inputs & {*each.input})))
    return found[0] if found else None


def _differs_by_inputs(one: FileTensors, other: FileTensors, node: NodeProto, like: NodeProto) -> bool:
    """Return whether two nodes of one name and output are the same but for the tensors that they compute of."""
    own, theirs = ({each.name: plain(each) for each in each_of.attribute} for each_of in (node, like))
    weights = zip(node.input, like.input, strict=False)
    return (
        (node.name, operator_of(node), len(node.input)) == (like.name, operator_of(like), len(like.input))
        and own.keys() == theirs.keys()
        and all(_equal(own[name], theirs[name]) for name in own)
        and all(_equal(other.constants.get(name), one.constants.get(known)) for name, known in weights)
    )


def _of_weight(got: Array, wanted: Array, called: str) -> str | None:
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
