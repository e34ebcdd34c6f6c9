"""The case's own symbolic or translation of an operator, taken out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.case.declaration import Case
from conformance.case.export_keys import ExportTo
from conformance.checks.case_edits import flow, plain
from conformance.records.findings import key_of
from conformance.repairs.trials import PROVING, Fix, Trials, changed, proving

MOST = 4
"""How many of a case's own registrations are tried to be taken out, where the record names no operator."""
_TABLES = ("symbolics", "registers", "translations")


def fixes(case: Case, record: Mapping[str, Any], trials: Trials) -> Iterator[Fix]:
    """Yield what torch itself has for the operator that the record names, where the case registers it."""
    exporter = str(record["exporter"])
    target: ExportTo | None = case.says.export.exporters.get(exporter)  # type: ignore[call-overload]  # of a record
    if target is None:
        return
    for operator in _registered(target, named(record)):
        other = _with(case, exporter, _without(target, operator))
        shown = _shown(other, record, trials)
        if shown is not None:
            yield Fix(f"take out the case's own {operator}, as torch's is right", _paste(other), shown)
            return


def named(record: Mapping[str, Any]) -> list[str]:
    """The operators that may be at fault, as exporters name them: the one that the record located, as it was called
    and as it was decomposed to; else the one that the error names."""
    located = record.get("operator") or {}
    found = [str(located[part]) for part in ("operator", "within") if located.get(part)]
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
    return [name for name in own if name.partition(".")[0] in operators] if operators else own[:MOST]


def _without(target: ExportTo, operator: str) -> ExportTo:
    tables = {table: dict(getattr(target, table)) for table in _TABLES if operator in getattr(target, table, ())}
    for entries in tables.values():
        del entries[operator]
    return target.model_copy(update=tables)


def _with(case: Case, exporter: str, target: ExportTo) -> Case:
    """The case with another target for one exporter; its declared failures stay."""
    export = case.says.export.model_copy(update={exporter: target})
    return dataclasses.replace(case, says=case.says.model_copy(update={"export": export}))


def _shown(other: Case, record: Mapping[str, Any], trials: Trials) -> str | None:
    """Return what was verified, if the cells of the record's opset pass and none at the exporter's other opsets, for
    which what is registered is too, is worse than declared."""
    exporter, opset = str(record["exporter"]), int(record["opset"])
    checks = (*PROVING, "registration")
    shown = trials.shown(proving(changed(other), record, exporter, opset, checks))
    if shown is None:
        return None
    opsets = other.says.export.exporters[exporter].opsets  # type: ignore[index]  # of a record
    others = [cell for at in opsets if at != opset for cell in proving(other, record, exporter, at, checks)]
    return shown if trials.unharmed(others) else None


def _paste(case: Case) -> str:
    """The export as the file has to say it, without tables that are empty."""
    said = plain(case.says.export)
    for target in said.values():
        for table in _TABLES:
            if isinstance(target, dict) and not target.get(table, True):
                del target[table]
    return f"export: {flow(said)}"
