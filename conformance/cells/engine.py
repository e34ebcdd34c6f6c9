"""The check ``engine``: what only an engine on a GPU can show. PyTorch says which rows have to come out equal."""

from __future__ import annotations

import dataclasses

import numpy as np

from conformance.case.draw.draw import Draw, about, seed_of
from conformance.case.plan.expected import apart, on_host
from conformance.cells.replay.engine_trial import BATCHES, try_engine, unequal_row
from conformance.judge.draws import Draws
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import RuntimeVerifier
from conformance.models.bundle.bundle_files import EngineTrial
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.engine_build import engine_build
from conformance.models.precision.calibration import batch_dim
from conformance.process.arrays import Inputs

ROWS = 4
"""Equal rows of a batch."""


def trial_of(run: CellRun, verify: Verifier, draws: Draws) -> EngineTrial:
    """The trial of a cell's engine; ``verify`` knows what decides on its outputs."""
    inputs = run.prepared.maker(draws.first())
    judge = verify.judge_of(run.reference.afresh(inputs))
    batches = {batch: batched for batch in BATCHES if (batched := _batched(run, batch)) is not None}
    several = _batched(run, ROWS)
    if several is None:
        return EngineTrial(inputs, judge, batches=batches)
    rows = {name: np.repeat(array[:1], len(array), axis=0) for name, array in several.items()}
    outputs = run.reference.afresh(rows)
    equal = [
        index
        for index, array in enumerate(outputs)
        if array.ndim and len(array) == ROWS and unequal_row(array) is None
    ]
    return EngineTrial(inputs, judge, rows, equal, batches)


def _batched(run: CellRun, batch: int) -> Inputs | None:
    """Inputs with ``batch`` rows; None where the case has no dim of rows, allows no such number of them, or is
    declared to fail there."""
    dims, traced = run.dims(), run.prepared.trace()
    dim = batch_dim(run.cell.case, dims)
    sizes = None if dim is None else dims.fit({**traced, dim: batch})
    if dim is None or sizes is None or sizes[dim] != batch:
        return None
    draw = Draw(sizes, "plain", seed_of(run.cell.id, "rows", batch))
    accuracy = dataclasses.replace(run.cell, check="accuracy")
    entries = on_host(apart(accuracy), run.settings.instructions)
    return None if any(about(entry.when, draw) for entry in entries) else run.prepared.maker(draw)


def check_engine(run: CellRun) -> None:
    """Build the cell's engine and try it with inputs that PyTorch has answered."""
    cell = run.cell
    stored = run.model()
    model = converted_model(run, stored) if cell.converted else stored
    draws = Draws(cell, run.settings, run.prepared, run.dims(), run.prepared.trace())
    verify = (RuntimeVerifier if cell.converted else Verifier)(run.of_cell(stored))
    with run.stages("declare", "case"):
        trial = trial_of(run, verify, draws)
    build = engine_build(run, model, draws.sizes())
    try_engine(run.record, lambda name: run.stages(name, "runtime"), model.file, build, trial)
