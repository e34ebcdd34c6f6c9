"""The trial of an engine on a GPU: equal rows and other builds give equal results, and where its time goes.

Needs no PyTorch: what it compares with is in an ``EngineTrial``, which ``cells.engine.trial_of`` makes and a bundle
holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from conformance.compare.judges import Right
from conformance.models.bundle.bundle_files import EngineTrial
from conformance.process.arrays import Array, equal
from conformance.process.errors import Stopped
from conformance.results.records.record import Record
from conformance.runtimes.tensorrt import Build, TensorRTSession, open_model

ROUNDS = 20
"""Timed runs at each batch size, after one that warms up; their median is told. The check ``latency`` has budgets."""

TOP = 20
"""How many layers go into the record with their own times; the times of the rest are added up."""

BATCHES = (1, 4, 16)
"""Batch sizes that are timed, where the case allows them."""

Inputs = Mapping[str, Array]
Stage = Callable[[str], AbstractContextManager[None]]
"""Opens a block by the name of its stage; the runtime is at fault for what is raised in it."""


def try_engine(record: Record, stage: Stage, model: Path, build: Build, trial: EngineTrial) -> None:
    """Identical rows of a batch give identical results; a second build gives the same within tolerance.

    Notes in the record the layers with their milliseconds, and time and throughput at several batch sizes. Raises
    Stopped for what is wrong, Unavailable where this host has no TensorRT.
    """
    with contextlib.ExitStack() as stack:
        with stage("load"):
            session = stack.enter_context(open_model(model, (), build))
        record.arithmetic = dict(session.arithmetic)
        with stage("run"):
            before = session.run(trial.inputs)
        record.examples = 1
        if trial.rows is not None:
            with stage("run"):
                got = session.run(trial.rows)
            _check_rows(got, trial)
            record.examples += 1
        with stage("load"):  # without the timings of the first build, so that it chooses anew
            again = stack.enter_context(open_model(model, (), dataclasses.replace(build, store=None)))
        with stage("run"):
            after = again.run(trial.inputs)
        _check_rebuilt(trial, before, after)
        record.examples += 1
        with stage("latency"):
            record.engine = {"layers": _layers(session, trial.inputs), "times": list(_times(session, trial.batches))}


def _check_rows(outputs: Sequence[Array], trial: EngineTrial) -> None:
    called = trial.judge.reading.subjects(len(outputs))
    for output in trial.equal:
        odd = unequal_row(outputs[output])
        if odd is not None:
            text = f"{called[output]}: row {odd} of a batch of equal rows differs from row 0, but not so in PyTorch"
            raise Stopped("compare", "RowsDiffer", text, "runtime")


def unequal_row(array: Array) -> int | None:
    """The first row that is not exactly equal to row 0; None where all are. NaN equals NaN."""
    rows = range(1, len(array))
    return next((row for row in rows if not equal(array[row], array[0])), None)


def _check_rebuilt(trial: EngineTrial, before: list[Array], after: list[Array]) -> None:
    """Stopped where a second build gives other values: it may choose other kernels, as TensorRT times them anew."""
    comparison = trial.judge.compare(after, Right(before, inputs=dict(trial.inputs)))
    if comparison.verdict == "failed":
        text = f"an engine that was built again gives other values than the cell allows: {comparison.text}"
        raise Stopped("compare", "RebuildDiffers", text, "runtime")


def _layers(session: TensorRTSession, inputs: Inputs) -> list[dict[str, object]]:
    """Layers with their milliseconds, the ``TOP`` slowest each by itself."""
    layers = session.layers(inputs)
    rest = layers[TOP:]
    more = [{"name": f"{len(rest)} more", "ms": sum(float(layer["ms"]) for layer in rest)}] if rest else []
    return [{**layer, "ms": round(float(layer["ms"]), 6)} for layer in [*layers[:TOP], *more]]


def _times(session: TensorRTSession, batches: Mapping[int, Inputs]) -> Iterator[dict[str, float]]:
    """Median seconds on the device, with and without transfers, and rows a second, by batch size."""
    for batch, inputs in batches.items():
        with session.stopwatch(inputs) as once:
            seconds = _median(once)
        with session.stopwatch(inputs, transfers=True) as once:
            with_transfers = _median(once)
        yield {"batch": batch, "seconds": seconds, "with_transfers": with_transfers, "rows": batch / seconds}


def _median(once: Callable[[], float]) -> float:
    once()
    return statistics.median(once() for _ in range(ROUNDS))
