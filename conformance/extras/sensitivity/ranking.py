"""Rank nodes by the accuracy that keeping each alone in fp32 wins back."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.compare.noise import Noise, NoiseLimit
from conformance.models.precision import fp16, int8
from conformance.models.precision.convert import ConversionSource
from conformance.process.arrays import Array, Inputs
from conformance.results.records.words import base_of
from conformance.runtimes import opener
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

_NO_ARITHMETIC = {
    "Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape",
    "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators that move values and round none."""


@dataclass(frozen=True)
class KeptNode:
    """The model's SQNR with one node kept in fp32, and what that gains, in decibels."""

    node: str
    operator: str
    sqnr: float
    gain: float


@dataclass(frozen=True)
class Ranking:
    """The SQNR of the converted model, and its nodes, beginning with the node that wins back most."""

    sqnr: float
    nodes: list[KeptNode]
    overflow: tuple[str, ...] = ()
    """Nodes known to overflow, which win something back only if all are kept in fp32."""

    def exclude(self, decibels: float = 0.1, most: int = 10) -> list[str]:
        """The nodes worth keeping in fp32: those that overflow, and those that win back at least ``decibels``."""
        worth = [kept.node for kept in self.nodes if kept.gain >= decibels][:most]
        return list(dict.fromkeys([*self.overflow, *worth]))


def candidates(given: ConversionSource, converted: ModelProto) -> list[str]:
    """The nodes that a conversion touches and that compute something."""
    if base_of(given.precision) == "int8":
        # Nodes of other operators may read a quantized value that they share, but are not quantized themselves.
        kinds = {node.name: node.op_type for node in given.model.graph.node}
        return [name for name in int8.quantized_nodes(converted) if kinds.get(name) in given.operators]
    return [
        node.name
        for node in given.model.graph.node
        if node.op_type not in _NO_ARITHMETIC and node.name not in given.kept
    ]


def rank(
    given: ConversionSource,
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
        kept = []
        for done, node in enumerate(names):
            on_node(done, len(names), node)
            with _keeping(given, converted, node) as data:
                without = sqnr(data)
            kept.append(KeptNode(node, operators[node], without, 0.0 if without == whole else without - whole))
    return Ranking(whole, sorted(kept, key=lambda node: -node.gain))


def of_cell(cell: Cell, settings: Settings, samples: int, on_node: Callable[[int, int, str], object]) -> Ranking:
    """Ranks the nodes of the model that a fidelity cell converts; ``on_node`` as ``rank`` has it.

    Raises Stopped and Unavailable, as the cell does.
    """
    import onnx

    from conformance.models.cell_run import CellRun
    from conformance.models.conversion import converted_model
    from conformance.models.precision import convert

    with CellRun.opened(cell, settings) as run:
        stored = run.model()
        converted = converted_model(run, stored, refuse=False)
        says = cell.case.says.precisions[cell.precision]
        given = convert.source(stored.file, cell.precision, says, cell.exporter)
        # Not the draws that the ranges were measured on.
        drawn = says.calibration.model_copy(update={"data": None, "samples": max(8, samples)})
        batches = run.prepared.feeds(drawn, run.target.static, "sensitivity").batches
        model = onnx.load(converted.file)
        ranking = rank(given, model, evaluation(batches, samples), run.libraries(), on_node)
        return dataclasses.replace(ranking, overflow=tuple(converted.told.get("overflow_at", ())))


def _sqnr(got: Sequence[Sequence[Array]], wanted: Sequence[Sequence[Array]]) -> float:
    """The SQNR, over all batches, of the output with most noise. Values that are not finite but should be count as
    noise of the size of the signal, so that losing fewer of them is better."""
    each = []
    for output in range(len(wanted[0])):
        noise = Noise(NoiseLimit(0, 0, 0))
        for batch, right in zip(got, wanted, strict=True):
            array = batch[output]
            if right[output].dtype.kind == "f":
                array = np.where(np.isfinite(array), array, 0.0)
            noise.see(array, right[output])
        if not noise.counted:
            each.append(noise.sqnr)
    return min(each, default=float("inf"))


@contextlib.contextmanager
def _keeping(given: ConversionSource, converted: ModelProto, node: str) -> Iterator[bytes]:
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
def _bypassed(given: ConversionSource, converted: ModelProto, name: str) -> Iterator[None]:
    """While the context lasts, the node of ``converted`` reads its operands from before their quantization.

    Quantizing again without the node would take as long as all else together.
    """
    weights: dict[str, TensorProto] = {initializer.name: initializer for initializer in given.model.graph.initializer}
    (before,) = (node for node in given.model.graph.node if node.name == name)
    (after,) = (node for node in converted.graph.node if node.name == name)
    graph, old = converted.graph, list(after.input)
    have = {initializer.name for initializer in graph.initializer}
    added = [weights[operand] for operand in before.input if operand in weights and operand not in have]
    graph.initializer.extend(added)
    for index, operand in enumerate(before.input):
        after.input[index] = operand
    try:
        yield
    finally:
        for index, operand in enumerate(old):
            after.input[index] = operand
        for _ in added:
            graph.initializer.pop()


def evaluation(batches: Sequence[Inputs], most: int) -> list[Inputs]:
    """The first ``most`` samples' worth of batches."""
    sizes = (max(len(array) if array.ndim else 1 for array in batch.values()) for batch in batches)
    before = itertools.accumulate(sizes, initial=0)
    return [batch for batch, count in zip(batches, before, strict=False) if count < most]
