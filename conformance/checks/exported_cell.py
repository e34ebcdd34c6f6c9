"""The part of ``checks.models.CellRun`` by which an export is explained, for what ``models`` itself calls."""

from __future__ import annotations

from typing import Protocol

from conformance.arrays import Inputs
from conformance.case.export_keys import Dynamo, OnnxFile, TorchScript
from conformance.checks.outcomes import Outcomes
from conformance.checks.prepared import Prepared
from conformance.export.exporters import Exported
from conformance.export.reference import Reference
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.records.record import Record


class ExportedCell(Protocol):
    """A cell whose module can be exported again."""

    cell: Cell
    settings: Settings
    record: Record
    prepared: Prepared
    reference: Reference
    target: TorchScript | Dynamo | OnnxFile
    outcomes: Outcomes

    def export(self, *, inputs: Inputs | None = None) -> Exported: ...

    def libraries(self) -> list[str]: ...

    def set_apart(self) -> None: ...
