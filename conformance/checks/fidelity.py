"""The check ``fidelity``: what a precision costs."""

from __future__ import annotations

import contextlib

from conformance.case.words import base_of
from conformance.checks.conversion import converted_model
from conformance.checks.draws import Draws
from conformance.checks.examples import Examples
from conformance.checks.explain_failure import CaseExplainer
from conformance.checks.finiteness import check_finite
from conformance.checks.locate import note_operator
from conformance.checks.models import CellRun
from conformance.checks.verify_converted import FidelityVerifier, opening_literal
from conformance.checks.witnesses import whom_to_ask
from conformance.errors import Stopped


def check_fidelity(run: CellRun) -> None:
    """The converted model, by its own semantics, is as close to PyTorch in float32 as its precision is due to be, and
    gives numbers wherever PyTorch does."""
    cell, prepared = run.cell, run.prepared
    stored = run.model()
    converted = converted_model(run, stored)
    dims, traced = run.dims(), prepared.trace()
    with contextlib.ExitStack() as stack:
        session = opening_literal(run, converted, stack)()
        storage = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
        run.record.arithmetic = {**session.arithmetic, "storage": storage}
        verify = FidelityVerifier(run.of_cell(stored), session)
        verify.kept = run.kept_answers(converted)
        ask = whom_to_ask(run, verify, stored, converted)
        explainer = CaseExplainer(run.settings, run.record, verify, dims, ask)
        verify.expects = explainer.is_declared
        draws = Draws(cell, run.settings, prepared, dims, traced)
        try:
            Examples(cell, run.settings, run.record, draws, verify, explainer).run()
            check_finite(run, session, draws, stored, converted, trusting=verify.kept.first is not None)
        except Stopped as stop:
            if stop.fault == "exporter" and not explainer.is_declared(stop) and not stop.details.get("unexplained"):
                note_operator(run, verify, stored, explainer.example, stop)
            raise
