"""The check ``latency``: a runtime against its budget, both sides measured in turn in this process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case.draw.draw import Draw, seed_of
from conformance.case.files.deploy import Latency
from conformance.judge.latency import host_speed
from conformance.judge.latency.latency_store import as_record
from conformance.judge.latency.measure_latency import SideFailed, decide, interleave
from conformance.judge.latency.statistics import TimeVerdict, noise_floor, precise
from conformance.models.conversion import converted_model
from conformance.models.engine_build import engine_build
from conformance.models.precision.calibration import batch_dim
from conformance.process.arrays import Inputs
from conformance.process.errors import Stopped, Unavailable
from conformance.runtimes import GuardedSession, opener, registry

if TYPE_CHECKING:
    from conformance.models.cell_run import CellRun

FLOOR_SECONDS = 1.0
"""How long the runtime is measured against itself. What differs then is noise, and widens the interval."""

ALONE_SECONDS = 0.2
"""How long each side is measured alone, for ``IN_TURN``."""

IN_TURN = 3.0
"""How many times as long as alone a side may take while it runs in turn with the other side. Beyond that the
threads of the two are in each other's way, and the ratio says nothing of either: on two busy cores a product of small
matrices took PyTorch's two threads 15 ms in place of 10 µs."""

THROUGHPUT_SECONDS = 1.0
"""How long throughput is measured at each batch size."""


def check_latency(run: CellRun) -> None:
    """Hold a runtime against its budget. A broken budget is a failure; where the samples do not decide, the cell is
    skipped, and says so."""
    entry = run.cell.budget
    assert entry is not None
    inputs, sizes = _inputs(run, entry.at)
    try:
        samples, judged, disturbed = (None, [], None) if entry.at_most is None else _judged(run, entry, inputs)
        with run.stages("latency", "runtime"):
            rates = {batch: _throughput(run, entry, batch) for batch in entry.throughput}
    except SideFailed as error:
        raise Stopped("latency", type(error.__cause__).__name__, str(error), "runtime") from error
    record = run.record
    record.latency = as_record(
        samples, judged, runtime=entry.runtime, precision=entry.precision, at=sizes, host=host_speed.state(),
        throughput=rates,
    )  # fmt: skip
    for decided in judged:
        if decided.verdict == "broken":
            raise Stopped("latency", "TooSlow", _text(decided), "runtime")
        if decided.verdict == "inconclusive":
            raise Unavailable(f"inconclusive: {'; '.join(filter(None, [disturbed, _text(decided)]))}")


def _judged(run: CellRun, entry: Latency, inputs: Inputs) -> tuple[Any, list[TimeVerdict], str | None]:
    """The samples, the verdict, and which side was slowed down where that makes the verdict inconclusive."""
    budget = entry.at_most
    assert budget is not None
    seed = seed_of(run.cell.id, "latency")

    @contextlib.contextmanager
    def sides() -> Iterator[tuple[Any, Any]]:
        with _side(run, entry, entry.runtime, entry.precision, inputs) as own:
            if budget.runtime is None:
                yield own, None
                return
            precision = budget.precision or entry.precision
            with _side(run, entry, budget.runtime, precision, inputs) as other:
                yield own, other

    floor = 0.0
    if budget.kind == "relation":
        with (
            _side(run, entry, entry.runtime, entry.precision, inputs) as own,
            _side(run, entry, entry.runtime, entry.precision, inputs) as same,
            run.stages("latency", "runtime"),
        ):
            floor = noise_floor(interleave(own, same, seed=seed, max_seconds=FLOOR_SECONDS, enough=precise(0.01)))
    samples, judged = decide(
        budget, sides, seed=seed, percentile=entry.percentile, floor=floor, max_seconds=entry.seconds
    )
    run.record.seconds["latency"] = run.record.seconds.get("latency", 0.0) + samples.seconds
    disturbed = None
    if budget.kind == "relation" and judged.verdict != "inconclusive":
        with sides() as pair:
            disturbed = _disturbed(pair, (samples.own, samples.other), seed)
    return samples, [judged if disturbed is None else replace(judged, verdict="inconclusive")], disturbed


def _disturbed(sides: tuple[Any, Any], in_turn: tuple[Any, Any], seed: int) -> str | None:
    """Return which side took more than ``IN_TURN`` times as long in turn as alone, of both the one slowed down more;
    None where neither did. ``in_turn`` are the durations of both sides in turn."""
    slowdowns: list[tuple[float, str]] = []
    for side, durations in zip(sides, in_turn, strict=True):
        alone = interleave(side, None, seed=seed, max_seconds=ALONE_SECONDS).own
        slowdowns.append((float(np.median(durations) / np.median(alone)), side.name))
    times, name = max(slowdowns)
    if times <= IN_TURN:
        return None
    return f"{name} takes {times:.3g} times as long in turn with the other side as alone"


def _inputs(run: CellRun, at: dict[str, int]) -> tuple[Inputs, dict[str, int]]:
    """Plain values at the sizes that ``latency`` declares, and all sizes of these inputs."""
    dims, traced = run.dims(), run.prepared.trace()
    sizes = dims.fit({**traced, **at})
    if sizes is None or any(sizes[name] != size for name, size in at.items()):
        given = ", ".join(f"{name}={size}" for name, size in at.items())
        raise Stopped("declare", "NoSuchSize", f"latency: {given} is not within the dims of the case", "case")
    with run.stages("declare", "case"):
        return run.prepared.maker(Draw(sizes, "plain", seed_of(run.cell.case.name, "latency"))), sizes


@contextlib.contextmanager
def _side(run: CellRun, entry: Latency, runtime: str, precision: str, inputs: Inputs) -> Iterator[Any]:
    """Yield what is measured of a runtime, its session with these inputs: a call, to ``run`` by the host's clock, or
    one that is ``timed`` by events on its device."""
    name = f"{runtime} {precision}" if runtime != "pytorch" else runtime
    if runtime == "pytorch":
        yield SimpleNamespace(name=name, run=run.reference.caller(inputs))
        return
    with _session(run, runtime, precision, inputs) as session:
        if not registry.named(runtime).on_device:
            yield SimpleNamespace(name=name, run=lambda: session.direct.run(inputs))
            return
        timed: Any = session  # what runs on a device has a stopwatch
        with timed.stopwatch(inputs, transfers=entry.transfers) as once:
            yield SimpleNamespace(name=name, timed=once)


@contextlib.contextmanager
def _session(run: CellRun, runtime: str, precision: str, inputs: Inputs) -> Iterator[GuardedSession]:
    """The runtime with the cell's model loaded, after one run; Unavailable where this host lacks the runtime."""
    missing = registry.absence(runtime)
    if missing is not None:
        raise Unavailable(missing)
    stored = run.model()
    model = stored if precision == "fp32" else converted_model(run, stored, precision=precision)
    with contextlib.ExitStack() as stack:
        with run.stages("load", "runtime"):
            build = engine_build(run, model, [], precision=precision) if registry.named(runtime).builds else None
            session = stack.enter_context(opener(runtime, build, run.config())(model.file, run.libraries()))
        with run.stages("run", "runtime"):
            session.run(inputs)
        if runtime == run.cell.runtime and precision == run.cell.precision:
            run.record.arithmetic = dict(session.arithmetic)
        yield session


def _throughput(run: CellRun, entry: Latency, batch: int) -> float:
    """Rows a second with ``batch`` rows at a time."""
    dim = batch_dim(run.cell.case, run.dims())
    if dim is None:
        text = "latency: throughput needs a dim that is the first of every input, which the case has not"
        raise Stopped("declare", "NoBatch", text, "case")
    inputs, _ = _inputs(run, {**entry.at, dim: batch})
    with _side(run, entry, entry.runtime, entry.precision, inputs) as own:
        samples = interleave(own, None, seed=seed_of(run.cell.id, batch), max_seconds=THROUGHPUT_SECONDS)
    ordered = sorted(map(float, samples.own))
    return batch / ordered[len(ordered) // 2]


def _text(judged: TimeVerdict) -> str:
    """``1.31 x pytorch (99 % within 1.28 to 1.34), at most 1.2 is declared``"""
    interval, budget = judged.interval, judged.budget
    share = f"{judged.confidence:.0%}"
    if budget.kind == "relation":
        against = " ".join(filter(None, (budget.runtime, budget.precision)))
        high = f"{interval.high:.3g}" if math.isfinite(interval.high) else "anything"
        times = f"{interval.ratio:.3g} x {against}"
        return f"{times} ({share} within {interval.low:.3g} to {high}), at most {budget.limit:g}"
    high = f"{interval.high * 1e3:.3g} ms" if math.isfinite(interval.high) else "anything"
    which = "median" if judged.percentile in (None, 50) else f"percentile {judged.percentile:g}"
    return (
        f"{which} {interval.ratio * 1e3:.3g} ms ({share} within {interval.low * 1e3:.3g} to {high}), "
        f"at most {budget.limit * 1e3:.3g} ms"
    )
