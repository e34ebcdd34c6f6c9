"""The checks ``parse`` and ``build``: TensorRT for RTX takes the model. Nothing is run, so that they need no GPU and
say nothing of accuracy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from conformance.case.files.declaration import Case
from conformance.case.files.python import EXPRESSION
from conformance.cells.replay.compile_trial import Refusing, stop, try_jobs
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.engine_build import engine_build
from conformance.models.kept.model_store import Stored
from conformance.process.disk.value_store import KeptValues
from conformance.process.errors import display_path
from conformance.runtimes.tensorrt.refusals import Refusal
from conformance.runtimes.tensorrt.rtx import Job, RtxTrial, tried

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
    _check(run, lambda model: [Job(engine_build(run, model, []), target) for target in targets])


def _check(run: CellRun, jobs: Jobs) -> None:
    stored = run.model()
    model = converted_model(run, stored) if run.cell.converted else stored
    kept = builds(run)

    def trial(model: Stored, job: Job) -> RtxTrial:
        return _in_the_case_file(run.cell.case, tried(model.file, model.facts.sha, job, kept))

    with run.stages("load", "runtime"):
        refusing = try_jobs(run.record, model.file, jobs(model), lambda job: trial(model, job))
        if refusing is None:
            return
        others = _others(run, stored)
        taken = [name for name, other in others if all(trial(other, job).error is None for job in jobs(other))]
        if taken and run.record.compiled is not None:
            run.record.compiled["taken"] = taken
        raise stop(refusing, _fault(run, refusing, taken), taken)


def builds(run: CellRun) -> KeptValues:
    """Return what is kept of what TensorRT for RTX made of models."""
    return KeptValues(run.settings.store.parent / "builds")


def _in_the_case_file(case: Case, trial: RtxTrial) -> RtxTrial:
    """The trial, with lines of an expression at the place that it has in the case file."""

    def placed(refusal: Refusal) -> Refusal:
        return dataclasses.replace(refusal, line=line_in_case(case, refusal.line))

    return dataclasses.replace(trial, refusals=tuple(map(placed, trial.refusals)))


def line_in_case(case: Case, line: str | None) -> str | None:
    """Return a line of Python; of an expression of the case the line of the case file that it stands at."""
    return f"{display_path(case.file)}:{case.line}" if str(line).startswith(EXPRESSION) else line


_EXPORTED = "the model before its conversion"


def _others(run: CellRun, exported: Stored) -> Iterator[tuple[str, Stored]]:
    """Yield other models of the case that might be taken: before the conversion, by another exporter or opset."""
    if run.cell.converted:
        yield _EXPORTED, exported
        return
    for exporter, opset, stored in [*run.models_otherwise()][:OTHERS]:
        yield f"that of {exporter} at opset {opset}", stored


def _fault(run: CellRun, refusing: Refusing, taken: Sequence[str]) -> str:
    """Return who is at fault for a model that is refused, and not for want of an operator.

    The case is for an input whose value decides a shape, and for a limit of workspace that is too low; who made the
    model where the parser finds types or zero points that do not fit, or parses what it was before its conversion;
    else TensorRT, since the model is valid ONNX, or was parsed.
    """
    trial, limit = refusing.trial, refusing.job.build.options.workspace if refusing.job.build else None
    if trial.error == "ShapeInput" or (limit is not None and "workspace" in trial.reason):
        return "case"
    if trial.error != "UnsupportedModel":
        return "runtime"
    ill_typed = any(refusal.ill_typed for refusal in trial.refusals)
    if run.cell.converted:
        return "precision" if ill_typed or _EXPORTED in taken else "runtime"
    return "exporter" if ill_typed else "runtime"
