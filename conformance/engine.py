"""What only an engine on a GPU can show: that it is the same for each row and each build, and where its time goes."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from conformance.compare import Array
from conformance.draws import Draws
from conformance.errors import Stopped
from conformance.inputs import Draw, Inputs, about, seed_of
from conformance.plan import expected, left_out
from conformance.precision.calibration import batch_dim
from conformance.precision.judge import RuntimeVerifier
from conformance.runtimes.tensorrt import TensorRTSession, open_model
from conformance.verify import Verifier

if TYPE_CHECKING:
    from conformance.cellrun import CellRun

ROUNDS = 20
"""Timed runs at each batch size, after one that warms up; their median is told. A budget has ``latency`` for it."""

TOP = 20
"""Layers of the table by layer that go into the record; the rest is added up."""


def check_engine(run: CellRun) -> None:
    """Identical rows of a batch give identical results; a second build gives the same within tolerance.

    Notes the layers with their milliseconds, and time and throughput at several batch sizes.
    """
    stored = run.model()
    model = run.converted(stored) if run.cell.converted else stored
    traced, _ = run.prepared.trace()
    draws = Draws(run.cell, run.settings, run.prepared, run.dims(), traced)
    build = run.build(model, draws.sizes())
    first = draws.first()
    kind = RuntimeVerifier if run.cell.converted else Verifier
    names = list(stored.facts.outputs)
    verify = kind(run.cell, run.record, run.stages, run.reference, run.prepared.maker, names)
    with contextlib.ExitStack() as stack:
        with run.stages("load", "runtime"):
            session = stack.enter_context(open_model(model.file, (), build))
        run.record.arithmetic = dict(session.arithmetic)
        with run.stages("run", "runtime"):
            inputs = run.prepared.maker(first)
            before = session.run(inputs)
        run.record.examples = 1
        with run.stages("compare", "runtime"):
            _check_rows(run, session)
        with run.stages("load", "runtime"):  # without the timings of the first build, so that it chooses anew
            again = stack.enter_context(open_model(model.file, (), dataclasses.replace(build, store=None)))
        with run.stages("compare", "runtime"):
            _check_rebuilt(verify, before, again.run(inputs))
        run.record.examples += 1
        with run.stages("latency", "runtime"):
            run.record.engine = {"layers": _layers(session, inputs), "times": list(_times(run, session))}


def _check_rows(run: CellRun, session: TensorRTSession) -> None:
    """All rows of a batch made of one row come out the same, bit for bit, where they do so in PyTorch."""
    batched = _batched(run, 4)
    if batched is None:
        return
    inputs = {name: np.repeat(array[:1], len(array), axis=0) for name, array in batched.items()}
    run.reference.restore()
    wanted, got = run.reference(inputs), session.run(inputs)
    for output, (right, one) in enumerate(zip(wanted, got, strict=True)):
        rows = right.ndim > 0 and len(right) == len(next(iter(inputs.values())))
        if not rows or not _all_rows_equal(right) or _all_rows_equal(one):
            continue
        row = next(index for index in range(1, len(one)) if not np.array_equal(one[index], one[0], equal_nan=True))
        text = f"output {output}: row {row} of a batch of equal rows differs from row 0, which it does not in PyTorch"
        raise Stopped("compare", "RowsDiffer", text, "runtime")
    run.record.examples += 1


def _all_rows_equal(array: Array) -> bool:
    return all(np.array_equal(row, array[0], equal_nan=array.dtype.kind == "f") for row in array[1:])


def _check_rebuilt(verify: Verifier, before: list[Array], after: list[Array]) -> None:
    """TensorRT times kernels while it builds, and may choose others the next time; the answer has to stay."""
    found = verify.compare(after, before, None)
    if found.verdict == "failed":
        text = f"an engine that was built again gives other values than the cell allows: {found.text}"
        raise Stopped("compare", "RebuildDiffers", text, "runtime")


def _layers(session: TensorRTSession, inputs: Inputs) -> list[dict[str, object]]:
    layers = session.layers(inputs)
    rest = layers[TOP:]
    more = [{"name": f"{len(rest)} more", "ms": sum(float(layer["ms"]) for layer in rest)}] if rest else []
    return [{**layer, "ms": round(float(layer["ms"]), 6)} for layer in [*layers[:TOP], *more]]


def _times(run: CellRun, session: TensorRTSession) -> Iterator[dict[str, float]]:
    """Median seconds on the device, with and without transfers, and rows a second, by batch size."""
    for batch in (1, 4, 16):
        inputs = _batched(run, batch)
        if inputs is None:
            continue
        with session.stopwatch(inputs) as once:
            seconds = _median(once)
        with session.stopwatch(inputs, transfers=True) as once:
            with_transfers = _median(once)
        yield {"batch": batch, "seconds": seconds, "with_transfers": with_transfers, "rows": batch / seconds}


def _median(once: Callable[[], float]) -> float:
    once()
    return statistics.median(once() for _ in range(ROUNDS))


def _batched(run: CellRun, batch: int) -> Inputs | None:
    """Inputs with so many rows; None where the case has no dim of rows, not so many, or is declared to fail there."""
    dims, (traced, _) = run.dims(), run.prepared.trace()
    dim = batch_dim(run.cell.case, dims)
    sizes = None if dim is None else dims.fit({**traced, dim: batch})
    if dim is None or sizes is None or sizes[dim] != batch:
        return None
    draw = Draw(sizes, "plain", seed_of(run.cell.id, "rows", batch))
    accuracy = dataclasses.replace(run.cell, check="accuracy")
    apart = [entry for entry in expected(accuracy) if entry.when.only_some_draws] + left_out(accuracy)
    if any(about(entry.when, draw) for entry in apart):
        return None  # the model is declared not to work at this size
    return run.prepared.maker(draw)
