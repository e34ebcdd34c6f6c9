"""Say whose fault a failure is: a function of what was found out about it, and of nothing else.

What asks other runtimes, the nodes of a model or session options gives findings and decides nothing. ``explain`` puts
them together, and no other module says who is at fault.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from conformance.process.errors import Details, Stopped, lacks_memory, limit_of_shell, trouble_of_host
from conformance.results.records.record import FLOAT64, Diagnosis, Record, Witness, own_fields
from conformance.results.records.record_types import Node
from conformance.results.records.subject import is_of_own_code
from conformance.runtimes import registry

# ---- what is known of a failure ------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnexplainedFailure:
    """A failure before anybody is asked about it."""

    stage: str | None
    fault: str | None
    """The party at fault where nothing is found."""
    runtime: str | None = None
    """The runtime that failed, where what others make of the same model decides; None where it does not."""
    own_code: bool = False
    """True if the export used code of the case's own; looked up only where that decides."""
    special: bool = False
    """True if it is about NaN and infinities, of which runtimes share what no rule asks for."""


@dataclass(frozen=True)
class NodeByNode:
    """The evidence of the nodes of a model, one by one (``diagnose.nodes.node_walk``)."""

    shown: Literal["rules", "invalid", "unsupported", "kernel", "kernels", "either", "open", "nodes", "unsaid"]
    place: Node | None = None
    """The node that it is about."""
    several: bool = True
    """True if the model has more than one node."""


@dataclass(frozen=True)
class Shows:
    """Anything else that was seen, by name."""

    what: Literal[
        "outputs", "memory", "steps", "export", "ill-conditioned", "ties", "not exported", "after others", "harness",
        "PyTorch", "case", "own code", "works", "declared", "draws", "no disk", "no memory", "setting",
    ]  # fmt: skip
    fault: str | None = None
    """The party at fault by what is ``declared``, of the cell or of ``draws``."""


Finding = Witness | NodeByNode | Shows


@dataclass(frozen=True)
class Explanation:
    """The party at fault, and by which evidence; ``details`` decide nothing."""

    fault: str | None
    conclusion: str | None = None
    """A name for what the answers leave open, or say of the fault; ``results.records.text`` has the words for it."""
    witnesses: tuple[Witness, ...] = ()
    details: Details = field(default_factory=Details)
    """The node or the pass of an optimizer that the conclusion is about, where accuracy is lost, and the cause."""


# ---- whose fault it is ---------------------------------------------------------------------------------------

_SHOWN: dict[str, str | None] = {
    "outputs": "case", "memory": "runtime", "steps": None, "export": "exporter", "ties": None, "after others": None,
    "harness": "harness", "PyTorch": "reference", "case": "case", "own code": "case", "works": "case",
    "no disk": "harness", "no memory": None, "setting": "case",
}  # fmt: skip
"""The party at fault by what was seen. ``outputs``: PyTorch's are not those that the case declares. ``memory``: it is
right where ONNX Runtime uses no memory twice. ``steps``: the steps of a quantized file explain as much. ``export``:
most accuracy is lost there. ``ties``: which of equal values an index names, PyTorch itself leaves open. ``works``:
what is declared to fail does not. ``own code``: a symbolic or the like of the case's own made it, or is missing.
``harness``, ``PyTorch``, ``case``: the process ended there. ``setting``: a runtime trades accuracy as it is set."""

_BY_NODES: dict[str, str | None] = {
    "rules": "exporter", "invalid": "exporter", "unsupported": "runtime", "kernel": "runtime", "kernels": "exporter",
    "either": None, "open": None, "nodes": "exporter", "unsaid": None,
}  # fmt: skip


def explain(failure: UnexplainedFailure, findings: Sequence[Finding], details: Details | None = None) -> Explanation:
    """Say who is at fault for a failure by all that was found. Findings stand in the order in which they were made: a
    later one was looked for where earlier ones left a question, and outweighs them."""
    witnesses = tuple(finding for finding in findings if isinstance(finding, Witness))
    found = Explanation(failure.fault, None, witnesses, details or {})
    if failure.runtime is not None:
        found = _with(found, *_by_others(failure, failure.runtime, witnesses))
    for finding in findings:
        if isinstance(finding, NodeByNode):
            found = _by_nodes(found, finding)
        elif isinstance(finding, Shows):
            found = _by_sight(found, finding, failure.stage)
        else:
            found = _by_answer(found, finding, failure)
    return found


def reconsider(explanation: Explanation, *findings: Shows) -> Explanation:
    """The explanation after these findings too."""
    for finding in findings:
        explanation = _by_sight(explanation, finding, None)
    return explanation


def _with(found: Explanation, fault: str | None, conclusion: str | None) -> Explanation:
    return dataclasses.replace(found, fault=fault, conclusion=conclusion)


def _by_others(
    failure: UnexplainedFailure, suspect: str, witnesses: Sequence[Witness]
) -> tuple[str | None, str | None]:
    """Return who is at fault by what other runtimes make of the model as it is."""
    # That one whose word counts for values alone runs a model does not show that others have to.
    witnesses = [
        witness
        for witness in witnesses
        if not witness.config and (failure.stage == "compare" or not _values_only(witness.runtime))
    ]
    agreeing = [witness.runtime for witness in witnesses if witness.answer in ("agrees", "nearer")]
    if FLOAT64 in agreeing:
        return "reference", None
    # Where the suspect stopped, witnesses that stop too speak against the model; where its values are wrong, a
    # witness that stops says nothing about values.
    damning = "wrong" if failure.stage == "compare" else "stops"
    against = [witness.runtime for witness in witnesses if witness.answer == damning]
    otherwise = [witness.runtime for witness in witnesses if witness.answer == "otherwise"]
    own = {kernels(suspect)}
    if agreeing:
        others = {*map(kernels, [*against, *otherwise])} - own
        if all(map(_values_only, agreeing)) and others:
            return None, "open"
        if failure.stage == "run" and "onnxruntime-unoptimized" in against:
            return None, "strictness"
        only_the_optimizer = kernels(agreeing[0]) == suspect
        return "runtime", "optimizer" if only_the_optimizer else None
    if any(witness.answer == "runs" for witness in witnesses):
        return None, "open"
    others = {*map(kernels, against)} - own
    if failure.special and not failure.own_code and others and all(map(_values_only, others)):
        return None, "shared"
    # The suspect with its optimizer off still computes with its own kernels: its wrong answer is no second opinion.
    if not failure.own_code and {*map(kernels, against)} <= own:
        return None, "differ" if {*map(kernels, otherwise)} - own else "nobody"
    return "exporter", None


def _by_nodes(found: Explanation, nodes: NodeByNode) -> Explanation:
    """Return what the whole model showed is taken back only where it was open, or guessed for want of other
    witnesses."""
    fault, broken = _BY_NODES[nodes.shown], nodes.shown in ("rules", "invalid", "unsaid")
    if broken or (nodes.shown == "nodes" and nodes.several):
        found = dataclasses.replace(found, witnesses=tuple(map(_beside_nodes, found.witnesses)))
    found = dataclasses.replace(found, details={**found.details, "parts_at": nodes.place})
    # one that is nearer is off too, and says nothing for the model where each node is right by itself
    clearing = ("agrees",) if nodes.shown == "nodes" else ("agrees", "nearer")
    agreeing = [witness.runtime for witness in found.witnesses if witness.answer in clearing]
    # one whose word counts for values alone shows no kernel to be right, but that the model may be
    agreed = any(fault == "exporter" or not _values_only(runtime) for runtime in agreeing)
    if broken or (fault is not None and not agreed):
        return _with(found, fault, nodes.shown)
    if found.fault is None and fault != "exporter":  # the runtime is, which those that agree with PyTorch say too
        return _with(found, fault, nodes.shown)
    return found


def _beside_nodes(witness: Witness) -> Witness:
    """The witness beside nodes that each compute what ONNX says, and wrong outputs together: a runtime of its own
    rules that agrees with PyTorch then has not computed the model. Of a single node it might have."""
    own_rules = witness.answer == "agrees" and _values_only(witness.runtime)
    return dataclasses.replace(witness, answer="strays") if own_rules else witness


def _by_answer(found: Explanation, witness: Witness, failure: UnexplainedFailure) -> Explanation:
    """Weigh an answer that says something by itself: to a model that was changed for it, or of a converted model."""
    if witness.config and witness.answer == "agrees":  # by other kernels of the same runtime
        return _with(found, "runtime", found.conclusion)
    if failure.runtime is not None:
        return found
    if witness.model == "exported":  # which it cannot run either, or nobody knows whether it can
        return _with(found, "exporter" if witness.answer == "stops" else None, None)
    if witness.answer == "nearer":
        return _with(found, "runtime", "meaning")
    if witness.answer == "agrees":  # without the optimizer
        return _with(found, found.fault, "optimizer")
    return found


def _by_sight(found: Explanation, finding: Shows, stage: str | None) -> Explanation:
    what = finding.what
    if what in ("declared", "draws"):
        fault = finding.fault or (found.fault if what == "declared" else None)
        return _with(found, fault, found.conclusion)
    if what == "not exported":  # by whom it is to be known what the file means, or else by whom it is named
        fault = "reference" if stage in ("run", "compare") else "case"
        return _with(found, fault, found.conclusion)
    if what == "ill-conditioned":  # float64 says no more than that rounding could explain it
        apart = any(witness.answer == "agrees" for witness in found.witnesses)
        return _with(found, None, "apart") if apart else _with(found, "case", None)
    if what == "steps":
        return _with(dataclasses.replace(found, details={**found.details, "optimizer": None}), None, "steps")
    return _with(found, _SHOWN[what], what if what in ("memory", "setting") else found.conclusion)


def kernels(runtime: str) -> str:
    """Return the runtime whose kernels a runtime computes with, which may be its own."""
    return registry.named(runtime).computes_with


def _values_only(runtime: str) -> bool:
    return runtime != FLOAT64 and registry.named(runtime).values_only


# ---- accuracy that is lost -----------------------------------------------------------------------------------


def greatest(loss: Mapping[str, float | str]) -> str | None:
    """The stage that stops, or else adds most noise; None where no stage adds any."""
    if not loss:
        return None
    stage = min(loss, key=lambda name: value if isinstance(value := loss[name], float) else -math.inf)
    return None if loss[stage] == math.inf else stage


_STAGES_OF = {"exporter": ("export",), "runtime": ("optimizer", "runtime"), "precision": ("conversion",)}
"""By who is at fault, the stages at which that costs accuracy."""


def bears_out(loss: Mapping[str, float | str], fault: str | None) -> bool:
    """Return whether the numbers say the same as the verdict: something is lost, and most of it where the fault is.

    The stages are computed by ONNX Runtime: a kernel of it that is wrong looks like a loss of the export. NaN and
    infinities have no size, so that a failure of theirs may show no loss at all.
    """
    if "conversion" in loss:  # of a model whose accuracy is what is asked about
        return True
    stage = greatest(loss)
    return stage is not None and (fault not in _STAGES_OF or stage in _STAGES_OF[str(fault)])


# ---- what a record says of it --------------------------------------------------------------------------------


def add(stop: Stopped, *more: Details) -> Stopped:
    """Add what was found out about a failure since it was raised, and return it. No other module writes into one."""
    for details in more:
        stop.details |= details
    return stop


def blame(stop: Stopped, found: Explanation, *more: Details) -> Stopped:
    """Write an explanation into a failure, and what else is known of it, and return it."""
    stop.fault = found.fault
    stop.details |= found.details
    stop.details |= {
        "witnesses": [witness.as_dict() for witness in found.witnesses],
        "conclusion": found.conclusion,
    }
    if not bears_out(found.details.get("loss") or {}, found.fault):
        stop.details["loss"] = None
    return add(stop, *more)


def unexplained(stop: Stopped) -> Stopped:
    """Return a failure of an example before anybody was asked about it: no stage tells who is at fault then."""
    stop.fault = None
    return stop


def put_off(record: Record) -> None:
    """Note in a record that nobody was asked yet who is at fault."""
    record.unexplained = True


def ask_for_nodes(stop: Stopped, remedy: Mapping[str, object] | None) -> Stopped:
    """Write into a failed export that it lacks nodes for an operator of the case's own, with what to add, or its
    shapes, of which PyTorch says what to add; return it. No exporter can know such an operator."""
    stop.fault = explain(UnexplainedFailure(stop.stage, stop.fault), [Shows("own code")]).fault
    return stop if remedy is None else add(stop, {"remedy": remedy, "hints": []})


def note(record: Record, finding: Shows) -> None:
    """Write into a record that has failed who is at fault after one more finding."""
    record.fault = explain(UnexplainedFailure(record.stage, record.fault), [finding]).fault


def note_details(record: Record, details: Details) -> None:
    """Write into a record what was found out about it."""
    for name, value in details.items():
        setattr(record, name, value)


def fail(record: Record, stop: Stopped) -> None:
    """Write into a record where and why its cell stopped. What stopped for want of a disk is the host's fault, which
    ``harness`` stands for, whoever wanted to write."""
    record.status = "failed"
    record.stage, record.error, record.reason, record.fault = stop.stage, stop.error, stop.reason, stop.fault
    record.caused_by = stop.caused_by
    trouble = trouble_of_host(stop)
    if trouble is not None:
        record.error, record.reason = "CannotWrite", f"{trouble}: {stop.reason}"
        note(record, Shows("no disk"))
        return
    note_details(record, stop.details)
    if record.fault == "exporter" and is_of_own_code(record):
        note(record, Shows("own code"))
    if lacks_memory(stop):  # who took the rest of it is not known
        record.error, limit = "OutOfMemory", limit_of_shell()
        record.reason = stop.reason if limit is None else f"{limit} ({stop.reason})"
        note(record, Shows("no memory"))
    if record.error == "OutOfMemory":
        record.hints = [*record.hints, "memory"]


def take_back(record: Record) -> None:
    """Leave out who was found guilty and what to do about it, of a failure that turned out to be another one."""
    for item in own_fields(Diagnosis):
        if item.name not in ("fault", "place"):
            setattr(record, item.name, item.default_factory() if callable(item.default_factory) else item.default)


SHARED = (
    "fault", "conclusion", "parts_at", "optimizer", "operator", "own_code", "explained", "cause", "hints", "remedy",
    "place",
)  # fmt: skip
"""The fields of an explanation that hold for every cell of its cause. The answers of the witnesses do not: they were
asked about one cell."""


def share(explained: Record, others: Iterable[Record]) -> None:
    """Write the explanation of one cell into the records of others of its cause."""
    for record in others:
        record.unexplained, record.explained_with, record.after = explained.unexplained, explained.id, None
        for name in SHARED:
            setattr(record, name, copy.deepcopy(getattr(explained, name)))
        if explained.smallest is not None:
            record.smallest = {"as": explained.id}
