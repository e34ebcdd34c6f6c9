"""The checks ``accuracy`` and ``specials``: a runtime's outputs are PyTorch's, or what a converted model means."""

from __future__ import annotations

import contextlib

from conformance.arrays import Array
from conformance.baseline.change import Limits
from conformance.case.python import describe
from conformance.case.words import base_of
from conformance.checks.draws import Draws
from conformance.checks.examples import Examples
from conformance.checks.explain import Explainer
from conformance.checks.models import CellRun
from conformance.checks.pack import leave
from conformance.checks.verify import Verifier
from conformance.checks.verify_converted import RuntimeVerifier
from conformance.checks.witnesses import may_saturate, whom_to_ask
from conformance.draw.draw import Draw
from conformance.errors import Stopped, display_path
from conformance.export.store import Stored
from conformance.runtimes import opener, registry
from conformance.runtimes.onnxruntime import kernels
from conformance.verdict import saturation
from conformance.verdict.loss import LITERAL


def check_accuracy(run: CellRun) -> None:
    """The runtime's outputs are PyTorch's, for every example; ``specials`` is the same with other values.

    At another precision they are what the converted model means (``onnxruntime`` with its optimizer off).
    """
    cell, prepared = run.cell, run.prepared
    assert cell.runtime is not None
    stored = run.model()
    converted = run.converted(stored) if cell.converted else None
    model = converted or stored
    dims, traced = run.dims(), prepared.trace()[0]
    parts = (cell, run.record, run.stages, run.reference, prepared.maker, list(stored.facts.outputs))
    draws = Draws(cell, run.settings, prepared, dims, traced)
    with contextlib.ExitStack() as stack:
        verify: Verifier
        if converted is None:
            verify = Verifier(*parts)
        else:
            verify = RuntimeVerifier(*parts)
            with run.stages("load", "precision"):
                verify.meaning = stack.enter_context(opener(LITERAL)(model.file, run.libraries()))
        explainer = Explainer(run.settings, run.record, verify, dims, whom_to_ask(run, verify, stored, converted))
        try:
            _run_examples(run, verify, explainer, draws, model, stack)
        except Stopped as stop:
            _leave_bundle(run, verify, explainer, draws, model, stop)
            raise


def _run_examples(
    run: CellRun, verify: Verifier, explainer: Explainer, draws: Draws, model: Stored, stack: contextlib.ExitStack
) -> None:
    cell, libraries, inputs = run.cell, run.libraries(), run.prepared.trace()[1]
    assert cell.runtime is not None
    config = run.config() if "config" in registry.named(cell.runtime).takes else {}
    try:
        with run.stages("load", "runtime" if cell.converted else "exporter"):
            build = run.build(model, draws.sizes()) if registry.named(cell.runtime).builds else None
            open_model = opener(cell.runtime, build, config)
            verify.session = stack.enter_context(open_model(model.file, libraries))
    except Stopped as stop:
        raise explainer.blamed(stop, inputs) from stop
    run.record.arithmetic = dict(verify.session.arithmetic)
    if cell.converted and cell.runtime == "onnxruntime":
        run.record.arithmetic["storage"] = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
        # a model that does not run is found below
        with contextlib.suppress(Stopped), run.stages("run", "runtime"):
            run.record.arithmetic |= kernels(model.file, libraries, inputs, config)
    Examples(cell, run.settings, run.record, draws, verify, explainer).run()
    _note_saturation(run, verify, model)


def _note_saturation(run: CellRun, verify: Verifier, model: Stored) -> None:
    """Notes in the record of a cell that came close to its limit whether saturation brought it there: on a processor
    that does not saturate it will be further away, and a comparison of the two runs has to know why."""
    record = run.record
    if record.status != "passed" or not may_saturate(run) or not record.worst or not record.draw:
        return
    ratio = float(record.worst["ratio"])
    if ratio < Limits.accuracy_floor:
        return
    inputs = verify.inputs(Draw(**record.draw))
    wanted, exact = verify.wanted(inputs)

    def closer(outputs: list[Array]) -> bool:
        worst = verify.compare(outputs, wanted, exact).worst
        return worst is None or worst.ratio * Limits.accuracy_factor <= ratio

    record.cause = saturation.ask(model.file, run.libraries(), run.config(), inputs, None, closer).cause


def _leave_bundle(
    run: CellRun, verify: Verifier, explainer: Explainer, draws: Draws, model: Stored, stop: Stopped
) -> None:
    """What reproduces an unexpected failure where there is no PyTorch."""
    if explainer.shown is None or explainer.is_declared(stop):
        return
    draw = Draw(**run.record.draw) if run.record.draw else draws.first()
    try:
        run.record.bundle = display_path(leave(run, verify, model, draws, draw, explainer.shown))
    except Exception as error:  # the failure itself is what counts
        run.record.details.append(f"no bundle could be left: {describe(error, run.cell.case.folder)}")
