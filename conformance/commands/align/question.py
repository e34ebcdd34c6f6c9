"""Runs a case in PyTorch and as a graph, at one example, and compares what its submodules return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from conformance.align.matching import candidates, match
from conformance.align.modules import Call, calls_of, paired
from conformance.align.parting import Alignment, Numbers, at_fp32, at_reduced
from conformance.arrays import Array, Inputs
from conformance.case.declaration import Case
from conformance.case.python import describe
from conformance.case.words import REGIMES, SPECIALS
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.checks.verify_converted import RuntimeVerifier
from conformance.draw.draw import Draw, seed_of
from conformance.errors import Stopped, Unavailable, UserError, did_you_mean
from conformance.export.reference import Reference
from conformance.export.rounding import Rounding
from conformance.plan.catalogue import find_case, plan
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.runtimes import registry
from conformance.runtimes.tensors import values
from conformance.verdict.loss import LITERAL


@dataclass(frozen=True)
class Question:
    """What is to be aligned, as the user says it; None leaves a field to the case."""

    case: str
    paths: Sequence[Path]
    store: Path
    exporter: str | None = None
    opset: int | None = None
    precision: str = "fp32"
    runtime: str = LITERAL
    at: str | None = None
    """``batch=2,h=64``; other dims are as in the export."""
    values: str = REGIMES[0]
    seed: int | None = None


@dataclass(frozen=True)
class Answer:
    """What was aligned, and what came out."""

    cell: Cell
    draw: Draw
    runtime: str
    alignment: Alignment


def align(question: Question) -> Answer:
    """Raises UserError with what the user has to correct."""
    return asked(question, _aligned_cell)


_T = TypeVar("_T")


def _aligned_cell(run: CellRun, draw: Draw, question: Question) -> Answer:
    return Answer(run.cell, draw, question.runtime, _aligned(run, draw, question.runtime))


def asked(question: Question, answer: Callable[[CellRun, Draw, Question], _T]) -> _T:
    """What ``answer`` gives for the cell and the draw that a question is about; raises UserError."""
    from conformance.worker.warm import prepare_process

    cell = _cell(find_case(question.case, question.paths), question)
    if question.values not in (*REGIMES, *SPECIALS):
        raise UserError(f"--values: there is no '{question.values}'{did_you_mean(question.values, REGIMES)}")
    if cell.converted and not registry.named(question.runtime).converted:
        raise UserError(f"--runtime: {question.runtime} runs no converted models")
    prepare_process()
    try:
        with CellRun.opened(cell, Settings(store=question.store)) as run:
            return answer(run, _draw(run, question), question)
    except (Stopped, Unavailable) as stop:
        if isinstance(stop, Stopped) and stop.fault == "harness":
            raise
        raise UserError(f"{cell.case.name}, {cell.exporter} opset {cell.opset}: {stop}") from None


def _aligned(run: CellRun, draw: Draw, runtime: str) -> Alignment:
    import onnx

    cell = run.cell
    everything = _Everything(run.reference)
    inputs = Verifier(cell, run.record, run.stages, run.reference, run.prepared.maker, []).inputs(draw)
    calls = everything.calls(inputs)
    if not any(call.path for call in calls):
        raise UserError(_no_submodules(cell.case))
    stored = run.model()
    libraries = run.libraries()
    model = onnx.load(stored.file)
    given = candidates(model, calls, cell.exporter)
    arrays = _values(model, given.tensors, LITERAL, libraries, inputs)
    places = match(given, arrays)
    tensors = {place.tensor for place in places if place.tensor is not None}
    if not any(place.tensor for place in places if place.call.path):
        raise UserError(
            f"{cell.case.name}: none of its {len(calls) - 1} calls of submodules could be found in the graph; "
            "nothing was compared"
        )
    wanted = list(next(call for call in calls if not call.path).outputs)
    judge_of = (RuntimeVerifier if cell.converted else Verifier)(
        cell, run.record, run.stages, run.reference, run.prepared.maker, list(stored.facts.outputs)
    ).judge_of
    if cell.converted:
        model = onnx.load(run.converted(stored, refuse=False).file)
    if cell.converted or runtime != LITERAL:
        made = {name for node in model.graph.node for name in node.output}
        kept = [name for name in given.tensors if name in tensors and name in made]
        arrays = _values(model, kept, runtime, libraries, inputs)
    else:
        arrays = {name: arrays[name] for name in tensors}
    if cell.converted:
        return at_reduced(given.graph, places, arrays, judge_of(wanted), cell.precision)
    oracle = everything.exact(inputs)
    exact = {} if oracle is None else dict(zip(_positions(calls), oracle, strict=True))

    def moved() -> Numbers:
        if oracle is None:
            return {}
        parts: Any = (cell, run.record, run.stages, everything, run.prepared.maker, [])
        numbers = Verifier(*parts).conditioning(inputs, [], oracle)
        return dict(zip(_positions(calls), numbers or [], strict=False))

    return at_fp32(given.graph, places, arrays, exact, judge_of(wanted), moved)


class _Everything:
    """Stands in for a ``Reference``: its outputs are those of all calls of submodules."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._calls: list[Call] = []

    def calls(self, inputs: Inputs) -> list[Call]:
        self._reference.restore()
        self._calls = calls_of(lambda: self._reference(inputs))
        return self._calls

    def exact(self, inputs: Inputs, rounding: Rounding | None = None) -> list[Array] | None:
        """The outputs in float64; None where the module has no float64 form, or calls other submodules in it."""
        in_float64 = calls_of(lambda: self._reference.oracle(inputs, rounding))
        pairs = paired(self._calls, in_float64)
        return None if pairs is None else [array for outputs in pairs for array in outputs]

    oracle = exact


def _positions(calls: Iterable[Call]) -> list[tuple[int, int]]:
    return [(call.id, index) for call in calls for index in range(len(call.outputs))]


def _values(
    model: Any, tensors: Sequence[str], runtime: str, libraries: Sequence[str], inputs: Inputs
) -> dict[str, Array]:
    """Runs the model with these tensors as outputs."""
    try:
        return values(model, tensors, runtime, libraries, inputs)
    except Unavailable:
        raise
    except Exception as error:
        text = f"{runtime}: {describe(error, Path('/'))}"
        raise Stopped("run", type(error).__name__, text, "runtime") from None


def _no_submodules(case: Case) -> str:
    why = "its forward is an expression" if case.says.forward is not None else "its forward calls none"
    if case.says.script:
        why = "torch.jit.script compiles them away"
    return (
        f"{case.name} has no submodules to align by: {why}. --operators aligns by operators, pytest says of a "
        "failing cell what differs, and conformance sensitivity ranks the nodes of a model that was converted"
    )


# ---- what the user says --------------------------------------------------------------------------------------


def _cell(case: Case, question: Question) -> Cell:
    cells = [cell for cell in plan(case) if cell.check in ("export", "fidelity")]
    fitting = [
        cell
        for cell in cells
        if cell.precision == question.precision
        and question.exporter in (None, cell.exporter)
        and question.opset in (None, cell.opset)
    ]
    if not fitting:
        have = ", ".join(f"{cell.exporter} {cell.opset} {cell.precision}" for cell in cells)
        raise UserError(f"{case.name} has no such model; it has {have}")
    return fitting[0]


def _draw(run: CellRun, question: Question) -> Draw:
    case = run.cell.case
    with run.stages("declare", "case"):
        traced = run.prepared.trace()
        dims = run.dims()
    sizes = dict(traced)
    for name, size in _sizes(question.at or ""):
        if name not in dims.ranges:
            raise UserError(f"--at: {case.name} has no dim '{name}'{did_you_mean(name, dims.ranges)}")
        sizes[name] = size
    asked = [name for name, _ in _sizes(question.at or "")]
    fitted = dims.fit(sizes)
    for name in asked:
        if fitted is None or fitted[name] != sizes[name]:
            fixed = " (static in this export)" if name in run.target.static else ""
            conditions = "".join(f", where {condition}" for condition in dims.where)
            raise UserError(f"--at {name}={sizes[name]}: {name} is {dims.ranges[name]}{fixed}{conditions}")
    seed = seed_of(case.name, "align") if question.seed is None else question.seed
    return Draw(fitted or sizes, question.values, seed)


def _sizes(text: str) -> list[tuple[str, int]]:
    sizes = []
    for part in filter(None, text.split(",")):
        name, _, size = part.partition("=")
        if not size.strip().isdigit():
            raise UserError(f"--at: '{part}' is not a dim and its size, as in batch=2")
        sizes.append((name.strip(), int(size)))
    return sizes
