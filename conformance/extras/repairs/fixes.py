"""Suggest fixes of a finding, by the component that is at fault: one way after another, each with trials."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from conformance.case.files.declaration import Case, Declaration
from conformance.case.files.export_keys import Dynamo, ExportTo, TorchScript
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.diagnose.search import OutOfTime, Shrinker, grow
from conformance.extras.repairs.trials import PROVING, Fix, RepairTrials, beside, changed, listed, proving
from conformance.judge.case_edits import flow, plain, saying
from conformance.results.records.findings import Finding, key_of
from conformance.results.records.record import Record
from conformance.results.records.record_types import Remedy
from conformance.results.records.words import Exporter

# ---- a case that proves too little: the edit that its record proposes ---------------------------------------
ROUNDS = 3
"""How often an edit is followed by the one that its own failure proposes, as for draws that are further off."""
WHAT = {
    "values": "draw other values", "draws": "draw more values", "weights": "give parameters that are all zero values",
    "tolerance": "compare by the default tolerance", "specials": "leave specials out",
    "tolerance to declare": "declare the tolerance that float32 itself needs here",
    "excuse": "say why the output is right though any would pass", "awake": "wake the weights",
}  # fmt: skip
_LOOSER = "tolerance to declare"
_AWAKE: Remedy = {"kind": "awake", "yaml": "weights: awake"}


def proposed(record: Record) -> Remedy | None:
    """The edit that a record proposes, or that may help where a module hardly shows; None where there is none to be
    tried."""
    remedy = _AWAKE if record.error == "Hollow" else record.remedy
    return remedy if remedy and remedy.get("yaml") and not remedy.get("lacks") else None  # else it is to be filled in


def remedies(case: Case, record: Record, trials: RepairTrials) -> Iterator[Fix]:
    """The edit of a case at fault with which all cells pass that have to."""
    own: Record = record
    for _ in range(ROUNDS):
        remedy = proposed(own)
        if remedy is None or (remedy["kind"] == _LOOSER and not _float32_is_off(case, own, trials)):
            return
        says = _parts(case, str(remedy["yaml"]))
        file, python = str(remedy.get("file")), remedy.get("python")
        files = {}
        if python:
            before = case.folder / file
            files[file] = (before.read_text(encoding="utf-8") if before.exists() else "") + f"\n\n{python}"
        with beside(case, files) as moved:
            other = saying(moved, **says)
            strict = proving(changed(other), record, record.exporter, record.opset)
            shown = trials.shown(strict)
            rest = [
                cell for cell in plan(other) if cell.check in PROVING and cell.id not in {own.id for own in strict}
            ]
            if shown is not None and trials.unharmed(rest):
                merged = f"tolerance: {flow(plain(says['tolerance']))}" if "tolerance" in says else None
                paste = [merged or str(remedy["yaml"])]
                paste += [f"in {file}:", *(f"  {line}" for line in python.splitlines())] if python else []
                yield Fix(WHAT.get(remedy["kind"], remedy["kind"]), "\n".join(paste), shown)
                return
            again = next((cell for cell in strict if cell.id == record.id), None)
            if again is None or remedy["kind"] != _LOOSER:
                return
            own = trials.record(again)


def _float32_is_off(case: Case, record: Record, trials: RepairTrials) -> bool:
    """Return whether nobody computes what PyTorch does, and no cell of the case shows a runtime or an exporter to be
    wrong: a looser tolerance would hide that."""
    answers = {witness["answer"] for witness in record.witnesses}
    if record.conclusion == "apart" or answers & {"agrees", "nearer"}:
        return False

    def sound(cell: Cell) -> bool:
        told = trials.record(cell)
        return told.status != "failed" or (told.fault == "case" and not told.own_code)

    return all(sound(cell) for cell in plan(case) if cell.check in ("accuracy", "specials") and not cell.converted)


def _parts(case: Case, text: str) -> dict[str, object]:
    """Return what the edit has a case say, by key; a tolerance beside those of other precisions."""
    said = YAML(typ="safe").load(text)
    read = Declaration.model_validate({"about": "an edit", "inputs": {"x": "float32[1]"}, **said})
    parts = {key: getattr(read, key) for key in said}
    if "tolerance" in parts:
        parts["tolerance"] = {**case.says.tolerance, **parts["tolerance"]}
    return parts


# ---- the case's own symbolic or translation of an operator, taken out ---------------------------------------
MOST_OWN = 4
"""How many of a case's own registrations are tried to be taken out, where the record names no operator."""
_TABLES = ("symbolics", "registers", "translations")


def own_taken_out(case: Case, record: Record, trials: RepairTrials) -> Iterator[Fix]:
    """Yield what torch itself has for the operator that the record names, where the case registers it."""
    exporter = record.exporter
    target: ExportTo | None = case.says.export.exporters.get(exporter)  # type: ignore[call-overload]  # of a record
    if target is None:
        return
    for operator in _registered(target, named(record)):
        other = _with(case, exporter, _without(target, operator))
        shown = _shown(other, record, trials)
        if shown is not None:
            yield Fix(f"take out the case's own {operator}, as torch's is right", _paste_export(other), shown)
            return


def named(record: Record) -> list[str]:
    """The operators that may be at fault, as exporters name them: the one that the record located, as it was called
    and as it was decomposed to; else the one that the error names."""
    located = record.operator or {}
    found = [name for name in (located.get("operator"), located.get("within")) if name]
    key = key_of(record)
    if not found and key.by == "operator":
        found = [key.of]
    return [_name(operator) for operator in found]


def _name(operator: str) -> str:
    """``aten::add`` of ``aten.add`` and ``aten::add_``, ``_operator::floordiv`` of ``operator.floordiv``."""
    namespace, _, name = operator.replace("::", ".").partition(".")
    name = name.partition(".")[0]
    return f"{'_operator' if namespace == 'operator' else namespace}::{name.rstrip('_') or name}"


def _registered(target: ExportTo, operators: Sequence[str]) -> list[str]:
    """The case's own registrations that may be wrong: those of the operators; all where none of these is known."""
    own = [name for table in _TABLES for name in getattr(target, table, ())]
    return [name for name in own if name.partition(".")[0] in operators] if operators else own[:MOST_OWN]


def _without(target: ExportTo, operator: str) -> ExportTo:
    tables = {table: dict(getattr(target, table)) for table in _TABLES if operator in getattr(target, table, ())}
    for entries in tables.values():
        del entries[operator]
    return target.model_copy(update=tables)


def _with(case: Case, exporter: str, target: ExportTo) -> Case:
    """The case with another target for one exporter; its declared failures stay."""
    export = case.says.export.model_copy(update={exporter: target})
    return dataclasses.replace(case, says=case.says.model_copy(update={"export": export}))


def _shown(other: Case, record: Record, trials: RepairTrials) -> str | None:
    """Return what was verified, if the cells of the record's opset pass and none at the exporter's other opsets, for
    which what is registered is too, is worse than declared."""
    exporter, opset = record.exporter, record.opset
    checks = (*PROVING, "registration")
    shown = trials.shown(proving(changed(other), record, exporter, opset, checks))
    if shown is None:
        return None
    opsets = other.says.export.exporters[exporter].opsets  # type: ignore[index]  # of a record
    others = [cell for at in opsets if at != opset for cell in proving(other, record, exporter, at, checks)]
    return shown if trials.unharmed(others) else None


def _paste_export(case: Case) -> str:
    """The export as the file has to say it, without tables that are empty."""
    said = plain(case.says.export)
    for target in said.values():
        for table in _TABLES:
            if isinstance(target, dict) and not target.get(table, True):
                del target[table]
    return f"export: {flow(said)}"


# ---- the fewest nodes to keep in fp32 -----------------------------------------------------------------------
SAMPLES = 8
"""Inputs that nodes are ranked on."""
MOST_SETS = 24
"""How many sets of nodes are tried at most."""


def kept_in_fp32(case: Case, record: Record, trials: RepairTrials) -> Iterator[Fix]:
    """The smallest set of nodes that was found: by rank as many as are needed, and then those taken out again that
    are not."""
    exporter, opset, precision = record.exporter, record.opset, record.precision
    settings = case.says.precisions[precision]
    if settings.of_others:  # which somebody else converts
        return
    cells = [one for one in proving(changed(case), record, exporter, opset) if one.check == "fidelity"]
    ranked = trials.call(ranked_nodes, cells[0], trials.store) if cells else None
    if not ranked:
        return
    kept = getattr(settings.exclude, exporter)
    verified: dict[tuple[str, ...], str] = {}

    def passes(nodes: Sequence[str]) -> bool:
        exclude = settings.exclude.model_copy(update={exporter: [*kept, *nodes]})
        precisions = {**case.says.precisions, precision: settings.model_copy(update={"exclude": exclude})}
        other = changed(case, precisions=precisions)
        shown = trials.shown(proving(other, record, exporter, opset))
        verified.update({} if shown is None else {tuple(nodes): shown})
        return shown is not None

    sets = Shrinker[Sequence[str]](passes, key=tuple, cost=len, most=MOST_SETS)
    with contextlib.suppress(OutOfTime):
        grow(ranked, sets.fails)
    nodes = sets.best
    if nodes:
        paste = f"precisions: {{{precision}: {{exclude: {{{exporter}: {listed([*kept, *nodes])}}}}}}}"
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        yield Fix(f"keep {count} in fp32", paste, f"{verified[tuple(nodes)]}; no fewer of these were enough")


def ranked_nodes(progress: object, cell: Cell, store: Path) -> list[str]:
    """The nodes of the cell's converted model: those that overflow first, then by what keeping them in fp32 wins
    back. Raises what converting raises."""
    from conformance.extras.sensitivity.ranking import of_cell

    ranking = of_cell(cell, Settings(store=store), SAMPLES, lambda done, total, node: None)
    gaining = [kept.node for kept in ranking.nodes if kept.gain > 0]
    return list(dict.fromkeys([*ranking.overflow, *gaining]))


# ---- passes of ONNX Runtime's optimizer switched off, and what that costs -----------------------------------
OPTION = "optimization.disable_specified_optimizers"
"""The session option of ONNX Runtime that takes names of passes, with semicolons between them."""
REPEATS = 30
"""How often the model is run with the passes on and off, in turn."""


def passes_off(case: Case, record: Record, trials: RepairTrials) -> Iterator[Fix]:
    """The passes that the record names, switched off."""
    passes = record.optimizer["passes"] if record.optimizer is not None else []
    if not passes:
        return
    config = {**case.says.onnxruntime.config, OPTION: ";".join(passes)}
    other = changed(case, onnxruntime=case.says.onnxruntime.model_copy(update={"config": config}))
    cells = proving(other, record, record.exporter, record.opset)
    shown = trials.shown(cells)
    if shown is None:
        return
    ratio = trials.call(cost, cells[-1], dict(case.says.onnxruntime.config), config, trials.store)
    costs = f"; a run takes {ratio:.2f} times as long" if ratio is not None else ""
    said = ", ".join(f"{key}: {value!r}" for key, value in config.items())
    yield Fix(f"switch off {' and '.join(passes)}", f"onnxruntime: {{config: {{{said}}}}}", shown + costs)


def cost(progress: object, cell: Cell, before: dict[str, str], after: dict[str, str], store: Path) -> float:
    """Return how many times as long a run of the cell's model takes with other session options, at the traced sizes:
    the median of ``REPEATS`` pairs."""
    from conformance.models.cell_run import CellRun
    from conformance.models.conversion import converted_model
    from conformance.runtimes import opener

    with CellRun.opened(cell, Settings(store=store)) as run:
        stored, libraries, inputs = run.model(), run.libraries(), run.prepared.inputs()
        model = (converted_model(run, stored, refuse=False) if cell.converted else stored).file
        with (
            opener(f"{cell.runtime}", config=before)(model, libraries) as slow,
            opener(f"{cell.runtime}", config=after)(model, libraries) as other,
        ):

            def seconds(session: Any) -> float:
                start = time.perf_counter()
                session.run(inputs)
                return time.perf_counter() - start

            pairs = [(seconds(slow), seconds(other)) for _ in range(REPEATS)]
    return statistics.median(with_off / with_on for with_on, with_off in pairs)


# ---- another opset, or the other exporter -------------------------------------------------------------------
OPSETS: Mapping[Exporter, tuple[int, ...]] = {
    "torchscript": (17, 18, 16, 15, 14, 13, 20),
    "dynamo": (20, 18, 21, 22, 23),
}
"""The opsets that are tried of each exporter, those that are used most first."""
MOST_EXPORTS = 5
"""How many exports are tried of each exporter."""


def other_exports(case: Case, record: Record, trials: RepairTrials) -> Iterator[Fix]:
    """The first export of each exporter with which the cells pass, that of the record's own exporter first."""
    own = record.exporter
    for exporter in sorted(OPSETS, key=lambda name: name != own):
        if exporter == "dynamo" and case.says.script:
            continue
        for opset in _opsets(case, record, exporter)[:MOST_EXPORTS]:
            other = _with_export(case, exporter, opset)
            shown = trials.shown(proving(other, record, exporter, opset))
            if shown is not None:
                yield Fix(f"export with {exporter} at opset {opset}", _paste_opset(case, exporter, opset), shown)
                break


def _opsets(case: Case, record: Record, exporter: Exporter) -> list[int]:
    """The opsets to try: those that the case has first, without that of the record."""
    target = case.says.export.exporters.get(exporter)
    had = list(target.opsets) if target is not None else []
    wrong = record.opset if exporter == record.exporter else None
    return [opset for opset in dict.fromkeys([*had, *OPSETS[exporter]]) if opset != wrong]


def _with_export(case: Case, exporter: Exporter, opset: int) -> Case:
    target: ExportTo | None = case.says.export.exporters.get(exporter)
    if target is None:
        target = TorchScript(opsets=[opset]) if exporter == "torchscript" else Dynamo(opsets=[opset])
    export = case.says.export.model_copy(
        update={"torchscript": None, "dynamo": None, exporter: target.model_copy(update={"opsets": [opset]})}
    )
    precisions = {
        name: settings.model_copy(update={"opsets": None}) for name, settings in case.says.precisions.items()
    }
    return changed(case, export=export, precisions=precisions)


def _paste_opset(case: Case, exporter: Exporter, opset: int) -> str:
    target = case.says.export.exporters.get(exporter)
    if target is None or target.model_fields_set <= {"opsets"}:
        return f"export: {{{exporter}: [{opset}]}}"
    return f"export: {{{exporter}: {{opsets: [{opset}], ...}}}}, the rest of it as it is"


# ---- what is tried, by the component at fault ---------------------------------------------------------------
_Fixes = Callable[[Case, Record, RepairTrials], Iterator[Fix]]
_EXPORTS = "the case's own symbolics taken out, other opsets and the other exporter"
TRIED: dict[str, tuple[str, tuple[_Fixes, ...]]] = {
    "exporter": (_EXPORTS, (own_taken_out, other_exports)),
    "open": (_EXPORTS, (own_taken_out, other_exports)),
    "runtime": ("other opsets and the other exporter, whose models have other nodes", (other_exports,)),
    "optimizer": ("the guilty passes switched off", (passes_off,)),
    "case": ("the edit that its record proposes", (remedies,)),
    "precision": ("nodes kept in fp32", (kept_in_fp32,)),
}
"""By component: what is tried, and how."""


def _component(finding: Finding) -> str:
    """Return the component whose ways are tried: for code of the case's own those for what an exporter has made."""
    return "exporter" if finding.key.by == "code" else finding.key.component


def fixes(finding: Finding, case: Case, record: Record, trials: RepairTrials) -> Iterator[Fix]:
    """The changes to a case with which the cell of a record passes, which is one of the finding."""
    _, tried = TRIED.get(_component(finding), ("", ()))
    for of in tried:
        yield from of(case, record, trials)


def tried(finding: Finding) -> str | None:
    """Return what is tried for a finding, in words; None where there is nothing to try."""
    component = _component(finding)
    if component == "case" and proposed(finding.cells[0]) is None:
        return None
    return TRIED[component][0] if component in TRIED else None
