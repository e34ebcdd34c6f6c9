"""The checks ``parse`` and ``build``: TensorRT for RTX takes the model. Nothing is run, so that they need no GPU and say
nothing of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from conformance.checks.conversion import converted_model
from conformance.checks.models import CellRun
from conformance.disk.value_store import KeptValues
from conformance.errors import Stopped, Unavailable
from conformance.export.model_store import Stored
from conformance.records.record_types import Compiled, Refused
from conformance.runtimes.tensorrt.refusals import Refusal
from conformance.runtimes.tensorrt.rtx import Job, Trial, tried

OTHERS = 4
"""How many other models of a case are tried, to say which of them is taken."""

Jobs = Callable[[Stored], Sequence[Job]]
"""What TensorRT for RTX is asked to do with a model."""


def check_parse(run: CellRun) -> None:
    """TensorRT's parser takes the model."""
    _check(run, lambda model: [Job()])


def check_build(run: CellRun) -> None:
    """TensorRT for RTX builds an engine of the model for each target, over the shapes of the case."""
    targets = run.cell.case.says.tensorrt.targets
    _check(run, lambda model: [Job(run.build(model, []), target) for target in targets])


def _check(run: CellRun, jobs: Jobs) -> None:
    stored = run.model()
    model = converted_model(run, stored) if run.cell.converted else stored
    kept = KeptValues(run.settings.store.parent / "builds")

    def stopping_job(other: Stored) -> tuple[Job, Trial] | None:
        """The first job at which a model is refused."""
        trials = ((job, tried(other.file, other.facts.sha, job, kept)) for job in jobs(other))
        return next(((job, trial) for job, trial in trials if trial.error is not None), None)

    with run.stages("load", "runtime"):
        asked = jobs(model)
        refused = stopping_job(model)
        version = tried(model.file, model.facts.sha, asked[0], kept).version
        run.record.compiled = told = _compiled(version, asked, refused)
        if refused is None:
            return
        job, trial = refused
        told["taken"] = taken = list(_taken(run, stored, lambda other: stopping_job(other) is None))
        reason = " ".join(filter(None, [f"{trial.reason}", f"(for {job.target})" if job.target else ""]))
        if taken:
            reason += f"; it takes {', '.join(taken)}"
        if trial.lacks:
            lacking = ", ".join(dict.fromkeys(refusal.operator or "an operator" for refusal in trial.refusals))
            raise Unavailable(f"TensorRT for RTX {version} lacks {lacking}: {reason}")
        raise Stopped("load", f"{trial.error}", reason, _fault(run, trial, taken))


def _fault(run: CellRun, trial: Trial, taken: Sequence[str]) -> str:
    """Return who is at fault for a model that is refused, and not for want of an operator: who made it, where its
    types or zero points do not fit or the model before its conversion is taken; else TensorRT, since it is valid ONNX,
    or the case, for an input whose value decides a shape."""
    if trial.error == "ShapeInput":
        return "case"
    if run.cell.converted and _EXPORTED in taken:
        return "precision"
    ill_typed = any(refusal.ill_typed for refusal in trial.refusals)
    return ("precision" if run.cell.converted else "exporter") if ill_typed else "runtime"


_EXPORTED = "the model before its conversion"


def _taken(run: CellRun, exported: Stored, is_taken: Callable[[Stored], bool]) -> Iterator[str]:
    """Yield which other models of the case are taken, of those that the store has."""
    if run.cell.converted and is_taken(exported):
        yield _EXPORTED
    others = [] if run.cell.converted else [*run.models_otherwise()][:OTHERS]
    for exporter, opset, stored in others:
        if is_taken(stored):
            yield f"that of {exporter} at opset {opset}"


def _compiled(version: str, asked: Sequence[Job], refused: tuple[Job, Trial] | None) -> Compiled:
    builds = any(job.build is not None for job in asked)
    told = Compiled(by=f"TensorRT for RTX {version}", parsed=True)
    if builds:
        told["targets"] = [job.target for job in asked]
    if refused is not None:
        job, trial = refused
        told["parsed"] = trial.error != "UnsupportedModel"
        told["targets"] = [one.target for one in asked[: asked.index(job)]] if builds else []
        told["refused"] = [_refused(refusal) for refusal in trial.refusals]
    return told


def _refused(refusal: Refusal) -> Refused:
    told = Refused(code=refusal.code, text=refusal.text, lacks=refusal.lacks)
    told |= {"function": refusal.function, "operator": refusal.operator, "node": refusal.node, "line": refusal.line}
    return told | {"inside": list(refusal.inside)} if refusal.inside else told
