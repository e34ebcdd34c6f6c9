"""From cases to cells: what is run, what is selected, and which failures are expected where."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from conformance.case import SPECIALS, Case, Fails, When
from conformance.errors import Problem, display_path
from conformance.record import Record


@dataclass(frozen=True)
class Cell:
    """case × exporter × opset × runtime × precision × check; runtime is None where a check needs none."""

    case: Case
    check: str
    exporter: str
    opset: int
    runtime: str | None = None
    precision: str = "fp32"

    @property
    def label(self) -> str:
        """What stands in the brackets of the pytest id: ``asinh-torchscript-op17-onnxruntime-fp32``."""
        parts = [self.case.name, self.exporter, f"op{self.opset}"]
        if self.runtime is not None:
            parts += [self.runtime, self.precision]
        return "-".join(parts)

    @property
    def id(self) -> str:
        return f"{self.check}[{self.label}]"

    def record(self) -> Record:
        """An empty record of this cell."""
        source = {"file": display_path(self.case.file), "line": self.case.line}
        return Record(
            id=self.id, case=self.case.name, exporter=self.exporter, opset=self.opset, runtime=self.runtime,
            precision=self.precision, check=self.check, source=source,
        )  # fmt: skip


def plan(case: Case) -> Iterator[Cell]:
    """All cells of a case, those that share an exported model next to one another."""
    specials = any(case.says.takes_specials(name) for name in case.says.inputs)
    for exporter, target in case.says.export.exporters.items():
        registers = exporter == "torchscript" and bool(target.symbolics or target.registers)  # type: ignore[union-attr]
        for opset in target.opsets:
            yield Cell(case, "export", exporter, opset)
            if registers:
                yield Cell(case, "registration", exporter, opset)
            for runtime in case.says.runtimes:
                yield Cell(case, "accuracy", exporter, opset, runtime)
                if specials:
                    yield Cell(case, "specials", exporter, opset, runtime)


@dataclass(frozen=True)
class Selection:
    """Which cells to keep; None keeps all."""

    exporters: Collection[str] | None = None
    opsets: Collection[int] | None = None
    runtimes: Collection[str] | None = None
    precisions: Collection[str] | None = None

    def keeps(self, cell: Cell) -> bool:
        wanted = (
            (self.exporters, cell.exporter),
            (self.opsets, cell.opset),
            (self.runtimes, cell.runtime),
            (self.precisions, cell.precision),
        )
        return all(some is None or value is None or value in some for some, value in wanted)


def matches(when: When, cell: Cell) -> bool:
    """Whether a condition is about this cell, leaving aside what it says about single draws."""
    return (
        when.exporter in (None, cell.exporter)
        and (when.opset is None or cell.opset in when.opset)
        and (when.runtime is None or cell.runtime in when.runtime)
        and when.precision in (None, cell.precision)
        and (when.check is None or cell.check in when.check)
        and all(cell.case.varied.get(name) == value for name, value in when.given.items())
    )


# In which checks a failure must show. In the others it may: specials, for example, run the same model.
_OWED = {
    "declare": ("accuracy",),
    "export": ("export", "accuracy", "specials"),
    "check": ("export",),
    "convert": ("accuracy",),
    "load": ("accuracy",),
    "run": ("accuracy",),
    "compare": ("accuracy",),
}


def expected(cell: Cell) -> list[Fails]:
    """The declared failures that are about this cell, or about some of its draws."""
    return [entry for entry in cell.case.says.fails if matches(entry.when, cell)]


def owed(entry: Fails, cell: Cell) -> bool:
    """Whether the failure has to show in this cell: the check that the entry names, or else the checks that
    are about its stage."""
    if entry.when.check is not None:
        return True
    if entry.when.values:
        special = {value in SPECIALS for value in entry.when.values}
        return (cell.check == "specials" and True in special) or (cell.check == "accuracy" and False in special)
    return cell.check in _OWED.get(entry.stage, ())


def unmatched(cases: Iterable[Case]) -> list[Problem]:
    """Entries of ``fails`` and ``graph`` that are about no cell of any of the cases: a typo, or out of date."""
    seen: dict[tuple[str, int], bool] = {}
    places: dict[tuple[str, int], Problem] = {}
    for case in cases:
        cells = list(plan(case))
        for index, entry in enumerate(case.says.fails):
            line = case.fails_lines[index]
            key = (str(case.file), line)
            hit = any(matches(entry.when, cell) and owed(entry, cell) for cell in cells)
            seen[key] = seen.get(key, False) or hit
            places[key] = Problem(
                case.file, line, 1, f"this entry of fails matches no cell of {case.name.split('-')[0]}"
            )
    return [places[key] for key, hit in seen.items() if not hit]
