"""Which nodes cost the accuracy: for each, what keeping it alone in fp32 wins back."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.arrays import Array, Inputs
from conformance.case.words import base_of
from conformance.compare.noise import Noise, NoiseLimit
from conformance.precision import fp16, int8
from conformance.precision.convert import Source
from conformance.runtimes import opener
from conformance.verdict.loss import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto

_NO_ARITHMETIC = {
    "Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape",
    "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators that move values and round none."""


@dataclass(frozen=True)
class Kept:
    """What one node in fp32 makes of the model's SQNR, in decibels."""

    node: str
    operator: str
    sqnr: float
    gain: float


@dataclass(frozen=True)
class Ranking:
    """The SQNR of the converted model, and its nodes, those that win most back first."""

    sqnr: float
    nodes: list[Kept]
    overflow: tuple[str, ...] = ()
    """Nodes known to overflow, which only together win anything back."""

    def exclude(self, decibels: float = 0.1, most: int = 10) -> list[str]:
        """The nodes worth keeping in fp32: those that overflow, and those that win back at least ``decibels``."""
        worth = [one.node for one in self.nodes if one.gain >= decibels][:most]
        return list(dict.fromkeys([*self.overflow, *worth]))


def candidates(given: Source, converted: ModelProto) -> list[str]:
    """The nodes that a conversion touches and that compute something."""
    if base_of(given.precision) == "int8":
        # Others read a quantized value where they share it, but are not quantized themselves.
        kinds = {node.name: node.op_type for node in given.model.graph.node}
        return [name for name in int8.quantized_nodes(converted) if kinds.get(name) in given.operators]
    return [
        node.name
        for node in given.model.graph.node
        if node.op_type not in _NO_ARITHMETIC and node.name not in given.kept
    ]


def rank(
    given: Source,
    converted: ModelProto,
    batches: Sequence[Inputs],
    libraries: Sequence[str],
    on_node: Callable[[int, int, str], object],
) -> Ranking:
    """Ranks by the outputs of the exported fp32 model on ``batches``, computed by the graphs' own semantics.

    ``on_node`` gets how many nodes are done, of how many, and the name of the next.
    """
    operators = {node.name: node.op_type for node in given.model.graph.node}
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "model.onnx"

        def outputs(data: bytes) -> list[list[Array]]:
            file.write_bytes(data)
            with opener(LITERAL)(file, libraries) as session:
                return [session.run(batch) for batch in batches]

        wanted = outputs(given.model.SerializeToString())

        def sqnr(data: bytes) -> float:
            return _sqnr(outputs(data), wanted)

        whole = sqnr(converted.SerializeToString())
        names = candidates(given, converted)
        found = []
        for done, node in enumerate(names):
            on_node(done, len(names), node)
            with _keeping(given, converted, node) as data:
                one = sqnr(data)
            found.append(Kept(node, operators[node], one, 0.0 if one == whole else one - whole))
    return Ranking(whole, sorted(found, key=lambda one: -one.gain))


def _sqnr(got: Sequence[Sequence[Array]], wanted: Sequence[Sequence[Array]]) -> float:
    """Of the output with most noise over all batches; values that are not finite but should be are noise of the size
    of the signal, so that losing fewer of them is better."""
    found = []
    for output in range(len(wanted[0])):
        noise = Noise(NoiseLimit(0, 0, 0))
        for one, right in zip(got, wanted, strict=True):
            here = one[output]
            if right[output].dtype.kind == "f":
                here = np.where(np.isfinite(here), here, 0.0)
            noise.see(here, right[output])
        if not noise.counted:
            found.append(noise.sqnr)
    return min(found, default=float("inf"))


@contextlib.contextmanager
def _keeping(given: Source, converted: ModelProto, node: str) -> Iterator[bytes]:
    """The converted model with one node in fp32."""
    import onnx

    if base_of(given.precision) == "int8":
        with _bypassed(given, converted, node):
            data = converted.SerializeToString()
        yield data
        return
    copy = onnx.ModelProto()
    copy.CopyFrom(given.model)
    yield fp16.convert(copy, {*given.kept, node}).SerializeToString()


@contextlib.contextmanager
def _bypassed(given: Source, converted: ModelProto, name: str) -> Iterator[None]:
    """``converted`` with this node's operands taken from before their quantization, as long as this lasts.

    A second quantization would take as long as all else together.
    """
    weights: dict[str, Any] = {one.name: one for one in given.model.graph.initializer}
    (before,) = (node for node in given.model.graph.node if node.name == name)
    (after,) = (node for node in converted.graph.node if node.name == name)
    graph, old = converted.graph, list(after.input)
    have = {one.name for one in graph.initializer}
    added = [weights[one] for one in before.input if one in weights and one not in have]
    graph.initializer.extend(added)
    for index, one in enumerate(before.input):
        after.input[index] = one
    try:
        yield
    finally:
        for index, one in enumerate(old):
            after.input[index] = one
        for _ in added:
            graph.initializer.pop()


def evaluation(says_batches: Sequence[Inputs], most: int) -> list[Inputs]:
    """The first ``most`` samples' worth of batches."""
    found: list[Inputs] = []
    count = 0
    for batch in says_batches:
        if count >= most:
            break
        found.append(batch)
        count += max(len(array) if array.ndim else 1 for array in batch.values())
    return found
