"""Find what the inputs of a graph are for: which operators read them, and at which place.

A size, an axis or an index reaches the operator that it is meant for through operators that only hand values on
(Cast, Reshape, Unsqueeze), through those that put several together (Concat), into the bodies of loops and branches,
and into functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import inside

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

_HANDED_ON = ("Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Optional", "Relu")
"""Operators whose first output has the values of their first input, in the same order."""
_PARTS = ("Concat", "Gather", "Slice", "Split", "ScatterElements", "ScatterND", "Where", "Min", "Max")
"""Operators whose output has values of their inputs, among others or only some of them."""
_SELECTED = ("Gather", "Slice", "Split", "ScatterElements", "ScatterND")
"""Those of which the first input alone is handed on."""
_DEEPEST = 40


@dataclass(frozen=True)
class Use:
    """An operator that reads the values of an input."""

    node: NodeProto
    place: int
    """The place among the operator's inputs."""
    part: bool
    """Whether it reads only some of them, or others too."""
    scope: _Scope


@dataclass
class _Scope:
    """A graph, or a function for one of its calls, with the readers of each tensor in it and in what is inside."""

    readers: dict[str, list[NodeProto]] = field(default_factory=dict)
    functions: Mapping[tuple[str, str], FunctionProto] = field(default_factory=dict)
    top: bool = True
    """Whether names are those of the model's own graph and of what is inside of it."""

    def add(self, graph: GraphProto | FunctionProto) -> _Scope:
        for node in graph.node:
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)
            for inner in inside(node):
                self.add(inner)
        return self


def uses(model: ModelProto) -> dict[str, list[Use]]:
    """Return who reads each input of a model's graph, by its name."""
    scope = _Scope(functions={(one.domain, one.name): one for one in model.functions}).add(model.graph)
    return {value.name: [*_uses(scope, value.name, False, 0)] for value in model.graph.input}


def _uses(scope: _Scope, name: str, part: bool, depth: int) -> Iterator[Use]:
    for node in scope.readers.get(name, ()) if depth < _DEEPEST else ():
        for place, read in enumerate(node.input):
            if read == name:
                yield from _beyond(scope, Use(node, place, part, scope), depth + 1)


def _beyond(scope: _Scope, use: Use, depth: int) -> Iterator[Use]:
    """Yield the use itself, and those of what its node makes of the values."""
    node, place, part = use.node, use.place, use.part
    yield use
    called = scope.functions.get((node.domain, node.op_type))
    if called is not None:
        if place < len(called.input):
            inner = _Scope(functions=scope.functions, top=False).add(called)
            yield from _uses(inner, called.input[place], part, depth)
        return
    if node.op_type in ("Loop", "Scan"):
        for body in inside(node):
            if place < len(body.input) and not (node.op_type == "Loop" and place == 0):
                yield from _uses(scope, body.input[place].name, part or node.op_type == "Scan", depth)
    elif node.op_type in _HANDED_ON and place == 0:
        yield from _uses(scope, node.output[0], part, depth)
    elif node.op_type in _PARTS and (place == 0 or node.op_type not in _SELECTED):
        for output in filter(None, node.output):
            yield from _uses(scope, output, True, depth)
