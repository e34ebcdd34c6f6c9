"""The check ``fidelity``: what a precision costs."""

from __future__ import annotations

import contextlib

from conformance.case.words import base_of
from conformance.checks.draws import Draws
from conformance.checks.examples import Examples
from conformance.checks.explain import Explainer
from conformance.checks.models import CellRun
from conformance.checks.verify_converted import FidelityVerifier
from conformance.checks.witnesses import whom_to_ask
from conformance.runtimes import opener
from conformance.verdict.loss import LITERAL


def check_fidelity(run: CellRun) -> None:
    """The converted model, by its own semantics, is as close to PyTorch in float32 as its precision is due to be."""
    cell, prepared = run.cell, run.prepared
    stored = run.model()
    converted = run.converted(stored)
    dims, traced, libraries = run.dims(), prepared.trace()[0], run.libraries()
    parts = (cell, run.record, run.stages, run.reference, prepared.maker, list(stored.facts.outputs))
    verify = FidelityVerifier(*parts)
    explainer = Explainer(run.settings, run.record, verify, dims, whom_to_ask(run, verify, stored, converted))
    verify.explain = explainer.blamed
    with contextlib.ExitStack() as stack:
        with run.stages("load", "precision"):
            verify.session = stack.enter_context(opener(LITERAL)(converted.file, libraries))
        storage = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
        run.record.arithmetic = {**verify.session.arithmetic, "storage": storage}
        Examples(
            cell, run.settings, run.record, Draws(cell, run.settings, prepared, dims, traced), verify, explainer
        ).run()
