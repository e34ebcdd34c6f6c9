"""Answer what the user asks to align: a cell, an example, and the runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from conformance.case.draw.draw import Draw, seed_of
from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import find_case, plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.judge.draws import kept_draws
from conformance.models.cell_run import CellRun
from conformance.process.disk.stores import DRAWS
from conformance.process.errors import Stopped, Unavailable, UserError, did_you_mean
from conformance.results.records.words import REGIMES, SPECIALS
from conformance.runtimes import registry
from conformance.runtimes.registry import LITERAL


@dataclass(frozen=True)
class AlignQuestion:
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
    values: str | None = None
    seed: int | None = None

    @property
    def names_example(self) -> bool:
        """Return whether the user says which example to look at, or some of it."""
        return (self.at, self.values, self.seed) != (None, None, None)


@dataclass(frozen=True)
class Chosen:
    """The example to look at."""

    draw: Draw
    failed: str | None = None
    """The cell that failed with it when it ran last; None for an example that the user names, or that is chosen."""


_T = TypeVar("_T")


def answered(question: AlignQuestion, answer: Callable[[CellRun, Chosen, str], _T]) -> _T:
    """Call ``answer`` with the cell, the example and the runtime of a question: by default the example with which a
    cell of that model failed last.

    Returns what it gives; raises UserError with what the user has to correct.
    """
    from conformance.process.worker.warm import prepare_process

    case = find_case(question.case, question.paths)
    settings = Settings(store=question.store, failures=question.store.parent / DRAWS)
    cells = _fitting(case, question)
    found = None if question.names_example else _failed(case, cells, settings)
    cell, chosen = found or (cells[0], None)
    if question.values is not None and question.values not in (*REGIMES, *SPECIALS):
        raise UserError(f"--values: there is no '{question.values}'{did_you_mean(question.values, REGIMES)}")
    if cell.converted and not registry.named(question.runtime).converted:
        raise UserError(f"--runtime: {question.runtime} runs no converted models")
    missing = registry.absence_inside(question.runtime)
    if missing is not None:
        raise UserError(f"--runtime {question.runtime}: {missing}")
    prepare_process()
    try:
        with CellRun.opened(cell, settings) as run:
            return answer(run, chosen or Chosen(_draw(run, question)), question.runtime)
    except (Stopped, Unavailable) as stop:
        if isinstance(stop, Stopped) and stop.fault == "harness":
            raise
        raise UserError(f"{cell.case.name}, {cell.exporter} opset {cell.opset}: {stop}") from None


# ---- what the user says --------------------------------------------------------------------------------------


def _fitting(case: Case, question: AlignQuestion) -> list[Cell]:
    """Return a cell for each model that fits the question, the first of the case first."""
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
    return fitting


_TELLING = ("accuracy", "fidelity", "specials")
"""The checks whose failing examples show a wrong operator, those of ordinary values first."""


def _failed(case: Case, models: list[Cell], settings: Settings) -> tuple[Cell, Chosen] | None:
    """Return the first model of which a cell failed when it ran last, and the example with which it did."""
    cells = sorted(
        (cell for cell in plan(case) if cell.check in _TELLING), key=lambda cell: _TELLING.index(cell.check)
    )
    for model in models:
        for cell in cells:
            if (cell.exporter, cell.opset, cell.precision) == (model.exporter, model.opset, model.precision):
                for draw in kept_draws(settings, cell):
                    return model, Chosen(draw, cell.id)
    return None


def _draw(run: CellRun, question: AlignQuestion) -> Draw:
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
    return Draw(fitted or sizes, question.values or REGIMES[0], seed)


def _sizes(text: str) -> list[tuple[str, int]]:
    sizes = []
    for part in filter(None, text.split(",")):
        name, _, size = part.partition("=")
        if not size.strip().isdigit():
            raise UserError(f"--at: '{part}' is not a dim and its size, as in batch=2")
        sizes.append((name.strip(), int(size)))
    return sizes
