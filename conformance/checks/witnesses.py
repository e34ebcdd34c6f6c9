"""Whom to ask about a failing example: other runtimes, other session options, the stages before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance.arrays import Array, Inputs
from conformance.checks.explain import Ask
from conformance.checks.models import CellRun
from conformance.checks.verify import Verifier
from conformance.errors import Stopped
from conformance.export.store import Stored
from conformance.runtimes import opener
from conformance.verdict import blame, loss, saturation
from conformance.verdict.blame import Opinion


def may_saturate(run: CellRun) -> bool:
    nodes = (run.record.graph or {}).get("nodes") or {}
    says = run.cell.case.says.onnxruntime
    return run.cell.runtime == "onnxruntime" and saturation.possible(nodes, says.config, run.settings.instructions)


def whom_to_ask(run: CellRun, verify: Verifier, stored: Stored, converted: Stored | None) -> Ask:
    """Finds out who is at fault: by other runtimes, or for a converted model by where the loss comes from."""

    def find(stop: Stopped, inputs: Inputs) -> Opinion:
        libraries = run.libraries()
        if converted is None:
            opinion = _ask_others(run, verify, stop, stored, inputs)
        else:
            opinion = Opinion(stop.fault or ("precision" if run.cell.check == "fidelity" else "runtime"))
            if stop.stage == "run" and _stops(stored, libraries, inputs):
                opinion = Opinion("exporter", ["the exported fp32 model stops there too"])
        if stop.stage == "compare":
            run.reference.restore()
            file = converted.file if converted is not None else None
            output = (run.record.fidelity or {}).get("output")
            found = loss.by_stage(
                run.reference(inputs), stored.file, file, run.cell.runtime, libraries, inputs, output,
                run.cell.case.says.onnxruntime.config,
            )  # fmt: skip
            run.record.loss = dict(found)
            opinion.lines += loss.lines(found)
            if run.cell.check == "fidelity" and loss.greatest(found) == "export":
                opinion.fault = "exporter"
            if may_saturate(run):
                answer = _ask_the_switch(run, verify, (converted or stored).file, inputs)
                opinion.lines += answer.lines
                if answer.cause is not None:
                    run.record.cause, opinion.fault = answer.cause, "runtime"
        return opinion

    return find


def _ask_the_switch(run: CellRun, verify: Verifier, model: Path, inputs: Inputs) -> saturation.Answer:
    """Whether the runtime is right where its 8-bit kernels cannot saturate."""
    assert verify.session is not None
    try:
        wanted, exact = verify.wanted(inputs)
        got = verify.session.run(inputs)
    except Exception:  # the failure that is explained is of another kind
        return saturation.NOTHING
    conditioning = verify.conditioning(inputs, wanted, exact)

    def agrees(outputs: list[Array]) -> bool:
        return verify.compare(outputs, wanted, exact, conditioning).verdict != "failed"

    return saturation.ask(model, run.libraries(), run.config(), inputs, got, agrees)


def _stops(stored: Stored, libraries: Sequence[str], inputs: Inputs) -> bool:
    """Whether the exported model, before any conversion, cannot be run on these inputs."""
    try:
        with opener("onnxruntime-unoptimized")(stored.file, libraries) as session:
            session.run(inputs)
    except Exception:
        return True
    return False


def _ask_others(run: CellRun, verify: Verifier, stop: Stopped, stored: Stored, inputs: Inputs) -> Opinion:
    try:
        wanted, exact = verify.wanted(inputs)
    except Stopped:
        return Opinion("case")
    example = blame.Example(
        run.cell.runtime or "", stored.file, run.libraries(), inputs, wanted, exact, verify.judge_of(wanted),
        verify.session, bool(run.target.own_code()), run.cell.case.says.onnxruntime.config,
    )  # fmt: skip
    return blame.find(example, stop)
