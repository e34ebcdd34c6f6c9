"""Answer what the user asks to align: a cell, an example, and the runtime."""

from __future__ import annotations

import argparse
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
    files: Sequence[Path] = ()
    """One ONNX file or two, in place of a case."""
    dims: Sequence[str] = ()
    """Of files, as for ``conformance check --dim``."""
    inputs: Sequence[str] = ()
    """Of files, as for ``conformance check --input``."""
    exporter: str | None = None
    opset: int | None = None
    precision: str | None = None
    """fp32, unless the second file is a converted one."""
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
    named: bool = True
    """False where others may be drawn in its place."""
    because: str | None = None
    """The reason for which it was chosen, of those that are drawn."""


_T = TypeVar("_T")


def answered(question: AlignQuestion, answer: Callable[[CellRun, Chosen, str], _T]) -> _T:
    """Call ``answer`` with the cell, the example and the runtime of a question: by default the example with which a
    cell of that model failed last.

    Returns what it gives; raises UserError with what the user has to correct.
    """
    from conformance.process.worker.warm import prepare_process

    case = case_of_files(question) if question.files else find_case(question.case, question.paths)
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
            named = question.names_example or not question.files
            return answer(run, chosen or Chosen(_draw(run, question), named=named), question.runtime)
    except (Stopped, Unavailable) as stop:
        if isinstance(stop, Stopped) and stop.fault == "harness":
            raise
        raise UserError(f"{cell.case.name}, {cell.exporter} opset {cell.opset}: {stop}") from None


def case_of_files(question: AlignQuestion) -> Case:
    """Return the case that ``conformance check`` makes of these files. Raises UserError where it makes none."""
    from conformance.cells.check_models import CheckedModel
    from conformance.front.commands import check
    from conformance.front.commands.file_cases import describe_case
    from conformance.process.worker.warm import new_file_worker

    parser = argparse.ArgumentParser()
    check.arguments(parser)
    options = [f"--{name}={text}" for name in ("dim", "input") for text in getattr(question, f"{name}s")]
    given = parser.parse_args([*options, "--", *map(str, question.files)])
    said = describe_case(given, question.files[0], next(iter(question.files[1:]), None), lambda line: None)
    model = CheckedModel(check.model_of_file(question.files[0]))
    with new_file_worker() as worker:
        return check.case_with_sizes(model, said, worker, lambda line: None)


def heading(run: CellRun, chosen: Chosen, runtime: str) -> str:
    """Say what is aligned, of which example."""
    draw = chosen.draw
    cell, sizes = run.cell, ", ".join(f"{name}={size}" for name, size in draw.dims.items())
    beside = f" and {Path(cell.file_of_another).name} beside it" if cell.file_of_another else ""
    entry = registry.named(runtime)
    shown = entry.shown_inside and cell.exporter != "onnx"  # whose parts are cut out where showing tensors changes it
    how = f"{entry.title}, {entry.shown_inside}" if shown else entry.title
    return (
        f"{cell.case.name}{beside}, {cell.exporter} opset {cell.opset}, {cell.precision}, by {how}; "
        f"{sizes or 'no dims'}, {draw.regime} values, seed {draw.seed}"
        f"{f', with which {chosen.failed} failed when it ran last' if chosen.failed else ''}"
        f"{f', {chosen.because}' if chosen.because else ''}"
    )


# ---- what the user says --------------------------------------------------------------------------------------


def _fitting(case: Case, question: AlignQuestion) -> list[Cell]:
    """Return a cell for each model that fits the question, the first of the case first."""
    models = ("export", "fidelity")
    cells = [cell for cell in plan(case) if cell.check in models]
    cells += [cell for cell in plan(case) if cell.is_of_own_file and cell.check == "accuracy"]
    of_file = [name for name, settings in case.says.precisions.items() if settings.file is not None]
    precision = question.precision or (of_file[0] if question.files and of_file else "fp32")
    fitting = [
        cell
        for cell in cells
        if cell.precision == precision
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
