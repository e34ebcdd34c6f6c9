"""Answer what the user asks to align: a cell, an example, and the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from conformance.case.declaration import Case
from conformance.case.words import REGIMES, SPECIALS
from conformance.checks.models import CellRun
from conformance.draw.draw import Draw, seed_of
from conformance.errors import Stopped, Unavailable, UserError, did_you_mean
from conformance.plan.catalogue import find_case, plan
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.runtimes import registry
from conformance.verdict.loss import LITERAL


@dataclass(frozen=True)
class Question:
    """Hold what is to be aligned; None leaves a field to the case."""

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


_T = TypeVar("_T")


def answered(question: Question, answer: Callable[[CellRun, Draw, str], _T]) -> _T:
    """Call ``answer`` with the cell, the draw and the runtime of a question.

    Returns what it gives; raises UserError with what the user has to correct.
    """
    from conformance.worker.warm import prepare_process

    cell = _cell(find_case(question.case, question.paths), question)
    if question.values not in (*REGIMES, *SPECIALS):
        raise UserError(f"--values: there is no '{question.values}'{did_you_mean(question.values, REGIMES)}")
    if cell.converted and not registry.named(question.runtime).converted:
        raise UserError(f"--runtime: {question.runtime} runs no converted models")
    missing = registry.absence_inside(question.runtime)
    if missing is not None:
        raise UserError(f"--runtime {question.runtime}: {missing}")
    prepare_process()
    try:
        with CellRun.opened(cell, Settings(store=question.store)) as run:
            return answer(run, _draw(run, question), question.runtime)
    except (Stopped, Unavailable) as stop:
        if isinstance(stop, Stopped) and stop.fault == "harness":
            raise
        raise UserError(f"{cell.case.name}, {cell.exporter} opset {cell.opset}: {stop}") from None


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
