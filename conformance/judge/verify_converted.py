"""The two judgements on a converted model: what its precision costs, and whether a runtime computes what it means.

What a converted graph means is what ONNX Runtime computes node by node with its optimizer off: an int8 model in
float32 between DequantizeLinear and QuantizeLinear, an fp16 model in float32 within a node and rounded after it
(``runtimes.onnxruntime.open_literal``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from conformance.case.draw.draw import Draw
from conformance.case.draw.example import Answers, Effort, Example
from conformance.case.files.must_hold import OF_NOISE
from conformance.case.files.python import describe
from conformance.compare.close import distances
from conformance.compare.compared_values import Read, Reading
from conformance.compare.judges import NoiseLimits, Right
from conformance.compare.noise import NOISE_LIMITS, Noise, NoiseLimit, decibels
from conformance.compare.nudge import by_share, in_float16, movement
from conformance.compare.tolerance import Comparison, Subject, Worst, failed, odd_shape, worst_at
from conformance.judge.comparer import WrongAnswer, worst_dict
from conformance.judge.conditioning import unsettled_rows
from conformance.judge.verify import Verifier, WrongTogether
from conformance.models.cell_run import CellRun
from conformance.models.kept.model_store import Stored
from conformance.models.of_cell import OfCell
from conformance.models.otherwise.undefined_file import OpenSession
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, Unavailable, attempt, lacks_memory, or_else, stopping
from conformance.results.records.record_types import Fidelity
from conformance.results.records.words import base_of
from conformance.runtimes import Session, opener
from conformance.runtimes.evaluator_rules import doubts
from conformance.runtimes.onnxgraph.mapped import mapped
from conformance.runtimes.otherwise import PHASE, open_otherwise
from conformance.runtimes.registry import EVALUATOR, LITERAL
from conformance.runtimes.unsupported import refusal, sentence

_UNKNOWN_TO_LITERAL = {"bf16", "fp8", "fp4"}
"""Precisions that ONNX Runtime has few kernels for on a CPU: ONNX's evaluator computes what such a file means."""
NUDGES = 4
"""How many other roundings of the inputs and nodes are tried, to see how far rounding alone can move the outputs."""


class _NoiseLimited(Verifier):
    """A verifier whose outputs are judged by their noise."""

    def make_judge(self, wanted: Sequence[Array], any_order: tuple[bool, ...], reading: Reading) -> NoiseLimits:
        return NoiseLimits(tuple(self._noise_limit(output) for output in range(len(wanted))), any_order, reading)

    def noise_limits(self, wanted: Sequence[Array]) -> NoiseLimits:
        """The cell's judge, which for a converted model holds a limit of noise for each output."""
        judge = self.judge_of(wanted)
        assert isinstance(judge, NoiseLimits)
        return judge

    def _noise_limit(self, output: int) -> NoiseLimit:
        given = self.declared(output).model_dump(include={*OF_NOISE}, exclude_none=True)
        return dataclasses.replace(NOISE_LIMITS[base_of(self.cell.precision)], **given)


class RuntimeVerifier(_NoiseLimited):
    """Check that a runtime, opened as ``session``, computes what the converted graph means."""

    def __init__(
        self,
        of: OfCell,
        session: Session | None = None,
        meaning: Callable[[], Session] | None = None,
        otherwise: Callable[[], Session] | None = None,
    ) -> None:
        """``meaning`` opens what computes what the graph means; without it no example can be made. ``otherwise``
        opens what computes the same with other roundings (``runtimes.otherwise``), where there is such a form."""
        super().__init__(of, session)
        self._meaning = meaning
        self._open_otherwise = otherwise

    def answers(self, inputs: Inputs) -> Answers:
        """Return what the converted graph means, and PyTorch's outputs in float32."""
        exact = self.in_pytorch(inputs)
        return self._mean(inputs), lambda: exact

    def compare(self, got: list[Array], right: Right) -> Comparison:
        try:
            return super().compare(got, right)
        except Stopped as stop:  # what the graph means are no indices, or no rows of boxes
            assert right.exact is not None
            # PyTorch's own may be none either, which is the case's fault and raised here
            super().compare([*right.exact], dataclasses.replace(right, wanted=right.exact))
            raise Stopped("compare", stop.error, stop.reason, "precision") from stop

    def of_pytorch(self, example: Example) -> list[Array]:
        assert example.exact is not None
        return example.exact

    def conditioning(
        self, inputs: Inputs, wanted: list[Array], exact: list[Array] | None, effort: Effort = "all"
    ) -> list[Array] | None:
        if effort != "all":  # there is one way to ask, which takes its time
            return None
        moved = self._moved(inputs, wanted)
        found, self.rules = self.open_values(inputs, exact) if exact else ([], set())
        for output, far in enumerate(found):
            if far.shape == moved[output].shape:
                known = "tie" in self.rules  # by a step of the file's own, which is no matter of size
                moved[output] = np.maximum(far if known else np.where(np.isinf(far), np.inf, 0), moved[output])
            elif np.isinf(far).any():
                moved[output] = np.array(np.inf)
        reading = self.judge_of(wanted).reading
        if reading.detections and (true := self.reference.oracle(inputs)) is not None:
            for boxes in unsettled_rows(self.reference, reading, inputs, [], true):
                moved[boxes] = np.array(math.inf)
        return moved

    def _mean(self, inputs: Inputs) -> list[Array]:
        assert self._meaning is not None
        return mean(self._meaning(), inputs)

    @cached_property
    def _otherwise(self) -> Session | None:
        """Return what computes the graph with other roundings; None where there is no such form, or it does not
        load."""
        return None if self._open_otherwise is None else or_else(None, self._open_otherwise)

    def _moved(self, inputs: Inputs, wanted: list[Array]) -> list[Array]:
        """Return how far each value moves when every float input moves by half a step of the precision.

        In fp16 what each node computes moves too. Boxes of which other rows are there then move infinitely far, as
        do whole numbers that become others.

        Between layers that round, a runtime may round a value up where the graph's meaning rounds it down. Where much
        depends on that, as in a softmax of large scores, the meaning comes close to PyTorch only by luck.
        """
        rng = np.random.default_rng(0)
        step = NOISE_LIMITS[base_of(self.cell.precision)].epsilon / 2
        moved = [np.zeros(right.shape) for right in wanted]
        unsettled = set[int]()
        for nudge in range(NUDGES):
            nudged = {name: by_share(array, rng, step) for name, array in inputs.items()}
            otherwise = self._rounded_otherwise(nudged, nudge)
            unsettled.update(self.judge_of(wanted).reading.unsettled(wanted, otherwise))
            for output, (after, right) in enumerate(zip(otherwise, wanted, strict=True)):
                if after.shape != right.shape:
                    unsettled.add(output)
                elif right.dtype.kind in "iub":
                    moved[output][after != right] = np.inf
                else:
                    np.maximum(moved[output], movement(after, right), out=moved[output])
        return [np.array(math.inf) if output in unsettled else each for output, each in enumerate(moved)]

    def _rounded_otherwise(self, inputs: Inputs, nudge: int) -> list[Array]:
        if self._otherwise is None:
            return self._mean(inputs)
        return mean(self._otherwise, {**inputs, PHASE: np.asarray(1.0 + nudge, dtype=np.float32)})


class FidelityVerifier(_NoiseLimited):
    """Measure what the precision costs: the converted graph's meaning, opened as ``session``, against PyTorch in
    float32.

    An example by itself is wrong only where its shapes, dtypes or finiteness are; its noise counts with that of all
    others in ``conclude``.
    """

    def __init__(self, of: OfCell, session: Session | None = None) -> None:
        super().__init__(of, session)
        self._record = of.record
        self._noise: list[Noise] = []
        self._worst: list[tuple[float, Worst, Draw]] = []
        self._draws: list[Draw] = []
        self._called: list[Subject] = []
        """What sentences call the outputs."""

    def answers(self, inputs: Inputs) -> Answers:
        return self.in_pytorch(inputs), lambda: None

    def judged(self, example: Example, got: list[Array]) -> Comparison:
        comparison = self.compare(got, example.right())
        if comparison.error == "WrongShape" and rounding_decides(self, example, got):
            return Comparison("nothing")
        if comparison.verdict == "verified":
            read = self.noise_limits(example.wanted).read(got, example.right())
            assert isinstance(read, Read)
            self._measure(example.draw, read)
        return comparison

    def compare(self, got: list[Array], right: Right) -> Comparison:
        read = self.noise_limits(right.wanted).read(got, right)
        if isinstance(read, Comparison):
            return read
        for called, array, exact in zip(read.called, read.got, read.wanted, strict=True):
            failure = odd_shape(called, array, exact) or not_finite(called, array, exact)
            if failure is not None:
                return read.told(failure)
        return Comparison("verified")

    def _measure(self, draw: Draw, read: Read) -> None:
        """Add the noise of one draw's outputs to that of all draws."""
        self._draws.append(draw)
        self._called = read.called
        for output, (array, right) in enumerate(zip(read.got, read.wanted, strict=True)):
            if output == len(self._noise):
                self._noise.append(Noise(self.noise_limits(read.wanted).limits[output]))
                self._worst.append((-1.0, Worst(output, (), None, None, 0.0, 0.0), draw))
            noise = self._noise[output].see(array, right)
            if noise > self._worst[output][0] and right.size:
                self._worst[output] = (noise, read.worst(_furthest(output, array, right)), draw)

    def alone(self, example: Example) -> Comparison:
        kept = self._noise, self._worst, self._draws
        self._noise, self._worst, self._draws = [], [], []
        try:
            comparison = self(example)
            for output, noise in enumerate(self._noise):
                # the noise of other values than the declared ones is measured nowhere
                if example.draw.regime == "plain" and not noise.within():
                    raise WrongAnswer(failed("LowFidelity", f"{self._called[output]}: {noise.text()}"))
            return comparison
        finally:
            self._noise, self._worst, self._draws = kept

    def conclude(self) -> None:
        if not self._noise:
            return
        worst_first = sorted(range(len(self._noise)), key=lambda output: -self._noise[output].ratio())
        output = worst_first[0]
        noise, (_, worst, draw) = self._noise[output], self._worst[output]
        worst = dataclasses.replace(worst, ratio=noise.ratio())
        self._record.worst, self._record.draw = worst_dict(worst, draw), draw.as_dict()
        self._record.fidelity = _told(output, noise, self._draws)
        for output in worst_first:  # the reason is about the output that the record is about
            if not self._noise[output].within():
                text = f"{self._called[output]}: {self._noise[output].text()}"
                raise WrongTogether(text, self._worst[output][2])
        for output in worst_first:
            index = self._noise[output].drowned()
            if index is not None:
                raise self._drowned(output, index)

    def _drowned(self, output: int, index: int) -> Stopped:
        """The failure of a draw that all draws together hide, since its values are small."""
        noise, draw = self._noise[output], self._draws[index]
        sizes = ", ".join(f"{name}={size}" for name, size in draw.dims.items())
        text = (
            f"{self._called[output]}: SQNR {decibels(*noise.each[index]):.1f} dB at {sizes or 'one of the draws'}, "
            f"which is more noise than signal; all draws together have {noise.sqnr:.1f} dB"
        )
        worst = dataclasses.replace(self._worst[output][1], ratio=noise.ratio())
        self._record.worst, self._record.draw = worst_dict(worst, draw), draw.as_dict()
        self._record.fidelity = _told(output, noise, self._draws)
        return WrongTogether(text, draw)


def rounding_decides(verify: Verifier, example: Example, got: Sequence[Array]) -> bool:
    """Return whether PyTorch itself gives another number of values once its inputs are held in float16, or moved by
    half a step of another precision: of unique values, or of those that are not 0."""
    sizes = [one.shape for one in example.wanted]
    if [one.ndim for one in got] != [*map(len, sizes)]:
        return False
    base, rng = base_of(verify.cell.precision), np.random.default_rng(0)
    step = NOISE_LIMITS[base].epsilon / 2
    for _ in range(1 if base == "fp16" else NUDGES):
        inputs = {
            name: in_float16(array) if base == "fp16" else by_share(array, rng, step)
            for name, array in example.inputs.items()
        }
        if [one.shape for one in verify.in_pytorch(inputs)] != sizes:
            return True
    return False


def opening_literal(run: CellRun, converted: Stored) -> Callable[[], Session]:
    """Open what computes the meaning of a converted graph at the first call, to be closed with the cell; Stopped at
    ``load`` where that cannot be. Where an earlier run has kept its answers it is not asked, nor opened."""

    @cache
    def opened() -> Session:
        runtime = meaning_of(run.cell.precision)
        with run.stages("load", "precision"):
            evaluator = evaluated(converted.file) if run.cell.is_of_own_file and not run.libraries() else None
            if evaluator is not None:
                return evaluator
            session = attempt(lambda: run.enter(opener(runtime)(converted.file, run.libraries())))
            if not isinstance(session, Exception):
                return session
            of_others = run.cell.case.says.precisions[run.cell.precision].of_others
            if not of_others or isinstance(session, (Stopped, Unavailable)) or lacks_memory(session):
                raise session
            refused = refusal(runtime, session)
            evaluator = None if refused is None else evaluated(converted.file)
            if evaluator is not None:
                return evaluator
            if refused is not None:
                raise Unavailable(refused) from session
            who = "ONNX Runtime" if runtime == LITERAL else "ONNX's evaluator"
            text = f"{converted.told['tool']}, which onnx.checker takes, does not load in {who}: {sentence(session)}"
            raise Stopped("load", type(session).__name__, text, "precision") from session

    return opened


def meaning_of(precision: str) -> str:
    """Return the runtime that computes what a graph of a precision means."""
    return EVALUATOR if base_of(precision) in _UNKNOWN_TO_LITERAL else LITERAL


def evaluated(file: Path) -> Session | None:
    """Return ONNX's evaluator, as it says what any file means; None where it has no say on an operator, or knows no
    such operator, as those of ONNX Runtime alone."""
    found = mapped(file)
    if any(not doubt.mended for doubt in doubts(found.model)):
        return None
    return or_else(None, lambda: OpenSession(found.model, found.weights))


def rounding_otherwise(run: CellRun, converted: Stored) -> Callable[[], Session] | None:
    """Open the converted model with other roundings, to be closed with the cell; None for int8, whose values are
    rounded to scales."""
    if base_of(run.cell.precision) != "fp16":
        return None
    return lambda: run.enter(open_otherwise(converted.file, run.libraries()))


def _told(output: int, noise: Noise, draws: Sequence[Draw]) -> Fidelity:
    """The record's field ``fidelity``: how far the output that the record is about is from PyTorch's."""
    if noise.counted:
        return {"output": output, "changed": noise.changed / noise.draws}
    told: Fidelity = {"output": output, "sqnr": noise.sqnr, "cosine": noise.cosine, "magnitude": noise.magnitude}
    told["bias"], worst, places = noise.bias, noise.channels.worst(), noise.places
    if worst is not None:
        told["channel"], told["channel_sqnr"] = worst
    if (rows := places.rows) is not None:
        told["rows"] = {
            "axis": rows.axis, "first": rows.first, "last": rows.last, "sqnr": rows.sqnr,
            "dims": {**draws[rows.draw].dims},
        }  # fmt: skip
    if apart := places.standing_out():
        draw, index = places.furthest()
        told["apart"] = {"count": apart, "of": places.count, "index": [*index], "dims": {**draws[draw].dims}}
    return told


def mean(session: Session, inputs: Inputs) -> list[Array]:
    """Return what a converted graph means for some inputs; Stopped at ``run`` where it cannot be computed."""

    def say(error: Exception) -> str:
        return f"the converted model does not run: {describe(error, Path('/'))}"

    with stopping("run", "precision", say):
        return session.run(inputs)


def not_finite(called: Subject, got: Array, wanted: Array, *, lost_alone: bool = False) -> Comparison | None:
    """The failure where values are NaN or infinite on one side only, or not the same infinity: they do not fit the
    precision. ``lost_alone`` is about those that PyTorch has and ``got`` lost."""
    if wanted.dtype.kind != "f":
        return None
    odd = np.isfinite(wanted) & ~np.isfinite(got) if lost_alone else np.isinf(distances(got, wanted))
    if not odd.any():
        return None
    first = tuple(int(i) for i in np.argwhere(odd)[0])
    name = "WrongNaN" if np.isnan(got[first]) or np.isnan(wanted[first]) else "WrongInf"
    lost = np.isfinite(wanted[odd]).all()
    where = "where the right ones are not" if lost else "on one side only, or not the same infinity"
    text = f"{called}: {int(odd.sum())} of {got.size} values are NaN or infinite {where}"
    return failed(name, text, worst_at(called.number, first, got, wanted, np.inf, np.inf), odd)


def _furthest(output: int, got: Array, wanted: Array) -> Worst:
    """The element that is furthest off."""
    if wanted.dtype.kind == "U":
        error = (got != wanted).astype(np.float64)
    else:
        error = movement(np.asarray(got, dtype=np.float64), np.asarray(wanted, dtype=np.float64))
    index = np.unravel_index(int(error.argmax()), error.shape)
    return worst_at(output, index, got, wanted, float(error[index]), 0.0)
