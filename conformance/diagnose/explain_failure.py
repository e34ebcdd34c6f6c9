"""Explaining a failure: does it come again, what is the smallest example that shows it, who is at fault by other
runtimes, other session options and the stages before."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.case.draw.draw import seed_of
from conformance.case.draw.example import Example
from conformance.case.draw.shapes import shrink
from conformance.case.draw.simplest import simplest
from conformance.compare.shown import shown
from conformance.diagnose.beyond import beyond
from conformance.diagnose.nodes import loss, saturation
from conformance.diagnose.nodes.blame import Inquiry, Suspect, find, outcome_of
from conformance.diagnose.nodes.guilty_pass import Broken, guilty, right_without_reuse
from conformance.diagnose.nodes.other_runtime import ask
from conformance.diagnose.nodes.unsaid import unsaid
from conformance.diagnose.own_code import own_code
from conformance.diagnose.remembered import remembering
from conformance.diagnose.unproven import UNPROVEN, Ask
from conformance.judge.comparer import note_failing
from conformance.judge.conditioning import computes
from conformance.judge.finite import FinitenessVerifier
from conformance.judge.red_cell import CheckedCell, RedCell
from conformance.judge.verify import Verifier, WrongTogether
from conformance.models.cell_run import CellRun
from conformance.models.kept.model_store import Stored
from conformance.process.arrays import Inputs
from conformance.process.errors import Details, Stopped
from conformance.results.records.explanation import (
    Explanation,
    Shows,
    UnexplainedFailure,
    add,
    blame,
    greatest,
)
from conformance.results.records.record import Witness
from conformance.results.records.words import base_of
from conformance.runtimes import registry

SHRINK_SECONDS = 20.0
"""How long to look for a smaller example; then the smallest so far is shown, which for a slow model may be large."""


def explained(red: RedCell) -> RedCell:
    """Return a failure with the smallest example that shows it and who is at fault."""
    if red.example is None or red.stop.error == "IllConditioned":
        return blamed(red)
    red.of.verify.tell(red.stop, red.example)
    if isinstance(red.stop, WrongTogether) or red.stop.stage == "load":
        return blamed(red)
    example, stop = smallest_example(red.of, red.example, red.stop)
    note_failing(red.of.run.record, example, stop)
    return blamed(dataclasses.replace(red, example=example, stop=stop))


def blamed(red: RedCell) -> RedCell:
    """Return a failure with who is at fault for it, by this example."""
    unproven = UNPROVEN.get(red.stop.error)
    if unproven is not None:
        unproven(red, whom_to_ask(red.of))
        return red
    of, example, stop = red.of, red.example, red.stop
    assert example is not None
    of.verify.tell(stop, example)
    found = whom_to_ask(of)(stop, example)
    own: Details = {"own_code": of.run.cell.own_code} if found.fault == "exporter" else {}
    blame(stop, found, {"inputs": shown(example.inputs)}, own)
    if isinstance(of.verify, FinitenessVerifier):
        entries = [*of.run.record.beyond, beyond(of, example, stop)]
        add(stop, {"beyond": entries, "hints": ["exclude"]})
    of.verify.tell(stop, example)
    return red


def smallest_example(of: CheckedCell, example: Example, stop: Stopped) -> tuple[Example, Stopped]:
    """Return the example of the smallest shape, by bisection, and then of the simplest values, with the same
    failure."""
    verify, deadline = of.verify, time.monotonic() + SHRINK_SECONDS
    smallest: dict[frozenset[tuple[str, int]], tuple[Example, Stopped]] = {}
    """By sizes, in whatever order these come: a kept draw has its dims in another one than the case."""

    def fails_alike(variant: Example) -> Stopped | None:
        if time.monotonic() > deadline:
            return None
        failure = verify.failure(variant)
        alike = failure is not None and (failure.stage, failure.error) == (stop.stage, stop.error)
        return failure if alike else None

    def fails(sizes: dict[str, int]) -> bool:
        # Other sizes have other values, so a failure of few values may need more than one try.
        for seed in (example.draw.seed, seed_of("smaller", 1), seed_of("smaller", 2)):
            smaller = verify.example(dataclasses.replace(example.draw, dims=sizes, seed=seed))
            failure = fails_alike(smaller)
            if failure is not None:
                smallest[frozenset(sizes.items())] = (smaller, failure)
                return True
        return False

    sizes = shrink(of.run.dims(), example.draw.dims, fails)
    clearest = smallest.get(frozenset(sizes.items()), (example, stop))
    draw = clearest[0].draw

    def still(inputs: Inputs) -> bool:
        nonlocal clearest
        simpler = verify.example(draw, inputs)
        failure = fails_alike(simpler)
        if failure is None:
            return False
        clearest = (simpler, failure)
        return True

    case, maker = verify.cell.case, verify.maker
    kept = {name for name in case.says.inputs if maker.has_rules(name)}
    simplest(case, draw.dims, clearest[0].inputs, still, kept)
    return clearest


def may_saturate(run: CellRun) -> bool:
    """Return whether the cell's runtime may run its model with 8-bit kernels that saturate on this processor."""
    nodes = (run.record.graph or {}).get("nodes") or {}
    return saturation.possible(run.cell.runtime, nodes, run.settings.instructions)


def whom_to_ask(of: CheckedCell) -> Ask:
    """Return what finds out who is at fault: other runtimes, or for a converted model the stage that its loss comes
    from."""
    run, verify, stored, converted = of.run, of.verify, of.exported, of.converted

    def asked(stop: Stopped, example: Example) -> Explanation:
        libraries = run.libraries()
        traded = _ask_about_options(of, stop, example)
        if traded is not None:
            return traded.explained()
        if converted is None:
            inquiry = _ask_others(run, verify, stop, stored, example)
        else:
            by_check = "precision" if run.cell.check == "fidelity" else "runtime"
            inquiry = Inquiry(UnexplainedFailure(stop.stage, stop.fault or by_check))
            if stop.stage == "run":
                inquiry = inquiry.plus(*_ask_exported(stored, libraries, example))
            elif stop.stage == "compare" and run.cell.runtime == "onnxruntime":
                inquiry = _ask_without_optimizer(
                    inquiry, verify, converted.file, run.config(), libraries, example, stop
                )
        if stop.stage == "compare":
            file = converted.file if converted is not None else None
            output = (run.record.fidelity or {}).get("output")
            by_others = converted is None and run.cell.runtime == "onnxruntime"
            meaning = _who_computes(inquiry.explained()) if by_others else registry.LITERAL
            lost = None if meaning is None else loss.by_stage(
                verify.of_pytorch(example), stored.file, file, run.cell.runtime, libraries, example.inputs, output,
                run.cell.case.says.onnxruntime.config, meaning,
            )  # fmt: skip
            inquiry = inquiry.plus(details={"loss": lost})
            if run.cell.exporter == "onnx" and _is_a_step(inquiry, stop, stored):
                inquiry = inquiry.plus(Shows("steps"))
            if lost is not None and run.cell.check == "fidelity" and greatest(lost) == "export":
                meant = _ask_what_is_meant(verify, stored.file, libraries, example, output, lost["export"])
                inquiry = inquiry.plus(Shows("export"), *meant)
            elif run.cell.check == "fidelity" and base_of(run.cell.precision) == "int8" and file is not None:
                inquiry = inquiry.plus(*_ask_what_is_meant(verify, file, libraries, example, output))
            if may_saturate(run):
                model, runtime = (converted or stored).file, f"{run.cell.runtime}"
                inquiry = saturation.ask_about(inquiry, runtime, example, verify, model, libraries, run.config())
        return inquiry.explained()

    models = [model.facts.sha for model in (stored, converted) if model is not None]
    return remembering(run, asked, verify, models)


def _ask_about_options(of: CheckedCell, stop: Stopped, example: Example) -> Inquiry | None:
    """Return that a setting of ONNX Runtime which trades accuracy explains wrong values; None where none does."""
    run, model = of.run, of.converted or of.exported
    if run.cell.runtime != "onnxruntime" or (stop.stage, stop.error) != ("compare", "WrongValue"):
        return None
    inquiry = Inquiry(UnexplainedFailure(stop.stage, stop.fault))
    nodes = model.facts.nodes
    return saturation.ask_settings(inquiry, example, of.verify, model.file, run.libraries(), run.config(), nodes)


def fault_by_others(red: RedCell) -> str | None:
    """Return who is at fault by what other runtimes make of the model, and ask nothing else."""
    of, example = red.of, red.example
    assert example is not None
    if of.converted is not None:
        return whom_to_ask(of)(red.stop, example).fault
    return _ask_others(of.run, of.verify, red.stop, of.exported, example).explained().fault


def _who_computes(found: Explanation) -> str | None:
    """The runtime by which the loss of a model in fp32 is measured. Where kernels of ONNX Runtime are wrong, with
    which all would be lost by the export, that is one that agrees with PyTorch; None where none is known."""
    if found.fault != "runtime" or found.conclusion == "optimizer":
        return registry.LITERAL
    agreeing = (witness.runtime for witness in found.witnesses if witness.answer == "agrees" and not witness.config)
    return next(agreeing, None)


STEP = 40.0
"""Decibels from which on a model that rounds to few bits by itself may be off for one value that falls on the other
side of a step: what ONNX Runtime's optimizer makes of such files is off by 54 dB and less."""


def _is_a_step(inquiry: Inquiry, stop: Stopped, stored: Stored) -> bool:
    """Return whether a file was quantized by somebody, and what a runtime makes of it is off by no more than its
    steps."""
    if inquiry.explained().fault != "runtime":
        return False
    quantized = any(word in name for name in stored.facts.nodes for word in ("Quantize", "NBits", "Integer"))
    measured = [value for value in (inquiry.details.get("loss") or {}).values() if isinstance(value, float)]
    return quantized and stop.error == "WrongValue" and bool(measured) and min(measured) >= STEP


def _ask_without_optimizer(
    inquiry: Inquiry, verify: Verifier, model: Path, config: Mapping[str, str], libraries: Sequence[str],
    example: Example, stop: Stopped,
) -> Inquiry:  # fmt: skip
    """Find the optimizer's guilty pass, where ONNX Runtime gives without it what the converted model means."""
    runtime = "onnxruntime-unoptimized"
    asked = ask(runtime, model, libraries, example.inputs)
    if asked.outputs is None:
        return inquiry
    agrees = verify.judged(example, asked.outputs).verdict != "failed"
    inquiry = inquiry.plus(Witness(runtime, "agrees" if agrees else "wrong"))
    broken = Broken(model, libraries, example.inputs, config, outcome_of(stop, example, verify.judged))
    if right_without_reuse(broken):
        return inquiry.plus(Shows("memory"))
    return inquiry.plus(details={"optimizer": guilty(broken)}) if agrees else inquiry


MEANT = 10.0
"""Decibels by which another runtime has to be closer to PyTorch than ONNX Runtime, to show that ONNX Runtime does not
compute what a converted model means."""


def _ask_what_is_meant(
    verify: Verifier, model: Path, libraries: Sequence[str], example: Example, output: int | None,
    by_kernels: float | str | None = None,
) -> list[Witness]:  # fmt: skip
    """Find out whether a model costs so much, or ONNX Runtime's kernels, by which its cost is measured, are wrong.

    ``by_kernels`` is that cost in decibels; without it, of the converted model.
    """
    if verify.session is None or isinstance(by_kernels, str):
        return []
    compared = slice(None) if output is None else slice(output, output + 1)
    wanted = verify.of_pytorch(example)[compared]
    if by_kernels is None:
        by_kernels = loss.sqnr(verify.session.run(example.inputs)[compared], wanted)
    for runtime in registry.second_opinions("onnxruntime"):
        if runtime.computes_with == "onnxruntime":
            continue
        asked = ask(runtime.name, model, libraries, example.inputs)
        if asked.outputs is None:
            continue
        nearer = loss.sqnr(asked.outputs[compared], wanted) > by_kernels + MEANT
        return [Witness(runtime.name, "nearer" if nearer else "wrong")]
    return []


def _ask_exported(stored: Stored, libraries: Sequence[str], example: Example) -> list[Witness]:
    """Return a witness that the exported model, before any conversion, cannot be run on the example either, or that
    nobody knows whether it can; none where it can."""
    runtime = "onnxruntime-unoptimized"
    asked = ask(runtime, stored.file, libraries, example.inputs)
    told = asked.answer in ("stops", "lost")
    return [Witness(runtime, asked.answer, asked.error, model="exported")] if told else []


def _ask_others(run: CellRun, verify: Verifier, stop: Stopped, stored: Stored, example: Example) -> Inquiry:
    """Return what other runtimes answer, unless PyTorch's own outputs are not those that the case declares."""
    try:
        verify.judge_of(example.wanted)
    except Stopped:
        return Inquiry(UnexplainedFailure(stop.stage, None), (Shows("outputs"),))
    suspect = Suspect(
        run.cell.runtime or "", stored.file, run.libraries(), verify.judged, verify.session,
        lambda: bool(own_code(run)), run.cell.case.says.onnxruntime.config,
        lambda example, values: computes(run.reference, example.inputs, values), unsaid,
    )  # fmt: skip
    return find(suspect, example, stop)
