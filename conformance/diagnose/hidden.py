"""Submodules of which no output shows anything: what they return in the graph is compared itself.

That shows whether their export is right. What a runtime makes of it still reaches no output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from conformance.case.files.python import describe
from conformance.compare.tolerance import DEFAULTS, compare
from conformance.diagnose.locate import follow
from conformance.diagnose.operators.captured_program import Program, Unable
from conformance.diagnose.operators.forced import Parting, Step
from conformance.diagnose.operators.operator_walk import CLEAR
from conformance.judge.verify import Verifier
from conformance.models.cell_run import CellRun
from conformance.models.coverage.measure_coverage import Covered
from conformance.process.errors import Details, Stopped, attempt
from conformance.process.worker import aside
from conformance.results.records.location import describe_unable
from conformance.runtimes.onnxgraph.reads import Graph, label

if TYPE_CHECKING:
    from onnx import NodeProto

SECONDS = 120.0
"""How long the comparison may take. It is made in a process of its own, which is then ended."""


@dataclass(frozen=True)
class State:
    """The facts about the tensors that one submodule returns."""

    tensor: Literal["agrees", "differs"] | None
    """None where they were not compared."""
    why: str | None = None
    """How they differ, or why they were not compared."""
    order: int = 0
    """Where they are computed among all tensors that were compared."""

    def as_dict(self) -> dict[str, object]:
        return {"tensor": self.tensor} | ({"why": self.why} if self.why else {})


def hidden(covered: Covered) -> list[str]:
    """The paths of the submodules with calls that were asked about of which none is seen, also inside of them."""
    seen = {path for site in covered.seen for path in _around(site.module)}
    return list(dict.fromkeys(path for site in covered.blind for path in _around(site.module) if path not in seen))


def _around(path: str) -> list[str]:
    """The path with those of the submodules around it, from the outermost."""
    parts = path.split(".") if path else []
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def compare_hidden(run: CellRun, paths: Collection[str]) -> dict[str, State]:
    """The state of each of these submodules in the cell's exported model, on the inputs of the export; compared once
    for all cells of the model, and kept for later runs."""
    known: dict[Any, dict[str, State]] = run.prepared.hidden
    model = run.cell.exporter, run.cell.opset
    if model not in known:
        folder = run.settings.store.parent / "coverage"
        key = hashlib.sha256(repr(("hidden", run.key, *paths)).encode()).hexdigest()[:32]

        def question() -> dict[str, object]:
            return {path: [*astuple(state)] for path, state in _compared(run, paths).items()}

        kept = attempt(lambda: run.keeping.kept(folder, key, partial(aside.ask, question, SECONDS)))
        if isinstance(kept, Exception):  # this adds to what outputs show, and must not be a failure of its own
            known[model] = dict.fromkeys(paths, State(None, describe(kept, run.cell.case.folder)))
        else:
            known[model] = {path: State(*values) for path, values in kept.items()}
    return known[model]


def refuse_wrong(run: CellRun, states: Mapping[str, State]) -> None:
    """Stopped where what a submodule returns differs, at the first one. A case that declares how far its fp32 outputs
    may be off says nothing of tensors inside; there a difference is told alone."""
    differing = {path: state for path, state in states.items() if state.tensor == "differs"}
    if not differing or "fp32" in run.cell.case.says.tolerance:
        return
    path = min(differing, key=lambda path: (differing[path].order, -len(path)))  # the innermost of the first
    why = differing[path].why
    text = f"no output shows what {path} computes, and in the graph it returns something else: {why}"
    details: Details = {"own_code": run.cell.own_code, "draw": None, "worst": None, "no_bundle": "inside"}
    raise Stopped("compare", "WrongInside", text, "exporter", details)


def _compared(run: CellRun, paths: Collection[str]) -> dict[str, State]:
    run.set_apart()
    stored = run.model()
    verify = Verifier(run.of_cell(stored))
    example = verify.example(run.prepared.draw(), run.prepared.inputs())
    try:
        search, _ = follow(run, verify, stored, example)
    except Unable as reason:
        return dict.fromkeys(paths, State(None, describe_unable({"unable": reason.why, "detail": str(reason)})))
    graph = Graph(search.model)
    return {path: _state(path, search.exhibit.program, search.steps, graph) for path in paths}


def _state(path: str, program: Program, steps: Sequence[Step], graph: Graph) -> State:
    """The state of a submodule: it agrees where all that it hands on was compared, and nothing in it differs."""
    inside = [operator for operator in program.operators if f"{operator.module}.".startswith(f"{path}.")]
    names = {operator.name for operator in inside}
    own = [(order, step) for order, step in enumerate(steps) if step.operator.name in names]
    for order, step in own:
        if step.parting is not None and _is_clear(step):
            return State("differs", _describe(step.parting, graph.node_of(step.parting.tensor)), order)
    if any(step.parting is not None for _, step in own):
        return State(None, "it differs by hardly more than two kernels do")
    elsewhere = [operator for operator in program.operators if operator.name not in names]
    read = {*program.outputs, *(name for operator in elsewhere for name in operator.inputs)}
    handed = {operator.name for operator in inside if read & {*operator.outputs}}
    if handed and handed <= {step.operator.name for _, step in own if step.tensor is not None}:
        return State("agrees")
    if not inside:
        return State(None, "no operator is called in it")
    if not own:
        return State(None, "the graph could not be followed as far as that")
    return State(None, "what it returns is merged into another node, computed beforehand, or not needed")


def _is_clear(step: Step) -> bool:
    """Return whether an operator differs by much more than two kernels do, or by more than an output may."""
    parting = step.parting
    if parting is None or parting.array is None or parting.instead is None or (step.ratio or CLEAR) >= CLEAR:
        return True
    if parting.exact is None:  # how far rounding takes it is not known
        return False
    tolerance = DEFAULTS.get(str(parting.instead.dtype))
    return compare([parting.array], [parting.instead], [parting.exact], [tolerance], [False]).verdict == "failed"


def _describe(parting: Parting, node: NodeProto | None) -> str:
    operator = parting.operator
    where = f"{operator.called or operator.operator}{f' at {operator.line}' if operator.line else ''}"
    text = f"{parting.tensor if node is None else label(node)}, which {where} became"
    if parting.how == "stops":
        return f"{text}, stops: {parting.why}"
    if parting.how != "value":
        return f"{text}, has {parting.how} {parting.got} instead of {parting.wanted}"
    differ = f"{parting.count} of {parting.size} values differ, as at {[*parting.index]}"
    return f"{text}: {differ}: {parting.got:.6g} instead of {parting.wanted:.6g}"
