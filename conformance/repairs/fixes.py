"""Suggest fixes of a finding, by the component that is at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conformance.case.declaration import Case
from conformance.records.findings import Finding
from conformance.repairs import exports, fp32_nodes, optimizer, translations, weak_case
from conformance.repairs.trials import Fix, Trials

_Fixes = Callable[[Case, Mapping[str, Any], Trials], Iterator[Fix]]
_EXPORTS = "the case's own symbolics taken out, other opsets and the other exporter"
TRIED: dict[str, tuple[str, tuple[_Fixes, ...]]] = {
    "exporter": (_EXPORTS, (translations.fixes, exports.fixes)),
    "open": (_EXPORTS, (translations.fixes, exports.fixes)),
    "runtime": ("other opsets and the other exporter, whose models have other nodes", (exports.fixes,)),
    "optimizer": ("the guilty passes switched off", (optimizer.fixes,)),
    "case": ("the edit that its record proposes", (weak_case.fixes,)),
    "precision": ("nodes kept in fp32", (fp32_nodes.fixes,)),
}
"""By component: what is tried, and how."""


def fixes(finding: Finding, case: Case, record: Mapping[str, Any], trials: Trials) -> Iterator[Fix]:
    """The changes to a case with which the cell of a record passes, which is one of the finding."""
    _, tried = TRIED.get(finding.key.component, ("", ()))
    for of in tried:
        yield from of(case, record, trials)


def tried(finding: Finding) -> str | None:
    """Return what is tried for a finding, in words; None where there is nothing to try."""
    component = finding.key.component
    if component == "case" and weak_case.proposed(finding.cells[0]) is None:
        return None
    return TRIED[component][0] if component in TRIED else None
