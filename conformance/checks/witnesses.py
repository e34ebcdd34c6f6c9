"""Whom to ask about a failing example: other runtimes, other session options, the stages before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.case.words import base_of
from conformance.checks.left_open import computes
from conformance.checks.models import CellRun
from conformance.checks.own_code import own_code
from conformance.checks.verify import Verifier
from conformance.errors import Stopped
from conformance.export.model_store import Stored
from conformance.records.explanation import Explanation, Failure, Shows, greatest
from conformance.records.record import Witness
from conformance.runtimes import registry
from conformance.verdict import blame, loss, saturation
from conformance.verdict.blame import Inquiry, Suspect
from conformance.verdict.example import Example
from conformance.verdict.example_loop import Ask
from conformance.verdict.guilty_pass import Broken, guilty, right_without_reuse
from conformance.verdict.other_runtime import ask


def may_saturate(run: CellRun) -> bool:
    """Return whether ONNX Runtime may run the cell's model with 8-bit kernels that saturate on this processor."""
    nodes = (run.record.graph or {}).get("nodes") or {}
    return run.cell.runtime == "onnxruntime" and saturation.possible(nodes, run.settings.instructions)


def whom_to_ask(run: CellRun, verify: Verifier, stored: Stored, converted: Stored | None) -> Ask:
    """Return what finds out who is at fault: other runtimes, or for a converted model the stage that its loss comes
    from."""

    def find(stop: Stopped, example: Example) -> Explanation:
        libraries = run.libraries()
        if converted is None:
            inquiry = _ask_others(run, verify, stop, stored, example)
        else:
            by_check = "precision" if run.cell.check == "fidelity" else "runtime"
            inquiry = Inquiry(Failure(stop.stage, stop.fault or by_check))
            if stop.stage == "run":
                inquiry.findings += _ask_exported(stored, libraries, example)
            elif stop.stage == "compare" and run.cell.runtime == "onnxruntime":
                _ask_without_optimizer(inquiry, verify, converted.file, run.config(), libraries, example, stop)
        if stop.stage == "compare":
            file = converted.file if converted is not None else None
            output = (run.record.fidelity or {}).get("output")
            by_others = converted is None and run.cell.runtime == "onnxruntime"
            meaning = _who_computes(inquiry.explained()) if by_others else loss.LITERAL
            inquiry.details["loss"] = None if meaning is None else loss.by_stage(
                verify.of_pytorch(example), stored.file, file, run.cell.runtime, libraries, example.inputs, output,
                run.cell.case.says.onnxruntime.config, meaning,
            )  # fmt: skip
            if run.cell.exporter == "onnx" and _is_a_step(inquiry, stop, stored):
                inquiry.findings.append(Shows("steps"))
            lost = inquiry.details["loss"] or {}
            if run.cell.check == "fidelity" and greatest(lost) == "export":
                inquiry.findings.append(Shows("export"))
                _ask_what_is_meant(inquiry, verify, stored.file, libraries, example, output, lost["export"])
            elif run.cell.check == "fidelity" and base_of(run.cell.precision) == "int8" and file is not None:
                _ask_what_is_meant(inquiry, verify, file, libraries, example, output)
            if may_saturate(run):
                model = (converted or stored).file
                saturation.ask_about(inquiry, example, verify, model, libraries, run.config())
        return inquiry.explained()

    models = [model.facts.sha for model in (stored, converted) if model is not None]
    return run.outcomes.remembering(find, verify, run.record, models)


def fault_by_others(
    run: CellRun, verify: Verifier, stored: Stored, converted: Stored | None, stop: Stopped, example: Example
) -> str | None:
    """Return who is at fault by what other runtimes make of the model, and ask nothing else."""
    if converted is not None:
        return whom_to_ask(run, verify, stored, converted)(stop, example).fault
    return _ask_others(run, verify, stop, stored, example).explained().fault


def _who_computes(found: Explanation) -> str | None:
    """The runtime by which the loss of a model in fp32 is measured. Where kernels of ONNX Runtime are wrong, with
    which all would be lost by the export, that is one that agrees with PyTorch; None where none is known."""
    if found.fault != "runtime" or found.conclusion == "optimizer":
        return loss.LITERAL
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
    measured = [value for value in (inquiry.details["loss"] or {}).values() if isinstance(value, float)]
    return quantized and stop.error == "WrongValue" and bool(measured) and min(measured) >= STEP


def _ask_without_optimizer(
    inquiry: Inquiry, verify: Verifier, model: Path, config: Mapping[str, str], libraries: Sequence[str],
    example: Example, stop: Stopped,
) -> None:  # fmt: skip
    """Names the optimizer and its pass, where ONNX Runtime gives without it what the converted model means."""
    runtime = "onnxruntime-unoptimized"
    asked = ask(runtime, model, libraries, example.inputs)
    if asked.outputs is None:
        return
    agrees = verify.judged(example, asked.outputs).verdict != "failed"
    inquiry.findings.append(Witness(runtime, "agrees" if agrees else "wrong"))
    broken = Broken(model, libraries, example.inputs, config, blame.outcome_of(stop, example, verify.judged))
    if right_without_reuse(broken):
        inquiry.findings.append(Shows("memory"))
    elif agrees:
        inquiry.details["optimizer"] = guilty(broken)


MEANT = 10.0
"""Decibels by which another runtime has to be closer to PyTorch than ONNX Runtime, to show that ONNX Runtime does not
compute what a converted model means."""


def _ask_what_is_meant(
    inquiry: Inquiry, verify: Verifier, model: Path, libraries: Sequence[str], example: Example, output: int | None,
    by_kernels: float | str | None = None,
) -> None:  # fmt: skip
    """Find out whether a model costs so much, or ONNX Runtime's kernels, by which its cost is measured, are wrong.

    ``by_kernels`` is that cost in decibels; without it, of the converted model.
    """
    if verify.session is None or isinstance(by_kernels, str):
        return
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
        inquiry.findings.append(Witness(runtime.name, "nearer" if nearer else "wrong"))
        return


def _ask_exported(stored: Stored, libraries: Sequence[str], example: Example) -> list[Witness]:
    """That the exported model, before any conversion, cannot be run on the example either; empty where it can."""
    runtime = "onnxruntime-unoptimized"
    asked = ask(runtime, stored.file, libraries, example.inputs)
    return [Witness(runtime, "stops", asked.error, model="exported")] if asked.answer == "stops" else []


def _ask_others(run: CellRun, verify: Verifier, stop: Stopped, stored: Stored, example: Example) -> Inquiry:
    """Return what other runtimes answer, unless PyTorch's own outputs are not those that the case declares."""
    try:
        verify.judge_of(example.wanted)
    except Stopped:
        return Inquiry(Failure(stop.stage, None), [Shows("outputs")])
    suspect = Suspect(
        run.cell.runtime or "", stored.file, run.libraries(), verify.judged, verify.session,
        lambda: bool(own_code(run)), run.cell.case.says.onnxruntime.config,
        lambda example, values: computes(run.reference, example.inputs, values),
    )  # fmt: skip
    return blame.find(suspect, example, stop)
