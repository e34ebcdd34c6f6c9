"""Find the fewest layers of a converted file that give back most of what it loses when they are kept as in the
original, and say it in the words of the converter that made the file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from conformance.diagnose.nodes.layers import Layer, LayeredPair
from conformance.diagnose.nodes.loss import sqnr
from conformance.diagnose.nodes.sides import ONE, SECONDS
from conformance.diagnose.search import Asking, OutOfTime, grow, require_time, search_aside
from conformance.process.arrays import Array
from conformance.process.errors import or_else

BACK = 0.8
"""The part of the noise power of the outputs that is to be gone."""


@dataclass(frozen=True)
class Fewest:
    """Layers that are to be kept as in the original."""

    layers: Sequence[str]
    """The tensors that they end with, in the order in which they are computed."""
    before: float
    """Decibels of the output with most noise, with nothing kept."""
    after: float
    """The same with these layers kept."""
    nodes: Sequence[str]
    """The nodes of the original that compute them, constants left out."""


def fewest(pair: LayeredPair, found: Sequence[Layer]) -> Fewest | None:
    """Return the fewest layers with which ``BACK`` of the noise is gone; none of them where that takes half of the
    original's nodes. None where nothing is lost, and where it could not be computed in time.

    Noise of layers adds up, near enough to rank them by what the outputs lose where one alone is converted; what a
    set of them gives back is computed, layer by layer.
    """
    wanted = [pair.one.tensors[name] for name in pair.one.graph.outputs]
    candidates = [layer for layer in found if layer.computed is not None and pair.nodes_of(layer.tensor) is not None]

    def outputs(kept: Sequence[str]) -> list[Array]:
        values = {name: pair.other.tensors[name] for name in pair.other.graph.inputs if name in pair.other.tensors}
        for name in pair.names:
            values[name] = (pair.kept if name in kept else pair.computed)(name, values)
            if name in kept and not pair.readers(name) <= {*kept}:  # converters quantize what any such node reads
                values[name] = pair.as_quantized(name, values[name])
        return [values[name] for name in pair.other.graph.outputs]

    def search(ask: Asking, deadline: float) -> Fewest | None:
        def decibels(kept: Sequence[str]) -> float:
            return ask(lambda: sqnr(outputs(kept), wanted), min(require_time(deadline), ONE))

        def alone(layer: Layer) -> float:
            assert layer.computed is not None
            after = partial(pair.outputs_after, layer.tensor, layer.computed)
            return or_else(math.inf, lambda: sqnr(ask(after, min(require_time(deadline), ONE)), wanted))

        before = decibels([])
        if not math.isfinite(before):
            return None
        noise = {layer.tensor: alone(layer) for layer in candidates}
        ranked = sorted((name for name in noise if noise[name] < math.inf), key=noise.__getitem__)
        due = before - 10 * math.log10(1 - BACK)
        chosen = grow(ranked, lambda kept: decibels(kept) >= due) if ranked else []
        return _told(pair, chosen, before, decibels(chosen))

    try:
        return or_else(None, lambda: search_aside(search, SECONDS, ONE))
    except OutOfTime:
        return None


def _told(pair: LayeredPair, chosen: Sequence[str], before: float, after: float) -> Fewest:
    order = [name for name in pair.names if name in chosen]
    nodes = {node.name: node for name in order for node in pair.nodes_of(name) or () if node.op_type != "Constant"}
    computing = [node for node in pair.one.graph.nodes if node.op_type != "Constant"]
    spread = 2 * len(nodes) >= len(computing) or "" in nodes
    return Fewest((), before, before, ()) if spread else Fewest(order, before, after, [*nodes])


def in_words_of_converter(pair: LayeredPair, nodes: Sequence[str]) -> str:
    """Return the argument by which the converter that made the file leaves these nodes as they are.

    Most leave the name of the exporter in the file. NNCF shows by the names that it gives to nodes, what converts to
    float16 by what it adds (ONNX Runtime 1.31, ModelOpt 0.47, Olive 0.13, NNCF 3.4, onnxconverter-common 1.16).
    """
    names, own = [*nodes], {node.name for node in pair.one.graph.nodes}
    added = [node for node in pair.other.graph.nodes if node.name not in own]
    if any(node.name.startswith("DequantizeLinear_") for node in added):
        return f"nncf.IgnoredScope(names={names})"
    if all(node.op_type == "Cast" for node in added):
        return f"node_block_list={names} (convert_float_to_float16), nodes_to_exclude (AutoCast)"
    return f"nodes_to_exclude={names} (ONNX Runtime, ModelOpt, Olive; NNCF: names of an IgnoredScope)"
