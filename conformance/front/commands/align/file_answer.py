"""Compare each tensor of an ONNX file in a runtime with what the file, or the one that it was made of, means."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.draw.example import Example
from conformance.diagnose.nodes.fewest_layers import fewest, in_words_of_converter
from conformance.diagnose.nodes.layers import Layer, LayeredPair, layers
from conformance.diagnose.nodes.other_runtime import ask
from conformance.diagnose.nodes.second_file import Beside
from conformance.diagnose.nodes.sides import FileTensors, meant_side, runtime_side
from conformance.diagnose.operators.losses import judge_noise
from conformance.front.commands.align.question import Chosen, heading
from conformance.front.commands.align.table import AlignAnswer, FileNode, Row, decibels, number
from conformance.judge.draws import Draws
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import (
    FidelityVerifier,
    RuntimeVerifier,
    opening_literal,
    rounding_otherwise,
)
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.process.arrays import Array
from conformance.runtimes import registry
from conformance.runtimes.onnxgraph.reads import first_output, label, line_of, operator_of

if TYPE_CHECKING:
    from onnx import NodeProto

MOST_DRAWS = 24
"""Examples that are tried where nobody names one."""


def of_file(run: CellRun, chosen: Chosen, runtime: str) -> AlignAnswer:
    """Compare the tensors of a case that names a file. Raises Stopped for a file that cannot be run, and UserError
    where a runtime ends its process."""
    return (_converted if run.cell.converted else _exported)(run, chosen, runtime)


def _first_file(run: CellRun) -> Path:
    return run.cell.case.folder / str(run.cell.case.says.onnx)


def _exported(run: CellRun, chosen: Chosen, runtime: str) -> AlignAnswer:
    stored, case, libraries = run.model(), run.cell.case, run.libraries()
    verify = Verifier(run.of_cell(stored))
    chosen, example, said = _failing(run, verify, stored.file, chosen, runtime)
    one = meant_side(_first_file(run), case, run.reference.folder, libraries, example.inputs)
    other = runtime_side(stored.file, libraries, example.inputs, runtime)
    beside = Beside(one, other)
    rows = [*_rows(beside, pair=run.cell.file_of_another is not None)]
    inside = sum(row.parts for row in rows)
    sentences = [f"no output is wrong, though {inside} values inside differ (x)"]
    if said is not None:
        sentences = [said, *_first_wrong(run, beside, registry.named(runtime).title)]
    elif not inside:
        sentences = ["nothing parts in this example"]
    sentences += _left_out(beside, registry.named(runtime).title, _first_file(run).name)
    title = heading(run, chosen, runtime)
    return AlignAnswer(title, ["error/allowed"], rows, sentences, said is not None, stored.file)


def _left_out(beside: Beside, title: str, first: str) -> Iterator[str]:
    """Say which tensors were compared with nothing, by why."""
    names = [name for node in beside.other.graph.nodes for name in node.output if name]
    stray = [name for name in names if beside.stands.get(name) not in beside.one.tensors]
    lost = [name for name in names if name not in beside.other.tensors and name not in stray]
    for left, why in ((stray, f"nothing in {first} stands for them"), (lost, f"{title} gives no values of them")):
        if left:
            shown = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
            yield f"left out, as {why}: {len(left)} of {len(names)} tensors, {shown}"


_NAMED = 4


def _failing(
    run: CellRun, verify: Verifier, file: Path, chosen: Chosen, runtime: str
) -> tuple[Chosen, Example, str | None]:
    """Return the example that is asked for, or the first that fails of those that are drawn, with what is wrong of
    its outputs; None where nothing is."""

    def failure(example: Example) -> str | None:
        asked = ask(runtime, file, run.libraries(), example.inputs, run.config(), anyway=True)
        if asked.outputs is None:
            return f"{registry.named(runtime).title} stops: {asked.reason or asked.error}"
        comparison = verify.judged(example, asked.outputs)
        return f"{comparison.error}: {comparison.text}" if comparison.verdict == "failed" else None

    example = verify.example(chosen.draw)
    if chosen.named:
        return chosen, example, failure(example)
    drawn = Draws(run.cell, run.settings, run.prepared, run.dims(), run.prepared.trace())
    draws = [*itertools.islice(drawn, MOST_DRAWS)]
    for place, draw in enumerate(draws):
        tried = verify.example(draw)
        if (said := failure(tried)) is not None:
            because = f"example {place + 1} of the {len(draws)} drawn, the first that is wrong"
            return replace(chosen, draw=draw, because=because), tried, said
    return replace(chosen, because=f"the first of {len(draws)} drawn, all of which are right"), example, None


def _rows(beside: Beside, *, pair: bool) -> Iterator[Row]:
    one, other = beside.one, beside.other
    for node in other.graph.nodes:
        for name in filter(None, node.output):
            like = beside.stands.get(name)
            ratio = None if like is None or name not in other.tensors else one.off(like, other.tensors[name])
            made = None if like is None or not pair else one.graph.node_of(like)
            of_first = operator_of(node) if not pair else "" if made is None else label(made)
            first = node is beside.lost and name == first_output(node)
            yield Row(
                FileNode(of_first, line_of(node)), _called(node, name), ["" if ratio is None else number(ratio)],
                -math.inf if ratio is None else ratio, ratio is not None and ratio > 1, first, name,
            )  # fmt: skip


def _called(node: NodeProto, tensor: str) -> str:
    """``MatMul fc (t)``: a node with its tensor, where it has another name."""
    return label(node) if tensor == (node.name or tensor) else f"{label(node)} ({tensor})"


def _first_wrong(run: CellRun, beside: Beside, title: str) -> Iterator[str]:
    node, first_file = beside.lost, _first_file(run).name
    if node is None:
        yield "the first wrong node is not known: no node of which the inputs agree is off"
        return
    line, name = line_of(node), first_output(node)
    yield f"first wrong node: {label(node)}{f' at {line}' if line else ''}"
    got, wanted = beside.other.tensors.get(name), beside.one.tensors.get(beside.stands.get(name, ""))
    if run.cell.file_of_another is not None:
        same = f"it is as in {first_file}: {title} computes something else of it"
        yield beside.difference(first_file) or same
    if got is None:
        yield f"{title} does not run the part of the file that ends with it"
    elif wanted is not None:
        yield f"its inputs agree; {_values(got, wanted)}"


def _values(got: Array, wanted: Array) -> str:
    """Say what is there in place of what, at the element that is furthest off."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"got {got.dtype}{[*got.shape]}, wanted {wanted.dtype}{[*wanted.shape]}"
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    unlike = (got != wanted) & ~((got != got) & (wanted != wanted))
    at = tuple(map(int, np.unravel_index(np.argmax(np.where(unlike, np.nan_to_num(off, nan=np.inf), -1)), off.shape)))
    values = (f"{array[at]:.9g}" if array.dtype.kind == "f" else f"{array[at]}" for array in (got, wanted))
    mine, theirs = values
    return f"at {[*at]}: got {mine}, wanted {theirs} ({int(unlike.sum())} of {got.size} elements differ)"


def _converted(run: CellRun, chosen: Chosen, runtime: str) -> AlignAnswer:
    """Sort the layers of a converted file by what each loses itself."""
    stored, libraries = run.model(), run.libraries()
    converted = converted_model(run, stored, refuse=False)
    parts = run.of_cell(stored)
    fidelity = FidelityVerifier(parts)
    example = fidelity.example(chosen.draw)
    one = meant_side(_first_file(run), run.cell.case, run.reference.folder, libraries, example.inputs)
    other = runtime_side(converted.file, libraries, example.inputs, runtime)
    pair = LayeredPair(one, other, runtime, libraries)
    found = sorted(layers(pair), key=lambda layer: math.inf if layer.own is None else layer.own)
    limits = dict(zip(other.graph.outputs, fidelity.noise_limits(example.wanted).limits, strict=False))
    lost: dict[str, str | None] = {}
    if run.cell.is_of_own_file:
        meaning, otherwise = opening_literal(run, converted), rounding_otherwise(run, converted)
        verify = RuntimeVerifier(parts, None, meaning, otherwise)
        outputs = [other.tensors[name] for name in other.graph.outputs if name in other.tensors]
        comparison = verify.judged(verify.example(chosen.draw), outputs)
        lost = {"": comparison.text if comparison.verdict == "failed" else None}
    else:
        for name, limit in limits.items():
            like = next((layer.like for layer in found if layer.tensor == name), None)
            lost[name] = None if like is None else judge_noise(other.tensors[name], one.tensors[like], limit)[1]
    rows = [_row(one, other, layer, first=layer is found[0] and layer.own != math.inf) for layer in found]
    wrong = [f"{name}: {text}" if name else text for name, text in lost.items() if text]
    sentences = [*wrong, *_most(other, found, wrong=bool(wrong)), *_give_back(run, pair, found)]
    title, measures = heading(run, chosen, runtime), ["dB by itself", "dB up to it"]
    return AlignAnswer(title, measures, rows, sentences, bool(wrong), converted.file)


def _row(one: FileTensors, other: FileTensors, layer: Layer, *, first: bool) -> Row:
    node, like = other.graph.node_of(layer.tensor), one.graph.node_of(layer.like)
    own = "" if layer.own is None else decibels(layer.own)
    badness = -math.inf if layer.own is None else math.inf if layer.own == -math.inf else -min(layer.own, 1e9)
    return Row(
        FileNode("" if like is None else label(like), None if node is None else line_of(node)),
        layer.tensor if node is None else _called(node, layer.tensor), [own, decibels(layer.whole)], badness,
        first=first, tensor=layer.tensor,
    )  # fmt: skip


def _most(other: FileTensors, found: Sequence[Layer], *, wrong: bool) -> Iterator[str]:
    """Say which layer loses most itself."""
    if not wrong:
        yield "nothing parts in this example: the outputs have the SQNR that is due"
    layer = next((layer for layer in found if layer.own is not None), None)
    if layer is None:
        yield "what each layer loses itself is not known: none of them runs by itself"
    elif layer.own == math.inf:
        merged = any(each.whole < math.inf for each in found)
        yield f"no layer loses anything by itself{', so what is lost is by merging them' if merged else ''}"
    else:
        node = other.graph.node_of(layer.tensor)
        at = layer.tensor if node is None else _called(node, layer.tensor)
        yield (
            f"most is lost at {at}: {decibels(layer.own or 0.0)} dB by itself, of what the original has before it, "
            f"and {decibels(layer.whole)} dB up to it{''.join(f'; {text}' for text in layer.weights)}"
        )


def _give_back(run: CellRun, pair: LayeredPair, found: Sequence[Layer]) -> Iterator[str]:
    """Say which layers give back most of what is lost, and how the converter that made the file is told to."""
    best = fewest(pair, found)
    if best is None:
        return
    if not best.nodes:
        yield "what is lost is lost all over: half of the nodes would not give back 80 % of it"
        return
    yield (
        f"kept as in {_first_file(run).name}, {len(best.layers)} of {len(pair.names)} layers give back 80 % of what "
        f"is lost, {decibels(best.after)} dB in place of {decibels(best.before)}: {', '.join(best.nodes)}"
    )
    yield in_words_of_converter(pair, best.nodes)
