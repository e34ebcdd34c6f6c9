"""Submodules of which no output shows anything: what they return in the graph is compared itself.

That shows whether their export is right. What a runtime makes of it still reaches no output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, Literal

from conformance.align.parting import Row
from conformance.case.python import describe
from conformance.checks.aligned import aligned
from conformance.checks.models import CellRun
from conformance.coverage.measure_coverage import Covered
from conformance.errors import Stopped, attempt
from conformance.verdict.loss import LITERAL
from conformance.worker import aside

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

    def as_dict(self) -> dict[str, Any]:
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
        ask = partial(aside.ask, lambda: _compared(run, paths), SECONDS)
        kept = attempt(lambda: run.keeping.kept(folder, key, lambda: _as_values(ask())))
        if isinstance(kept, Exception):  # this adds to what outputs show, and must not be a failure of its own
            known[model] = dict.fromkeys(paths, State(None, describe(kept, run.cell.case.folder)))
        else:
            known[model] = {path: State(*values) for path, values in kept.items()}
    return known[model]


def _as_values(states: Mapping[str, State]) -> dict[str, Any]:
    return {path: [*astuple(state)] for path, state in states.items()}


def refuse_wrong(run: CellRun, states: Mapping[str, State]) -> None:
    """Stopped where what a submodule returns differs, at the first one. A case that declares how far its fp32 outputs
    may be off says nothing of tensors inside; there a difference is told alone."""
    differing = {path: state for path, state in states.items() if state.tensor == "differs"}
    if not differing or "fp32" in run.cell.case.says.tolerance:
        return
    path = min(differing, key=lambda path: differing[path].order)
    why = differing[path].why
    text = f"no output shows what {path} computes, and in the graph it returns something else: {why}"
    stop = Stopped("compare", "WrongInside", text, "exporter")
    stop.details = {"own_code": run.cell.own_code, "draw": None, "worst": None, "no_bundle": "inside"}
    raise stop


def _compared(run: CellRun, paths: Collection[str]) -> dict[str, State]:

    run.set_apart()
    rows = aligned(run, run.prepared.inputs(), LITERAL, paths).rows
    by_path: dict[str, list[tuple[int, Row]]] = {path: [] for path in paths}
    own = {(row.place.call.id, row.place.output): row for row in rows}
    for order, row in enumerate(rows):
        path, first = row.place.call.path, row.place.first
        if path in by_path:
            same = row.place.kind == "same" and first is not None
            by_path[path].append((order, own[first.call.id, first.output] if same and first is not None else row))
    return {path: _state(of_path) for path, of_path in by_path.items()}


def _state(rows: Sequence[tuple[int, Row]]) -> State:
    """Of a submodule with these outputs, in all of its calls: it agrees if each of them was compared."""
    agreed, why = False, None
    for order, row in rows:
        # a tensor that was chosen by its values would agree for that alone
        sure = row.place.kind == "own" and not row.place.note
        if sure and row.parts:
            return State("differs", f"node {row.node}: {row.text}", order)
        agreed = agreed or sure
        if not sure and row.place.kind != "input":
            why = why or row.place.note or "it has no tensor of its own"
    if agreed and why is None:
        return State("agrees")
    return State(None, why or ("it returns what it was given" if rows else "it is not called as a module"))
