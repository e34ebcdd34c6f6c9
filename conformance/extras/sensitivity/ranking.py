"""Rank nodes by the accuracy that keeping each alone in fp32 wins back, and show the ranking."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import find_case, plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.compare.noise import Noise, NoiseLimit
from conformance.models.precision import fp16, int8
from conformance.models.precision.convert import ConversionSource
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, Unavailable, UserError, display_path
from conformance.results.records.sanitize import literal, tell
from conformance.results.records.words import base_of
from conformance.runtimes import opener
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto
    from rich.console import Console

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


BAR = 30
"""Characters of the longest bar."""


def sensitivity(given: Namespace) -> None:
    """Print the ranking of a case's nodes, and write it as the SVG file ``picture`` as well, if there is to be one.

    Raises UserError with what the user has to correct.
    """
    picture: Path | None = given.picture
    if picture is not None and (picture.suffix != ".svg" or not picture.absolute().parent.is_dir()):
        raise UserError(f"--picture {picture}: has to be an .svg file in a folder that is there")
    case = find_case(given.case, given.cases or [Path("cases")])
    cell = _cell(case, given.precision, given.exporter, given.opset)
    ranking = _ranked(cell, given.store / "models", given.samples)
    _show(cell, ranking, given.top, picture)


def _cell(case: Case, precision: str, exporter: str | None, opset: int | None) -> Cell:
    cells = [cell for cell in plan(case) if cell.check == "fidelity"]
    cells = [cell for cell in cells if not case.says.precisions[cell.precision].of_others]
    if not cells:
        raise UserError(f"{case.name} converts to no precision: add precisions: {{int8: {{}}}} to the case")
    fitting = [
        cell
        for cell in cells
        if cell.precision == precision and exporter in (None, cell.exporter) and opset in (None, cell.opset)
    ]
    if not fitting:
        have = ", ".join(f"{cell.exporter} {cell.opset} {cell.precision}" for cell in cells)
        raise UserError(f"{case.name} has no such cell; it has {have}")
    return fitting[0]


def _ranked(cell: Cell, store: Path, samples: int) -> Ranking:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from conformance.case.plan.settings import Settings
    from conformance.process.worker.warm import prepare_process

    prepare_process()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("ranking nodes", total=None)

            def on_node(done: int, total: int, node: str) -> None:
                bar.update(task, completed=done, total=total, description=node[-40:])

            return of_cell(cell, Settings(store=store), samples, on_node)
    except (Stopped, Unavailable) as stop:
        if isinstance(stop, Stopped) and stop.fault == "harness":
            raise
        raise UserError(f"{cell.case.name} at {cell.precision}: {stop}") from None


def _show(cell: Cell, ranking: Ranking, top: int, picture: Path | None) -> None:
    from rich.console import Console

    console = Console(record=picture is not None, width=100 if picture is not None else None)
    _print(console, cell, ranking, top)
    if picture is not None:
        console.save_svg(str(picture), title=f"{cell.case.name}, {cell.precision}")
        tell(f"wrote {display_path(picture)}", file=sys.stderr)


def _print(console: Console, cell: Cell, ranking: Ranking, top: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    text = f"{cell.case.name}, {cell.exporter} opset {cell.opset}, {cell.precision}: {ranking.sqnr:.1f} dB"
    console.print(f"{escape(text)}. With one node kept in fp32:", highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("node", overflow="fold")
    table.add_column("operator")
    table.add_column("dB", justify="right")
    table.add_column("gain", justify="right")
    table.add_column()
    # a node that alone loses anything wins infinitely much, which is as long as a bar gets
    most = max((kept.gain for kept in ranking.nodes if math.isfinite(kept.gain)), default=0.0)
    for kept in ranking.nodes[:top]:
        share = min(kept.gain / most, 1.0) if most > 0 else float(kept.gain > 0)
        length = max(round(BAR * share), 0)
        table.add_row(
            escape(literal(kept.node)),
            escape(literal(kept.operator)),
            f"{kept.sqnr:.1f}",
            f"{kept.gain:+.2f}",
            "█" * length,
        )
    console.print(table)
    if len(ranking.nodes) > top:
        console.print(f"and {len(ranking.nodes) - top} more nodes", highlight=False)
    worth = ranking.exclude()
    if worth:
        names = ", ".join(f'"{name}"' for name in worth)
        console.print("\nto keep those that win most in fp32:", highlight=False)
        line = f"precisions: {{{cell.precision}: {{exclude: {{{cell.exporter}: [{names}]}}}}}}"
        console.print(literal(line), markup=False, highlight=False, soft_wrap=True)
    else:
        console.print("\nno node wins back 0.1 dB by itself: the noise comes from all of them", highlight=False)
