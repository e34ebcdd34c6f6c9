"""Another opset, or the other exporter, with which the cells pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.case.declaration import Case
from conformance.case.export_keys import Dynamo, ExportTo, TorchScript
from conformance.case.words import Exporter
from conformance.repairs.trials import Fix, Trials, changed, proving

TRIED: Mapping[Exporter, tuple[int, ...]] = {
    "torchscript": (17, 18, 16, 15, 14, 13, 20),
    "dynamo": (20, 18, 21, 22, 23),
}
"""The opsets that are tried of each exporter, those that are used most first."""
MOST = 5
"""How many exports are tried of each exporter."""


def fixes(case: Case, record: Mapping[str, Any], trials: Trials) -> Iterator[Fix]:
    """The first export of each exporter with which the cells pass, that of the record's own exporter first."""
    own = str(record["exporter"])
    for exporter in sorted(TRIED, key=lambda name: name != own):
        if exporter == "dynamo" and case.says.script:
            continue
        for opset in _opsets(case, record, exporter)[:MOST]:
            other = _exported(case, exporter, opset)
            shown = trials.shown(proving(other, record, exporter, opset))
            if shown is not None:
                yield Fix(f"export with {exporter} at opset {opset}", _paste(case, exporter, opset), shown)
                break


def _opsets(case: Case, record: Mapping[str, Any], exporter: Exporter) -> list[int]:
    """The opsets to try: those that the case has first, without that of the record."""
    target = case.says.export.exporters.get(exporter)
    had = list(target.opsets) if target is not None else []
    wrong = record["opset"] if exporter == record["exporter"] else None
    return [opset for opset in dict.fromkeys([*had, *TRIED[exporter]]) if opset != wrong]


def _exported(case: Case, exporter: Exporter, opset: int) -> Case:
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


def _paste(case: Case, exporter: Exporter, opset: int) -> str:
    target = case.says.export.exporters.get(exporter)
    if target is None or target.model_fields_set <= {"opsets"}:
        return f"export: {{{exporter}: [{opset}]}}"
    return f"export: {{{exporter}: {{opsets: [{opset}], ...}}}}, the rest of it as it is"
