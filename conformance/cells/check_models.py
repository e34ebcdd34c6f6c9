"""Check many ONNX files in a few worker processes, which start once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.cells.coupled_dims import Narrow
from conformance.cells.pool import InOrder, Pool
from conformance.cells.runner import Runner
from conformance.process.errors import UserError, harness_mistake
from conformance.process.worker import memory
from conformance.process.worker.isolation import OnWait, Worker
from conformance.process.worker.warm import new_file_worker
from conformance.results.records.record import Record

Say: TypeAlias = Callable[[object], None]
FIRST, TELLING = 2.0, 10.0
"""Seconds after which it is said how far a run of many models is: for the first time, and then again."""
NAMED = 3
"""Files that are named of those that are refused for one reason."""


@dataclass(frozen=True)
class Model:
    file: Path
    name: str
    """The name of its case, which no other model of the run has."""


@dataclass
class CheckedModel:
    """Hold the verdicts on one model."""

    model: Model
    dims: dict[str, str] = field(default_factory=dict)
    narrow: list[Narrow] = field(default_factory=list)
    """The dims that the file leaves open and that run at no size above one."""
    records: list[Record] = field(default_factory=list)
    refused: str | None = None
    """Why it cannot be checked."""
    seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)
    """The ids of cells that the user has broken off."""
    floats: str = "fp32"
    """The precision of the file as it is: fp16 or bf16 of one whose floats are of that type."""
    uncounted: frozenset[str] = frozenset()
    """The ids of cells whose failure is reported and counts for nothing."""

    @property
    def file(self) -> Path:
        return self.model.file

    def counted(self) -> list[Record]:
        """Return the records but those whose failure counts for nothing."""
        return [one for one in self.records if one.id not in self.uncounted]

    def failed(self) -> list[Record]:
        """Return the records of failures that count."""
        return [one for one in self.counted() if one.status == "failed"]

    def is_wrong(self) -> bool:
        """Return whether a failure counts, or the file leaves a dim open that runs at one size alone."""
        return bool(self.failed()) or any(one.proven for one in self.narrow)

    def verified(self) -> dict[str, list[str]]:
        """Return the runtimes that are right, each with its precisions."""
        return verified(self.records, self.floats)


def verified(records: Sequence[Record], floats: str = "fp32") -> dict[str, list[str]]:
    """Return the runtimes whose outputs were compared and are right, each with its precisions; ``floats`` is that of
    the file as it is."""
    right: dict[str, list[str]] = {}
    for record in records:
        if record.check in _COMPARED and record.status == "passed" and record.examples and record.runtime:
            words = right.setdefault(record.runtime, [])
            word = floats if record.precision == "fp32" else record.precision
            words += [] if word in words else [word]
    return right


_COMPARED = ("accuracy", "recorded")
"""Checks that compare what a runtime gives."""


def run_model(
    model: Model, case: Callable[[CheckedModel], Case], runner: Runner, see: Callable[[Record], object],
    telling: Callable[[Cell], OnWait] | None = None,
) -> CheckedModel:  # fmt: skip
    """Run all cells of a model; ``case`` makes its case and notes the sizes, ``see`` gets each record as it comes,
    and what ``telling`` gives the notes of a cell while it runs. What Ctrl-C breaks off is ``unfinished``.

    Raises UserError where there is no such case.
    """
    start, checked = time.monotonic(), CheckedModel(model)
    cells = list(plan(case(checked)))
    try:
        for record in runner.each(cells, telling):
            checked.records.append(record)
            see(record)
    except KeyboardInterrupt:
        checked.unfinished = [cell.id for cell in cells[len(checked.records) :]]
    checked.seconds = time.monotonic() - start
    return checked


Check: TypeAlias = Callable[[Worker, Runner, Model], CheckedModel]


def check_models(
    models: Sequence[Model], jobs: int, runner: Callable[[Worker], Runner], check: Check, say: Say
) -> Iterator[CheckedModel]:
    """Yield what came of each model as it ends, and say now and then how far the run is."""
    if not models:
        return
    with ExitStack() as stack:
        workers = [new_file_worker(memory.share(jobs)).__enter__() for _ in range(jobs)]  # which the pool closes

        def driving(worker: Worker) -> Callable[[Model, OnWait, Model | None], CheckedModel]:
            own = runner(worker)
            return lambda model, on_wait, following: _checked(model, lambda: check(worker, own, model))

        pool = Pool(workers, driving, InOrder(range(len(models))), dict(enumerate(models)), _failed)
        stack.callback(pool.close)
        pool.start()
        start = last = time.monotonic()
        done, due = 0, FIRST
        for result in pool.results():
            now = time.monotonic()
            if result is not None:
                done += 1
                yield result[1]
            if now - last >= due and done < len(models):
                last, due = now, TELLING
                left = f", about {(now - start) / done * (len(models) - done):,.0f} s left" if done else ""
                say(f"  {done:,} of {len(models):,} models{left}")


def _checked(model: Model, check: Callable[[], CheckedModel]) -> CheckedModel:
    try:
        return check()
    except UserError as error:
        return CheckedModel(model, refused=str(error))


def _failed(model: Model, error: Exception) -> CheckedModel:
    return CheckedModel(model, refused=f"{model.file}: {harness_mistake('checking this model', error)}")


def refused_alike(refused: Sequence[CheckedModel]) -> Iterator[str]:
    """Yield one line for each reason for which models are refused, with how many these are and the first of them."""
    reasons: dict[str, list[Path]] = {}
    for one in refused:
        reason = str(one.refused).removeprefix(f"{one.model.file}: ").removeprefix(f"{one.model.file} ")
        reasons.setdefault(reason, []).append(one.model.file)
    for reason, files in reasons.items():
        named = ", ".join(map(str, files[:NAMED]))
        more = f" and {len(files) - NAMED:,} more" if len(files) > NAMED else ""
        yield f"refused {len(files):,} of the models: {reason}: {named}{more}"
