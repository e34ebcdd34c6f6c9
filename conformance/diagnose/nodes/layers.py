"""Measure what each layer of a converted file loses itself, and with all before it together, in decibels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.diagnose.nodes.counterparts import NEAR, standing
from conformance.diagnose.nodes.loss import sqnr
from conformance.diagnose.nodes.sides import ONE, SECONDS, FileTensors
from conformance.diagnose.search import Asking, require_time, search_aside
from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.runtimes import outputs_of
from conformance.runtimes.onnxgraph.cut import cut
from conformance.runtimes.onnxgraph.reads import reads


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


def layers(one: FileTensors, other: FileTensors, runtime: str, libraries: Sequence[str]) -> list[Layer]:
    """Return the layers of a converted file, ``other``, in the order in which they are computed; the runtime computes
    each of the values of the original, ``one``."""
    stands = standing(one, other)
    known = {**stands, **{name: name for name in other.graph.inputs if name in one.tensors}}
    parts = {name: _before(other, name, known) for name in stands if isinstance(other.tensors.get(name), np.ndarray)}

    def own(name: str) -> Array:
        given = {each: one.tensors[known[each]].astype(other.tensors[each].dtype) for each in parts[name]}
        inner = {each: array for each, array in given.items() if each not in other.graph.inputs}
        return outputs_of(
            cut(other.model, other.graph, [name], inner), runtime, libraries, {**other.tensors, **given}
        )[0]

    def every(ask: Asking, deadline: float) -> dict[str, Array | None]:
        def asked(name: str) -> Array | None:
            return or_else(None, lambda: ask(partial(own, name), min(require_time(deadline), ONE)))

        return {name: asked(name) for name in parts}

    computed = search_aside(every, SECONDS, ONE)
    order = {name: at for at, name in enumerate(other.graph.makers)}
    return [_layer(one, other, name, stands[name], computed[name]) for name in sorted(parts, key=order.__getitem__)]


def _layer(one: FileTensors, other: FileTensors, name: str, like: str, computed: Array | None) -> Layer:
    right = [one.tensors[like]]
    whole, own = sqnr([other.tensors[name]], right), None if computed is None else sqnr([computed], right)
    return Layer(name, like, whole, own, () if own is None else [*_weights(one, other, name, like, own)])


def _before(other: FileTensors, name: str, known: Mapping[str, str]) -> list[str]:
    """Return the nearest tensors before one that the original has too."""
    end = {each for each in known if each != name}
    nodes = (other.graph.nodes[index] for index in other.graph.computing([name], end))
    return [*dict.fromkeys(each for node in nodes for each in reads(node) if each in end)]


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
