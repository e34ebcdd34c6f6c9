"""The checks of a cell: what each looks at, as a sequence of stages. A check returns or raises Stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conformance import graph, symbolics
from conformance.accuracy import Examples
from conformance.case import Symbolic, TorchScript
from conformance.errors import Stopped, display_path
from conformance.explain import Explainer
from conformance.export import Exported, export
from conformance.plan import Cell, matches
from conformance.prepared import prepare
from conformance.record import Record
from conformance.runtimes import opener
from conformance.settings import Settings
from conformance.source import Folder
from conformance.stages import Stages
from conformance.store import Store, Stored
from conformance.verify import Verifier

SECOND_TRACE_SECONDS = 2.0
"""An export that takes longer than this is not traced at a second point."""


class CellRun:
    """What the checks share: the prepared case and its exported model."""

    def __init__(self, cell: Cell, settings: Settings, record: Record, stages: Stages, folder: Folder) -> None:
        self.cell, self.settings, self.record, self.stages = cell, settings, record, stages
        with stages("declare", "case"):
            self.prepared = prepare(cell.case, folder)
        self.reference = self.prepared.reference
        self.target = cell.case.says.export.exporters[cell.exporter]  # type: ignore[index]

    def export(self, *, odd: bool = False, with_symbolics: bool = True) -> Exported:
        """Exports now, without the store; afterwards the module has to be what it was."""
        sizes, inputs = self.prepared.trace(odd=odd)
        reference = self.reference
        reference.restore()
        exported = export(
            reference, self.cell.exporter, self.cell.opset, inputs, sizes, with_symbolics=with_symbolics
        )
        if not reference.restore() and reference.fingerprint() != reference.weights:
            raise Stopped("export", "ChangedModule", "exporting changed the module's weights or buffers", "exporter")
        return exported

    def model(self) -> Stored:
        """The exported model, from the store or new; Stopped where it is not a valid model of what was asked."""
        cell, store = self.cell, Store(self.settings.store)
        with self.stages("declare", "case"):
            _, inputs = self.prepared.trace()
            name = self.prepared.key(cell.exporter, cell.opset)
        stored = store.get(name)
        if stored is None:
            if name in self.prepared.failed:
                raise self.prepared.failed[name]
            with self.stages("declare", "case"):
                self.reference(inputs)  # a module that PyTorch itself cannot run is not the exporter's fault
            try:
                with self.stages("export", "exporter"):
                    start = time.perf_counter()
                    exported = self.export()
                    seconds = time.perf_counter() - start
            except Stopped as stop:
                self.prepared.failed[name] = stop
                raise
            with self.stages("check", "exporter"):
                facts = graph.read(exported.model, exported.data)
                stored = store.put(name, exported.data, facts, {"export": round(seconds, 6)})
        self.record.graph = {
            "opset": stored.facts.opset,
            "nodes": stored.facts.nodes,
            "sha": stored.facts.sha,
        }
        with self.stages("check", "exporter"):
            self._check_valid(stored)
        return stored

    def _check_valid(self, stored: Stored) -> None:
        facts = stored.facts
        if facts.opset != self.cell.opset:
            text = f"the model is at opset {facts.opset}, asked for was {self.cell.opset}"
            raise Stopped("check", "WrongOpset", text, "exporter")
        if facts.invalid:
            error, text = facts.invalid
            raise Stopped("check", error, f"onnx.checker refuses the model: {text}", "exporter")


# ---- the checks ------------------------------------------------------------------------------------------


def _check_export(run: CellRun) -> None:
    """The graph is what the case says, and does not depend on the shape it was traced at."""
    stored = run.model()
    case, cell = run.cell.case, run.cell
    sizes, _ = run.prepared.trace()
    with run.stages("check", "exporter"):
        findings = list(graph.signature(case, stored.facts, run.reference.graph_order(), sizes, run.target.static))
        for entry in case.says.graph:
            if matches(entry.when, cell):
                findings += graph.assertions(entry, stored.facts)
        if findings:
            stop = Stopped("check", findings[0].error, findings[0].text, findings[0].fault)
            stop.details = [f"also: {finding.text}" for finding in findings[1:]]
            stop.details.append(f"the graph has {_counts(stored.facts.nodes)}")
            raise stop
        _check_second_trace(run, stored)
    run.record.examples = 1


def _counts(nodes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in nodes.items()) or "no nodes"


def _check_second_trace(run: CellRun, stored: Stored) -> None:
    """A graph that differs when it is traced at other sizes has a size baked in."""
    sizes, _ = run.prepared.trace()
    odd, _ = run.prepared.trace(odd=True)
    held = all(sizes[name] == odd[name] for name in sizes if name not in run.target.static)
    affordable = stored.seconds["export"] <= SECOND_TRACE_SECONDS
    target = run.target
    if not isinstance(target, TorchScript) or held or not affordable:
        return
    # In training mode the statistics of the example are part of the model.
    if run.cell.case.says.mode == "train" or target.options.training not in (None, "eval"):
        return
    with run.stages("export", "exporter"):
        again = graph.structure(run.export(odd=True).model)
    if again != stored.facts.structure:
        text = (
            f"the graph traced at {_sizes(odd)} differs from the one traced at {_sizes(sizes)}: "
            "a size, or what follows from the values, is baked in"
        )
        raise Stopped("check", "ShapeBakedIn", text, "exporter")


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _check_registration(run: CellRun) -> None:
    """Without its symbolics the export fails as declared; with them it works and uses every tensor input;
    afterwards the registry is as before."""
    target = run.target
    assert isinstance(target, TorchScript)
    before = symbolics.snapshot()
    declared: dict[str, Symbolic] = {**target.symbolics, **target.registers}
    with run.stages("export", "exporter"):
        without = _error_of(lambda: run.export(with_symbolics=False))
        exported = run.export()
        plain = None if without else graph.structure(run.export(with_symbolics=False).model)
    with run.stages("check", "case"):
        _check_was_needed(declared, without, plain == graph.structure(exported.model))
        uncalled = [name for name, count in exported.usage.calls.items() if not count]
        if uncalled:
            text = f"the symbolic of {uncalled[0]} was never called: the module does not use this operator"
            raise Stopped("check", "UnusedSymbolic", text, "case")
        _check_ignored(declared, exported.usage)
        changed = symbolics.changed_since(before)
        if changed:
            raise Stopped(
                "check", "RegistryChanged", f"left changed after the export: {', '.join(changed)}", "harness"
            )
    run.record.examples = 2


def _error_of(action: Callable[[], Any]) -> str | None:
    try:
        action()
    except Exception as error:
        return type(error).__name__ if not isinstance(error, Stopped) else error.error
    return None


def _check_was_needed(declared: Mapping[str, Symbolic], without: str | None, same_graph: bool) -> None:
    found = without or ("the same graph" if same_graph else "another graph")
    wanted = {one.without for one in declared.values()}
    if found not in wanted:
        what = f"stops with {found}" if without else f"gives {found}"
        text = f"without the symbolic the export {what}; declared is {' or '.join(sorted(wanted))}"
        raise Stopped("check", "NotNeeded" if same_graph else "OtherFailure", text, "case")


def _check_ignored(declared: Mapping[str, Symbolic], usage: symbolics.Usage) -> None:
    for operator, names in usage.ignored.items():
        allowed = declared[operator].ignores if operator in declared else {}
        lost = [name for name in names if name not in allowed]
        if lost:
            which = declared[operator].function if operator in declared else "the symbolic"
            text = f"{which} ignores {', '.join(lost)} of {operator}: the model cannot depend on it"
            raise Stopped("check", "IgnoredInput", text, "case")


def _check_accuracy(run: CellRun) -> None:
    """The runtime's outputs are PyTorch's, for every example; ``specials`` is the same with other values."""
    cell, prepared = run.cell, run.prepared
    assert cell.runtime is not None
    stored = run.model()
    traced, inputs = prepared.trace()
    dims = cell.case.dims.fixing({name: traced[name] for name in run.target.static})
    with run.stages("load", "case"):
        libraries = [_library(run, name) for name in cell.case.says.libraries]
    verify = Verifier(cell, run.record, run.stages, run.reference, prepared.maker, list(stored.facts.outputs))
    explainer = Explainer(run.record, verify, dims, stored.file, libraries)
    with contextlib.ExitStack() as stack:
        try:
            with run.stages("load", "exporter"):
                verify.session = stack.enter_context(opener(cell.runtime)(stored.file, libraries))
        except Stopped as stop:
            raise explainer.blamed(stop, inputs) from stop
        run.record.arithmetic = dict(verify.session.arithmetic)
        Examples(cell, run.settings, run.record, prepared, verify, explainer).run(dims, traced)


def _library(run: CellRun, name: str) -> str:
    """The path of a custom-operator library: a file beside the case file, or what a function returns."""
    file = run.cell.case.folder / name
    if file.is_file() and file.suffix != ".py":
        return str(file)
    found = run.reference.folder.resolve(name)
    path = str(found() if callable(found) else found)
    if not Path(path).is_file():
        raise Stopped(
            "declare",
            "MissingFile",
            f"libraries: {name} gave {display_path(Path(path))}, which is not there",
            "case",
        )
    return path


CHECKS: dict[str, Callable[[CellRun], None]] = {
    "export": _check_export,
    "registration": _check_registration,
    "accuracy": _check_accuracy,
    "specials": _check_accuracy,
}
