"""The nodes among which changes are searched, and what these have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conformance.process.arrays import Array

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

ENTRIES = 8
"""Constants of at most so many elements are changed in each of them."""
PERMUTED = 4
"""Axes up to which all orders of them are tried; of more, neighbours change places."""


@dataclass(frozen=True)
class NodeChange:
    """A change of a node; that of a constant is told at the node that reads it."""

    made: str
    """The first output of the node, by which it is known in any graph that has it."""
    place: str
    """What of the node is changed, as ``axis``; of several changes at one place one is enough."""
    what: str
    """``its axis 1 instead of 2``."""
    apply: Callable[[GraphProto], None]
    """Makes the change in a graph that has the node."""
    lacks: str | None = None
    """What the node gets that it has not: ``axis 1``."""


@dataclass(frozen=True)
class Scene:
    """The nodes that can be put in place of one another, with the values of their tensors at one input."""

    nodes: Sequence[NodeProto]
    """In an order in which they can be computed."""
    values: Mapping[str, Array]
    """By name: what the nodes are computed of, constants included, and what they give, as far as that is known."""
    constants: Mapping[str, Array]
    """Those of the values that are fixed in the graph."""
    numbers: Sequence[float]
    """What PyTorch's operator is called with besides tensors: what a constant or an attribute may have to be."""
    lists: Sequence[list[int]]
    """The same, of lists of whole numbers."""
    given: Set[str]
    """What the nodes have to give."""
    opset: int


def make_change(
    made: str, place: str, what: str, edit: Callable[..., None], *arguments: object, lacks: str | None = None
) -> NodeChange:
    """Return a change of the node that makes a tensor, by one of ``node_edits``."""

    def apply(graph: GraphProto) -> None:
        edit(graph, next(node for node in graph.node if made in node.output), *arguments)

    return NodeChange(made, place, what, apply, lacks)


def write_value(value: object) -> str:
    """Write a number, or a list of them, with the digits that tell float32 values apart."""
    if isinstance(value, list):
        return f"[{', '.join(map(write_value, value))}]"
    return str(np.float32(value)) if isinstance(value, float) and np.isfinite(value) else str(value)


def name_type(number: int) -> str:
    """Return how ONNX calls a type."""
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(number))


def list_casts(scene: Scene, kind: str) -> list[int]:
    """List the types that a Cast may be to: of each kind of numbers but this one, that of a tensor around it."""
    from onnx import helper

    around = [one.dtype for one in scene.values.values()]
    kinds = {dtype.kind: dtype for dtype in reversed([*around, *map(np.dtype, ("float32", "int64", "bool"))])}
    return [helper.np_dtype_to_tensor_dtype(kinds[other]) for other in "fib" if other != kind]


def keep_whole(numbers: Sequence[float]) -> list[int]:
    """Return those of the numbers that are whole."""
    return [int(one) for one in numbers if one == int(one)]


def list_orders(value: list[int]) -> list[list[int]]:
    """List the orders in which axes may have had to be."""
    if len(value) <= PERMUTED:
        return [list(one) for one in itertools.permutations(range(len(value)))]
    return [[*value[:at], value[at + 1], value[at], *value[at + 2 :]] for at in range(len(value) - 1)]
