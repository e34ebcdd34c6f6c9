"""The check ``export``: the graph is what the case says, and does not depend on the shape it was traced at."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.arrays import Array, Inputs, same
from conformance.case.export_keys import TorchScript
from conformance.checks.doubt import check_doubted
from conformance.checks.models import CellRun
from conformance.checks.smallest_function import note_failed_export
from conformance.draw.draw import Draw
from conformance.errors import Stopped
from conformance.export import graph
from conformance.export.model_store import Stored
from conformance.plan.expected import matches

OTHER_VALUES = 3
"""With how many other values it is tried whether an input is used."""
SECOND_TRACE_SECONDS = 2.0
"""An export that takes longer than this is not traced at a second point."""


def check_export(run: CellRun) -> None:
    """The graph is what the case says, and does not depend on the shape it was traced at."""
    _check_unused(run)
    try:
        stored = run.model()
    except Stopped as failure:
        note_failed_export(run, failure)
        raise
    case, cell = run.cell.case, run.cell
    sizes = run.prepared.trace()
    with run.stages("check", "exporter"):
        order, outputs = run.reference.passing.in_graph(), run.reference.output_names(run.prepared.inputs())
        findings = list(graph.signature(case, stored.facts, order, sizes, run.target.static, outputs))
        for entry in case.says.graph:
            if matches(entry.when, cell):
                findings += graph.assertions(entry, stored.facts)
        if findings:
            stop = Stopped("check", findings[0].error, findings[0].text, findings[0].fault)
            stop.details = {"findings": [finding.text for finding in findings]}
            raise stop
        abstains = run.reference.abstains
        if abstains is not None:
            text = f"{abstains}; what is right was computed by ONNX Runtime node by node, with its optimizer off"
            run.record.warnings = [*run.record.warnings, {"name": "reference", "error": "Abstains", "text": text}]
        try:
            check_doubted(run, stored)
        except Stopped as failure:
            note_failed_export(run, failure)
            raise
        run.note_changes()
        _check_second_trace(run, stored)
    run.record.examples = 1


def _check_unused(run: CellRun) -> None:
    """Stopped where PyTorch's outputs hang on the values of an input that the case says forward does not use."""
    unused = run.cell.case.says.unused
    if not unused:
        return
    sizes, inputs = run.prepared.trace(), run.prepared.inputs()
    right = _answers(run, inputs)
    for name in unused:
        for seed in range(OTHER_VALUES):
            others = run.prepared.maker(Draw(sizes, "plain", seed))
            if not same(right, _answers(run, {**inputs, name: others[name]})):
                text = f"forward does use {name}: its outputs depend on it; take it out of unused"
                raise Stopped("declare", "UsedInput", text, "case")


def _answers(run: CellRun, inputs: Inputs) -> list[Array]:
    run.reference.restore()
    return run.reference(inputs)


def _check_second_trace(run: CellRun, stored: Stored) -> None:
    """Stopped where the graph differs when it is traced at other sizes: it has a size baked in."""
    sizes = run.prepared.trace()
    odd = run.prepared.trace(odd=True)
    held = all(sizes[name] == odd[name] for name in sizes if name not in run.target.static)
    affordable = stored.seconds["export"] <= SECOND_TRACE_SECONDS
    target = run.target
    if not isinstance(target, TorchScript) or held or not affordable:
        return
    # In training mode the statistics of the example are part of the model.
    if run.cell.case.says.mode == "train" or target.options.training not in (None, "eval"):
        return
    name = run.key
    if run.outcomes.same_graph(name, stored.facts.structure):
        return
    with run.stages("export", "exporter"):
        again = graph.structure(run.export(odd=True).model)
    if again != stored.facts.structure:
        text = (
            f"the graph traced at {_sizes(odd)} differs from the one traced at {_sizes(sizes)}: "
            "a size, or what follows from the values, is baked in"
        )
        raise Stopped("check", "ShapeBakedIn", text, "exporter")
    run.outcomes.note_same_graph(name, again)


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
