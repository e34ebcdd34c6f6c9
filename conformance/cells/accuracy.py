"""The checks ``accuracy`` and ``specials``: a runtime's outputs are PyTorch's, or what a converted model means."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import numpy as np

from conformance.case.draw.draw import Draw
from conformance.cells.check_recorded import check_meaning
from conformance.cells.coverage import note_coverage
from conformance.cells.doubts import check_doubts
from conformance.cells.examples import Examples
from conformance.cells.meaning import KeptNetwork
from conformance.diagnose.explain_failure import may_saturate
from conformance.diagnose.nodes import saturation
from conformance.diagnose.second_voice import check_confirmed
from conformance.judge.draws import Draws
from conformance.judge.red_cell import CheckedCell, RedCell
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import RuntimeVerifier, opening_literal, rounding_otherwise
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.engine_build import engine_build
from conformance.models.kept.answers import KeptAnswers
from conformance.models.kept.model_store import Stored
from conformance.process.arrays import Array
from conformance.process.errors import Stopped, attempt
from conformance.results.baseline.change import Limits
from conformance.results.records.explanation import note_details
from conformance.results.records.host_conditions import installed_version
from conformance.results.records.record_types import Warned
from conformance.results.records.words import STORAGE, base_of
from conformance.runtimes import Session, opener, registry
from conformance.runtimes.onnxruntime import PROVIDER as CPU
from conformance.runtimes.onnxruntime import kernels


def check_accuracy(run: CellRun) -> RedCell | None:
    """The runtime's outputs are PyTorch's, for every example; ``specials`` is the same with other values.

    At another precision than fp32 they are what the converted model means (``LITERAL`` computes it).
    """
    cell, prepared = run.cell, run.prepared
    assert cell.runtime is not None
    if cell.case.says.recorded is not None:
        with run.stages("declare", "case"):
            check_meaning(run)
    stored = run.model()
    if stored.facts.sequences:
        with run.stages("declare", "case"):
            prepared.see_lengths()  # before a judge is made
    converted = converted_model(run, stored) if cell.converted else None
    model = converted or stored
    draws = Draws(cell, run.settings, prepared, run.dims(), prepared.trace())
    kept = run.kept_answers(model)
    meaning = None if converted is None else opening_literal(run, converted)
    if meaning is not None and kept.first is None:
        meaning()  # before the runtime, which is not to blame for what nothing can load
    session, stopped = load_model(run, draws, model, kept)
    parts = run.of_cell(stored, kept)
    verify = Verifier(parts, session)
    if converted is not None:
        verify = RuntimeVerifier(parts, session, meaning, rounding_otherwise(run, converted))
    of = CheckedCell(run, verify, draws, stored, converted)
    if stopped is not None:
        unloaded = RedCell(of, stopped, verify.example(draws.first(), prepared.inputs()))
        check_doubts(unloaded)
        return unloaded
    assert session is not None
    _note_arithmetic(run, session, model, kept)
    try:
        red = Examples(of).run()
        if red is None:
            check_confirmed(of, verify.example(draws.first(), prepared.inputs()))
    except Stopped:
        run.note_changes()
        raise
    run.note_changes()
    if cell.check == "accuracy" and cell.runtime != registry.EVALUATOR:  # which takes long, and is Python
        _note_variation(run, verify, session, model)
        if red is None:
            kept.write_more()
    if red is None and cell.check == "accuracy":
        note_coverage(run, verify)
    if red is None:
        _note_saturation(run, verify, model)
    return red


AGAIN = 0.25
"""Seconds of loading and a call from which on neither is done once more to see whether it varies: 20,000 nodes take
seconds to load, and a gigabyte of weights would be there twice."""


def _note_variation(run: CellRun, verify: Verifier, session: Session, model: Stored) -> None:
    """Note where the runtime gives other bits for the same inputs, in another call or session, or in an earlier run,
    after other cells. That is allowed, and excuses nothing: what is wrong in any is wrong."""
    cell, inputs = run.cell, run.prepared.inputs()
    assert cell.runtime is not None
    seconds = run.record.seconds
    if seconds.get("load", 0.0) + seconds.get("run", 0.0) / max(run.record.examples, 1) > AGAIN:
        return
    entry = registry.named(cell.runtime)
    config = run.config() if "config" in entry.takes else {}
    by = repr([entry.name, config, session.arithmetic, *map(installed_version, entry.packages)])
    drawn = {place for place, output in enumerate(verify.outputs()) if output.random}

    def outputs(of: Session) -> list[Array]:
        return [output for place, output in enumerate(of.run(inputs)) if place not in drawn]

    def varies() -> list[str]:
        first = outputs(session)
        told = [f"{how} between calls" for how in _apart(first, outputs(session))]
        if not entry.builds:
            with opener(entry.name, None, config)(model.file, run.libraries()) as other:
                told += [f"{how} between sessions" for how in _apart(first, outputs(other))]
        before = verify.kept.outputs(by, inputs)
        if before is None:
            verify.kept.add_outputs(by, inputs, first)
        else:
            told += [f"{how} between runs" for how in _apart(first, before)]
        return told

    told = attempt(varies)  # that the runtime fails is told where it is judged
    if told and not isinstance(told, Exception):
        warning: Warned = {"name": "varies", "error": "Varies", "text": f"{entry.title} {' and '.join(told)}"}
        run.record.warnings = [*run.record.warnings, warning]


def _apart(one: Sequence[Array], other: Sequence[Array]) -> Iterator[str]:
    """Yield how far outputs that are not the same bits are apart."""
    if [each.tobytes() for each in one] == [each.tobytes() for each in other]:
        return
    sizes = [
        np.abs(np.subtract(a, b, dtype=np.float64)) for a, b in zip(one, other, strict=True) if a.dtype.kind != "U"
    ]
    most = max((float(np.nanmax(size, initial=0.0)) for size in sizes), default=0.0)
    yield f"varies by {most:.1g}" if 0 < most < math.inf else "varies"


def load_model(
    run: CellRun, draws: Draws, model: Stored, kept: KeptAnswers | None = None
) -> tuple[Session | None, Stopped | None]:
    """Return the runtime with the model loaded, and None; or None, and what stopped the loading. A network in NumPy
    is computed where ``kept`` lacks its outputs."""
    cell, libraries = run.cell, run.libraries()
    assert cell.runtime is not None
    config = run.config() if "config" in registry.named(cell.runtime).takes else {}
    try:
        with run.stages("load", "runtime" if cell.converted else "exporter"):
            if kept is not None and cell.check == "meaning":
                return KeptNetwork(run, model, kept), None
            build = engine_build(run, model, draws.sizes()) if registry.named(cell.runtime).builds else None
            return run.enter(opener(cell.runtime, build, config)(model.file, libraries)), None
    except Stopped as stop:
        return None, stop


def _note_arithmetic(run: CellRun, session: Session, model: Stored, kept: KeptAnswers) -> None:
    """Note in the record which provider runs the model, and in which arithmetic. On the CPU that is as it was in an
    earlier run of the same model with the same options and instructions."""
    cell = run.cell
    assert cell.runtime is not None
    run.record.arithmetic = dict(session.arithmetic)
    if cell.converted and not registry.named(cell.runtime).builds:
        run.record.arithmetic["storage"] = STORAGE[base_of(cell.precision)]
    provider = registry.named(cell.runtime).provider
    if provider or (cell.converted and cell.runtime == "onnxruntime"):
        # a model that does not run fails later, at its first example
        with contextlib.suppress(Stopped), run.stages("run", "runtime"):
            config = run.config()
            told = None if provider else kept.kernels(config)
            if told is None:
                told = kernels(model.file, run.libraries(), run.prepared.inputs(), config, provider or CPU)
                kept.add_kernels(config, told)
            run.record.arithmetic |= told


def _note_saturation(run: CellRun, verify: Verifier, model: Stored) -> None:
    """Note in the record of a passing cell whether saturation brought its error close to what is allowed.

    On a processor that does not saturate the error is smaller, and a comparison of runs on both has to know why.
    """
    record = run.record
    if record.status != "passed" or not may_saturate(run) or not record.worst or not record.draw:
        return
    ratio = float(record.worst["ratio"])
    if ratio < Limits.accuracy_floor:
        return
    example = verify.example(Draw(**record.draw))

    def closer(outputs: list[Array]) -> bool:
        worst = verify.compare(outputs, example.right()).worst
        return worst is None or worst.ratio * Limits.accuracy_factor <= ratio

    runtime, config = f"{run.cell.runtime}", run.config()
    witness = saturation.ask(runtime, model.file, run.libraries(), config, example.inputs, None, closer)
    note_details(record, {"cause": saturation.cause_shown_by(witness)})
