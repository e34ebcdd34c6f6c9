"""Find where PyTorch and the graph differ first: compare every matched tensor, in the order of computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from conformance.align.matching import Place
from conformance.arrays import Array
from conformance.case.words import base_of
from conformance.compare.excuses import UNMOVED
from conformance.compare.judges import Judge, NoiseLimits, Tolerances
from conformance.compare.noise import NOISE_LIMITS, Noise, NoiseLimit
from conformance.compare.tolerance import DEFAULTS, Subject, Tolerance, compare, odd_shape
from conformance.onnxgraph.reads import Graph, rewritten
from conformance.verdict.example import Effort
from conformance.verdict.loss import sqnr

Moves = Mapping[tuple[int, int], Array]
"""How far the values of a tensor move, by id of a call and output."""


@dataclass
class Row:
    """One output of one call: what it is in the graph, and how far it is off."""

    place: Place
    node: str = ""
    operators: list[str] = field(default_factory=list)
    """The operators on the way to it from the tensors that it is computed from, in order."""
    rules: str = ""
    """The rules of the exporter's optimizer that made the node."""
    inputs: list[Row] = field(default_factory=list)
    """The nearest compared tensors that it is computed from; none where those are the model's inputs."""
    got: str = ""
    """Dtype and shape of the graph's tensor."""
    ratio: float | None = None
    """fp32: the error over what is allowed."""
    sqnr: float | None = None
    """fp16, int8: in decibels."""
    drop: float = 0.0
    """fp16, int8: how many decibels less than the worst of its inputs."""
    verdict: str = ""
    text: str = ""
    """What is wrong, in words."""

    @property
    def parts(self) -> bool:
        return self.verdict == "failed"

    @property
    def begins(self) -> bool:
        """Return whether it parts though all that it is computed from agrees."""
        return self.parts and not any(row.parts for row in self.inputs)


@dataclass(frozen=True)
class Alignment:
    """All rows, in the order in which PyTorch computes them, and where the two part."""

    rows: list[Row]
    precision: str
    first: Row | None
    """The first row that parts, or at reduced precision the one that loses most; None where no row does."""
    parts: bool

    @property
    def compared(self) -> list[Row]:
        return [row for row in self.rows if row.place.kind == "own"]


def at_fp32(
    graph: Graph,
    places: Sequence[Place],
    got: Mapping[str, Array],
    exact: Mapping[tuple[int, int], Array],
    judge: Judge,
    moved: Callable[[Effort], Moves],
    only: Collection[str] | None = None,
) -> Alignment:
    """Compares as the checks do (``compare.tolerance``): outputs of the model by ``judge``, the tensors inside by the
    defaults for their dtype; with ``only``, those alone that submodules with these paths return.

    ``got`` are the graph's tensors, ``exact`` PyTorch's in float64 as far as there are any. ``moved`` says how far
    each tensor moves with the rounding of the inputs, and is called only where a tensor would part.
    """
    assert isinstance(judge, Tolerances)
    moved = cache(moved)
    rows = list(_rows(graph, places, got))
    outputs = _outputs_of_model(places)
    asked = [place for place in places if only is None or place.call.path in only]
    compared_at = {(one.call.id, one.output) for place in asked for one in (place, place.first) if one is not None}
    for row in rows:
        place = row.place
        where = (place.call.id, place.output)
        if place.tensor is None or where not in compared_at:
            continue
        wanted, actual = place.call.outputs[place.output], got[place.tensor]
        true = exact.get(where)
        index = outputs.get(_key(place))
        tolerance = DEFAULTS.get(str(wanted.dtype)) if index is None else judge.tolerances[index]
        any_order = index is not None and judge.any_order[index]

        def compared(
            conditioning: Array | None,
            actual: Array = actual,
            wanted: Array = wanted,
            true: Array | None = true,
            tolerance: Tolerance | None = tolerance,
            any_order: bool = any_order,
        ) -> tuple[str, float | None, str, bool]:
            result = compare(
                [actual], [wanted], None if true is None else [true], [tolerance], [any_order],
                None if conditioning is None else [conditioning],
            )  # fmt: skip
            text = (result.text or "").removeprefix("output 0: ").replace("output 0", "it")
            if result.worst is not None and result.verdict == "failed":
                at = list(result.worst.index)
                text += f"; furthest at {at}: {result.worst.got:.6g} instead of {result.worst.wanted:.6g}"
            ratio = result.worst.ratio if result.worst else (math.inf if result.verdict == "failed" else 0.0)
            return result.verdict, ratio, text, result.doubtful or result.error == "WrongValue"

        row.verdict, row.ratio, row.text, open_yet = compared(None)
        efforts: tuple[Effort, ...] = ("some", "all") if open_yet and true is not None else ()
        for effort in efforts:
            row.verdict, row.ratio, row.text, _ = compared(moved(effort).get(where, UNMOVED))
            if row.verdict != "failed":
                break
    first = next((row for row in rows if row.parts), None)
    return Alignment(rows, "fp32", first, first is not None)


def at_reduced(
    graph: Graph, places: Sequence[Place], got: Mapping[str, Array], judge: Judge, precision: str
) -> Alignment:
    """Compares by noise. A tensor parts where it is not finite and should be, or where it is an output of the model
    that has less SQNR than is due. The row that loses most is that with the largest drop of SQNR from the worst of
    its inputs.

    Decibels beyond those that a runtime has to keep (``NoiseLimit.runtime``) count as just those: rounding alone,
    which every first layer has, is no drop.
    """
    assert isinstance(judge, NoiseLimits)
    rows = list(_rows(graph, places, got))
    outputs = _outputs_of_model(places)
    most = NOISE_LIMITS[base_of(precision)].runtime
    for row in rows:
        place = row.place
        if place.tensor is None:
            continue
        wanted, actual = place.call.outputs[place.output], got[place.tensor]
        index = outputs.get(_key(place))
        _judge_noise(row, actual, wanted, None if index is None else judge.limits[index])
    for row in rows:
        if row.sqnr is not None and math.isfinite(row.sqnr):
            before = min((source.sqnr for source in row.inputs if source.sqnr is not None), default=math.inf)
            row.drop = max(min(before, most) - min(row.sqnr, most), 0.0) if before > -math.inf else 0.0
    lost = next((row for row in rows if row.parts and row.sqnr == -math.inf), None)
    first = lost or max((row for row in rows if row.drop > 0), key=lambda row: row.drop, default=None)
    return Alignment(rows, precision, first, any(row.parts for row in rows))


def _judge_noise(row: Row, got: Array, wanted: Array, limit: NoiseLimit | None) -> None:
    row.verdict = "verified"
    odd = odd_shape(Subject(0), got.astype(wanted.dtype) if got.dtype.kind == wanted.dtype.kind else got, wanted)
    if odd is not None:
        row.verdict, row.sqnr = "failed", -math.inf
        row.text = (odd.text or "").replace("output 0", "it")
        return
    row.sqnr = sqnr([got], [wanted])
    if wanted.dtype.kind == "f":
        lost = ~np.isfinite(got) & np.isfinite(wanted)
        if lost.any():
            row.verdict = "failed"
            largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
            row.text = (
                f"{int(lost.sum())} of {got.size} values are NaN or infinite; in PyTorch the largest is {largest:.6g}"
            )
            return
    if limit is not None:
        noise = Noise(limit)
        noise.see(got, wanted)
        if not noise.within():
            row.verdict, row.text = "failed", noise.text()


def _rows(graph: Graph, places: Sequence[Place], got: Mapping[str, Array]) -> Iterator[Row]:
    known = {place.tensor for place in places if place.tensor is not None}
    by_tensor: dict[str, Row] = {}
    for place in places:
        row = Row(place)
        if place.tensor is not None:
            if place.tensor not in got:
                place.kind, place.note, place.tensor = "unmatched", "the converted model has no such tensor", None
                yield row
                continue
            node = graph.node_of(place.tensor)
            before, nodes = graph.upstream(place.tensor, known)
            row.node = "" if node is None else node.name or node.op_type
            row.rules = "" if node is None else rewritten(node)
            row.operators = [graph.nodes[index].op_type for index in nodes]
            row.operators = [name for name in row.operators if name != "Constant"]
            row.inputs = [by_tensor[name] for name in before if name in by_tensor]
            array = got[place.tensor]
            row.got = f"{array.dtype}{list(array.shape)}"
            by_tensor.setdefault(place.tensor, row)
        yield row


def _key(place: Place) -> object:
    return place.call.keys[place.output]


def _outputs_of_model(places: Sequence[Place]) -> dict[object, int]:
    """Return which output of the model a tensor of PyTorch is."""
    return {_key(place): place.output for place in places if not place.call.path}
