"""The trial of a model by TensorRT for RTX, which parses it and builds engines of it, and runs nothing.

Needs neither PyTorch nor a GPU: ``cells.compilation`` tries the models of a case, a replay those of a bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.process.errors import Stopped, Unavailable
from conformance.results.records.explanation import add
from conformance.results.records.record import Record
from conformance.results.records.record_types import Compiled, Node, Refused
from conformance.runtimes.tensorrt.refusals import Refusal
from conformance.runtimes.tensorrt.rtx import IN_TENSORRT, Job, RtxTrial
from conformance.runtimes.tensorrt.trtexec import rtx_commands


@dataclass(frozen=True)
class Refusing:
    """The job at which a model was refused, and what was said."""

    job: Job
    trial: RtxTrial

    @property
    def reason(self) -> str:
        """Say what was refused, and for which target."""
        return f"{self.trial.reason}{f' (for {self.job.target})' if self.job.target else ''}"


Try = Callable[[Job], RtxTrial]
"""Has TensorRT for RTX do something with a model."""


def try_jobs(record: Record, model: Path, jobs: Sequence[Job], attempt: Try) -> Refusing | None:
    """Try the jobs in turn, and write what became of them into the record, with the commands that build again; None
    where the model was taken."""
    builds = any(job.build is not None for job in jobs)
    done: list[str] = []
    trial, refusing = None, None
    for job in jobs:
        trial = attempt(job)
        if trial.error is not None:
            refusing = Refusing(job, trial)
            break
        done.append(job.target)
    assert trial is not None
    record.compiled = Compiled(by=f"TensorRT for RTX {trial.version}", parsed=trial.error != "UnsupportedModel")
    if builds:
        record.compiled["targets"] = done
        record.compiled["commands"] = rtx_commands(model, jobs)
    if trial.refusals:
        record.compiled["refused"] = list(map(_refused, trial.refusals))
    return refusing


def stop(refusing: Refusing, fault: str, taken: Sequence[str] = ()) -> Stopped | Unavailable:
    """Return what ends the cell of a model that was refused: a failure, or the reason to skip it where TensorRT for
    RTX only lacks operators or a GPU, which says nothing against the model. ``taken`` are other models that it
    takes."""
    trial, reason = refusing.trial, refusing.reason
    if taken:
        reason += f"; it takes {', '.join(taken)}"
    if trial.untried:
        what = f"{', '.join(trial.untried)} cannot be tried without a GPU"
        return Unavailable(f"{what}: the plugin of TensorRT for RTX {trial.version} asks for a driver as it is made")
    if trial.lacks:
        operators = list(dict.fromkeys(refusal.operator or "an operator" for refusal in trial.refusals))
        known = [operator for operator in operators if operator in IN_TENSORRT]
        has = f" (TensorRT itself has {', '.join(known)}, by its documentation)" if known else ""
        return Unavailable(f"TensorRT for RTX {trial.version} lacks {', '.join(operators)}{has}: {reason}")
    stopped = Stopped("load", f"{trial.error}", reason, fault)
    first = trial.refusals[0] if trial.refusals else None
    if first is not None and first.operator:
        why = f"{first.code}: {first.text}"
        node = Node(operator=first.operator, node=first.node, line=first.line, how="refused", why=why)
        return add(stopped, {"parts_at": node})
    return stopped


def _refused(refusal: Refusal) -> Refused:
    told = Refused(code=refusal.code, text=refusal.text, lacks=refusal.lacks)
    for name in ("function", "operator", "node", "line"):
        if getattr(refusal, name):
            told[name] = getattr(refusal, name)
    if refusal.inside:
        told["inside"] = list(refusal.inside)
    return told
