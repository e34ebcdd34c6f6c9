"""The cell: the unit of testing, isolation, caching, parallelism and distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.case.files.declaration import Case
from conformance.case.files.deploy import Latency
from conformance.process.errors import display_path
from conformance.results.records.record import Record, cell_id, cell_label
from conformance.results.records.record_types import Place
from conformance.results.records.sanitize import command_line
from conformance.results.records.words import Exporter


@dataclass(frozen=True)
class Cell:
    """case × exporter × opset × runtime × precision × check; runtime is None where a check needs none."""

    case: Case
    check: str
    exporter: Exporter
    opset: int
    runtime: str | None = None
    precision: str = "fp32"
    budget: Latency | None = None
    """What a ``latency`` cell measures."""
    on_request: bool = False
    """Whether it is run only where ``--runtime`` names its runtime."""

    @property
    def label(self) -> str:
        """Return the brackets of the pytest id: ``asinh-dynamo-op20-onnxruntime-fp32``."""
        label = cell_label(self.case.name, self.exporter, self.opset, self.runtime, self.precision)
        return f"{label}-{self.budget.label}" if self.budget is not None and self.budget.label else label

    @property
    def converted(self) -> bool:
        """Return whether the exported model is converted to another precision first."""
        return self.precision != "fp32"

    @property
    def is_of_own_file(self) -> bool:
        """Return whether the case's own file is in this precision already: what it means is what is right."""
        return self.converted and self.precision == self.case.says.own_precision

    @property
    def own_code(self) -> list[str]:
        """The case's own symbolics and functions that its export uses: ``symbolics.asinh for aten::asinh``."""
        used = self.case.says.export.exporters[self.exporter].own_code()
        return [function if name == function else f"{function} for {name}" for name, function in used.items()]

    @property
    def file_of_another(self) -> str | None:
        """The file that runs, where the case names one: as somebody else has exported or converted the model."""
        says, target = self.case.says, self.case.says.export.onnx if self.exporter == "onnx" else None
        own = None if target is None else target.file
        converted = self.converted and not self.is_of_own_file
        return (says.precisions[self.precision].file if converted else None) or own

    @property
    def id(self) -> str:
        return cell_id(self.check, self.label)

    def record(self) -> Record:
        """An empty record of this cell."""
        source: Place = {"file": display_path(self.case.file), "line": self.case.line}
        file = self.file_of_another
        return Record(
            id=self.id, case=self.case.name, exporter=self.exporter, opset=self.opset, runtime=self.runtime,
            precision=self.precision, check=self.check, source=source,
            outputs=[output.name for output in self.case.says.outputs],
            shipped=None if file is None else Path(file).name,
            meaning=None if self.case.says.onnx is None else Path(self.case.says.onnx).name,
        )  # fmt: skip


def command(cell_id: str, folder: Path, cases: Sequence[str | Path], options: Mapping[str, object]) -> str:
    """Write the command that runs the cell from ``folder``.

    With these paths of cases, and those of ``options`` that are not None.
    """
    words = ["pytest", "conformance"] if (folder / "conformance").is_dir() else ["conformance", "run"]
    for path in cases:
        words += ["--cases", str(path)]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return command_line([*words, "-k", cell_id])
