"""Measure what each layer of a converted file loses itself, and with all before it together, in decibels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from conformance.diagnose.nodes.counterparts import NEAR, dequantized, standing
from conformance.diagnose.nodes.loss import sqnr
from conformance.diagnose.nodes.node_walk import NodePlace
from conformance.diagnose.nodes.second_file import place_of
from conformance.diagnose.nodes.sides import ONE, SECONDS, FileTensors
from conformance.diagnose.search import Asking, require_time, search_aside
from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.runtimes import outputs_of
from conformance.runtimes.onnxgraph.cut import cut
from conformance.runtimes.onnxgraph.reads import reads

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True)
class Layer:
    """The part of a converted file that ends with a tensor, and begins with those before it that the original has."""

    tensor: str
    like: str
    """The tensor of the original that it stands for."""
    whole: float
    """Decibels of the tensor beside that of the original; -inf where all is lost."""
    own: float | None
    """Decibels of what the part computes of the original's values; None where that does not run."""
    weights: Sequence[str] = ()
    """Sentences about weights that are as far off as the part itself."""
    computed: Array | None = None
    """The values that the part computes of the original's; None where it does not run."""


class LayeredPair:
    """A converted file, ``other``, in layers, beside its original, ``one``; a runtime computes each by itself."""

    def __init__(self, one: FileTensors, other: FileTensors, runtime: str, libraries: Sequence[str]) -> None:
        self.one, self.other, self._runtime, self._libraries = one, other, runtime, libraries
        found = standing(one, other)
        self.stands = {name: like for name, like in found.items() if name not in other.constants}
        self._known = {**self.stands, **{name: name for name in other.graph.inputs if name in one.tensors}}
        order = {name: at for at, name in enumerate(other.graph.makers)}
        named = sorted((name for name in self.stands if name in order), key=order.__getitem__)
        self._before = {
            name: self._ends(name) for name in named if isinstance(other.tensors.get(name), np.ndarray)
        }  # fmt: skip

        rounded = {dequantized(other, each): each for node in other.graph.nodes for each in node.output if each}
        self._quantized = {name: rounded[name] for name in self._before if name in rounded}

    @property
    def names(self) -> list[str]:
        """The tensors that layers end with, in the order in which they are computed."""
        return [*self._before]

    def _ends(self, name: str) -> list[str]:
        """Return the nearest tensors before one that the original has too."""
        graph, end = self.other.graph, {each for each in self._known if each != name}
        nodes = (graph.nodes[index] for index in graph.computing([name], end))
        return [*dict.fromkeys(each for node in nodes for each in reads(node) if each in end)]

    def original(self) -> dict[str, Array]:
        """Return the values that the original has for tensors of the converted file."""
        return {name: self.one.tensors[like] for name, like in self._known.items()}

    def computed(self, name: str, values: Mapping[str, Array]) -> Array:
        """Return what a layer computes of ``values``; raises what the runtime raises."""
        given = {each: values[each].astype(self.other.tensors[each].dtype) for each in self._before[name]}
        inner = {each: array for each, array in given.items() if each not in self.other.graph.inputs}
        part = cut(self.other.model, self.other.graph, [name], inner)
        return outputs_of(part, self._runtime, self._libraries, {**self.other.tensors, **given})[0]

    def nodes_of(self, name: str) -> list[NodeProto] | None:
        """Return the nodes of the original that compute what a layer stands for of what the layer is given; None
        where they need more."""
        graph, ends = self.one.graph, {self._known[each] for each in self._before[name]}
        nodes = [graph.nodes[index] for index in graph.computing([self.stands[name]], ends)]
        given = {each for node in nodes for each in reads(node)} & {*graph.inputs}
        return nodes if given <= ends else None

    def kept(self, name: str, values: Mapping[str, Array]) -> Array:
        """Return what the original computes for a layer of ``values``; raises what the runtime raises."""
        one, like = self.one, self.stands[name]
        given = {self._known[each]: values[each] for each in self._before[name]}
        given = {each: array.astype(one.tensors[each].dtype) for each, array in given.items()}
        inner = {each: array for each, array in given.items() if each not in one.graph.inputs}
        part = cut(one.model, one.graph, [like], inner)
        return outputs_of(part, self._runtime, self._libraries, {**one.tensors, **given})[0]

    def as_quantized(self, name: str, value: Array) -> Array:
        """Return what the file makes of the value of a tensor between layers; raises what the runtime raises."""
        if name not in self._quantized:
            return value
        given = {self._quantized[name]: value.astype(self.other.tensors[name].dtype)}
        part = cut(self.other.model, self.other.graph, [name], given)
        return outputs_of(part, self._runtime, self._libraries, {**self.other.tensors, **given})[0]

    def readers(self, name: str) -> set[str]:
        """Return the layers that are given the tensor that a layer ends with."""
        return {each for each, before in self._before.items() if name in before}

    def outputs_after(self, name: str, value: Array) -> list[Array]:
        """Return the outputs of the original where one tensor has another value; raises what the runtime raises."""
        one, like = self.one, self.stands[name]
        part = cut(one.model, one.graph, one.graph.outputs, {like: value.astype(one.tensors[like].dtype)})
        return outputs_of(part, self._runtime, self._libraries, {**one.tensors, like: value})


def layers(pair: LayeredPair) -> list[Layer]:
    """Return the layers of a converted file in the order in which they are computed, each of the values of the
    original."""
    one, other, values = pair.one, pair.other, pair.original()

    def every(ask: Asking, deadline: float) -> dict[str, Array | None]:
        def asked(name: str) -> Array | None:
            question = partial(pair.computed, name, values)
            return or_else(None, lambda: ask(question, min(require_time(deadline), ONE)))

        return {name: asked(name) for name in pair.names}

    computed = search_aside(every, SECONDS, ONE)
    return [_layer(one, other, name, pair.stands[name], computed[name]) for name in pair.names]


def worst_layer(pair: LayeredPair) -> NodePlace | None:
    """Return the node at which the layer ends that loses most by itself; None where none does."""
    lossy = [(layer.own, layer) for layer in layers(pair) if layer.own is not None and layer.own < math.inf]
    own, layer = min(lossy, key=lambda each: each[0], default=(0.0, None))
    node = None if layer is None else pair.other.graph.node_of(layer.tensor)
    if layer is None or node is None:
        return None
    why = f"most is lost there, {own:.1f} dB by itself and {layer.whole:.1f} dB up to it"
    return place_of(node, "loses", why=f"{why}{''.join(f'; {text}' for text in layer.weights)}")


def _layer(one: FileTensors, other: FileTensors, name: str, like: str, computed: Array | None) -> Layer:
    right = [one.tensors[like]]
    whole, own = sqnr([other.tensors[name]], right), None if computed is None else sqnr([computed], right)
    return Layer(name, like, whole, own, () if own is None else [*_weights(one, other, name, like, own)], computed)


_BY_WEIGHTS = 6.0
"""Decibels by which the weights of a layer may be nearer to the original than what it computes, to explain it."""


def _weights(one: FileTensors, other: FileTensors, name: str, like: str, own: float) -> Iterator[str]:
    """Yield the weights of a layer that are about as far off as what it computes."""
    node, original = other.graph.node_of(name), one.graph.node_of(like)
    if node is None or original is None:
        return
    for given, known in zip(node.input, original.input, strict=False):
        got, wanted = {**other.tensors, **other.constants}.get(given), one.constants.get(known)
        if wanted is None or got is None or wanted.dtype.kind != "f" or got.shape != wanted.shape or wanted.size < 2:
            continue
        left = sqnr([got], [wanted])
        if left < own + _BY_WEIGHTS:
            turned = wanted.ndim == 2 and len({*wanted.shape}) == 1 and sqnr([got.T], [wanted]) >= NEAR
            yield f"its weight {given} {'is transposed' if turned else f'has {left:.1f} dB itself'}"
