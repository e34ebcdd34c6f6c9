"""From cases to cells: what is run, what is selected, and which failures are expected where."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from conformance.case import Case
from conformance.errors import Problem, display_path
from conformance.expect import Expectation, agrees
from conformance.processor import is_of_kind
from conformance.record import Record, cell_id, cell_label
from conformance.schema.deploy import Latency
from conformance.schema.holds import Fails, When
from conformance.schema.words import SPECIALS, base_of


@dataclass(frozen=True)
class Cell:
    """case × exporter × opset × runtime × precision × check; runtime is None where a check needs none."""

    case: Case
    check: str
    exporter: str
    opset: int
    runtime: str | None = None
    precision: str = "fp32"
    budget: Latency | None = None
    """What a ``latency`` cell measures."""

    @property
    def label(self) -> str:
        """What stands in the brackets of the pytest id: ``asinh-torchscript-op17-onnxruntime-fp32``."""
        label = cell_label(self.case.name, self.exporter, self.opset, self.runtime, self.precision)
        return f"{label}-{self.budget.label}" if self.budget is not None and self.budget.label else label

    @property
    def converted(self) -> bool:
        """Whether the exported model is converted to another precision first."""
        return self.precision != "fp32"

    @property
    def id(self) -> str:
        return cell_id(self.check, self.label)

    def record(self) -> Record:
        """An empty record of this cell."""
        source = {"file": display_path(self.case.file), "line": self.case.line}
        return Record(
            id=self.id, case=self.case.name, exporter=self.exporter, opset=self.opset, runtime=self.runtime,
            precision=self.precision, check=self.check, source=source,
        )  # fmt: skip


NOT_FOR_CONVERTED = ("onnx-reference",)
"""Runtimes that run no converted models: ONNX's evaluator computes fp16 in NumPy, slowly and by other roundings."""


def plan(case: Case) -> Iterator[Cell]:
    """All cells of a case, those that share an exported model next to one another."""
    specials = any(case.says.takes_specials(name) for name in case.says.inputs)
    for exporter, target in case.says.export.exporters.items():
        registers = exporter == "torchscript" and bool(target.symbolics or target.registers)  # type: ignore[union-attr]
        for opset in target.opsets:
            yield Cell(case, "export", exporter, opset)
            if registers:
                yield Cell(case, "registration", exporter, opset)
            for runtime in _runtimes(case, exporter, opset):
                yield Cell(case, "accuracy", exporter, opset, runtime)
                if runtime == "tensorrt":
                    yield Cell(case, "engine", exporter, opset, runtime)
                elif specials:
                    yield Cell(case, "specials", exporter, opset, runtime)
            for precision in case.says.precisions:
                if opset in case.says.converted_opsets(precision, exporter) and not _known_wrong(
                    case, exporter, opset
                ):
                    yield Cell(case, "fidelity", exporter, opset, None, precision)
                    for runtime in case.says.runtimes:  # few models are converted, so TensorRT runs each
                        if runtime not in NOT_FOR_CONVERTED:
                            yield Cell(case, "accuracy", exporter, opset, runtime, precision)
                        if runtime == "tensorrt":
                            yield Cell(case, "engine", exporter, opset, runtime, precision)
            yield from _latencies(case, exporter, opset)


def _latencies(case: Case, exporter: str, opset: int) -> Iterator[Cell]:
    """The budgets that are about a model: that of the highest opset, or the one that is converted or run."""
    for entry in case.says.latency:
        converted = entry.precision != "fp32"
        if converted:
            opsets = case.says.converted_opsets(entry.precision, exporter)  # type: ignore[arg-type]
        elif entry.runtime == "tensorrt":
            opsets = case.says.tensorrt_opsets(exporter)  # type: ignore[arg-type]
        else:
            opsets = case.says.export.exporters[exporter].opsets  # type: ignore[index]
        wrong = converted and _known_wrong(case, exporter, opset)
        if entry.exporter in (None, exporter) and opsets and opset == max(opsets) and not wrong:
            yield Cell(case, "latency", exporter, opset, entry.runtime, entry.precision, entry)


def _runtimes(case: Case, exporter: str, opset: int) -> Iterator[str]:
    """TensorRT takes long to build an engine, so that it runs one opset of each exporter unless told otherwise."""
    for runtime in case.says.runtimes:
        if runtime != "tensorrt" or opset in case.says.tensorrt_opsets(exporter):  # type: ignore[arg-type]
            yield runtime


def _known_wrong(case: Case, exporter: str, opset: int) -> bool:
    """Whether the exported model is declared not to compute what it should: then no precision of it can.

    Declared of ONNX Runtime, that is, which also computes what a converted model means.
    """
    in_fp32 = Cell(case, "accuracy", exporter, opset, "onnxruntime")
    return any(
        entry.stage in ("load", "run", "compare")
        and not entry.when.only_some_draws
        and entry.when.cpu is None  # which cells there are does not depend on the host
        and owed(entry, in_fp32)
        for entry in declared(in_fp32)
    )


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
        )
        precise = self.precisions is None or bool({cell.precision, base_of(cell.precision)} & {*self.precisions})
        return precise and all(some is None or value is None or value in some for some, value in wanted)


def matches(when: When, cell: Cell) -> bool:
    """Whether a condition is about this cell, leaving aside what it says about single draws and about the host."""
    return bool(
        when.exporter in (None, cell.exporter)
        and (when.opset is None or cell.opset in when.opset)
        and (when.runtime is None or cell.runtime in when.runtime)
        and (when.precision is None or {cell.precision, base_of(cell.precision)} & {*when.precision})
        and (when.check is None or cell.check in when.check)
        and all(cell.case.varied.get(name) == value for name, value in when.given.items())
    )


# In which checks a failure must show. In the others it may: specials, for example, run the same model.
_OWED = {
    "declare": ("accuracy",),
    "export": ("export", "accuracy", "specials"),
    "check": ("export",),
    "convert": ("fidelity", "accuracy"),
    "load": ("accuracy",),
    "run": ("accuracy",),
    "compare": ("accuracy",),
    "latency": ("latency",),
}


_BEFORE_CONVERSION = ("declare", "export", "check")


def declared(cell: Cell) -> list[Fails]:
    """The declared failures that are about this cell, or about some of its draws, on whatever host.

    One of the exported model that names no precision and shows only in running it is about fp32: it may be smaller
    than what another precision costs anyway.
    """
    return [
        entry
        for entry in cell.case.says.fails
        if matches(entry.when, cell)
        and (not cell.converted or entry.when.precision is not None or entry.stage in _BEFORE_CONVERSION)
    ]


def on_host(entries: Iterable[Fails], instructions: Collection[str]) -> list[Fails]:
    """Those of the entries that are about a host whose processor has these instruction sets."""
    return [
        entry for entry in entries if entry.when.cpu is None or is_of_kind(entry.when.cpu.model_dump(), instructions)
    ]


def expectations(cell: Cell) -> list[Expectation]:
    """The declared failures of the whole cell, as data; those about single draws are settled while it runs."""
    return [
        Expectation(
            entry.stage, entry.error, entry.because, entry.fault,
            f"{display_path(cell.case.file)}:{cell.case.line_of(entry)}", owed(entry, cell),
            cpu=None if entry.when.cpu is None else entry.when.cpu.model_dump(),
        )
        for entry in declared(cell)
        if not entry.when.only_some_draws
    ]  # fmt: skip


def shows(entry: Fails, stage: str | None, error: str | None, reason: str | None) -> bool:
    """Whether what happened is what the entry declares."""
    return agrees(entry.stage, entry.error, stage, error, reason)


def apart(cell: Cell) -> list[Fails]:
    """Declared failures of single draws, which are not among the examples that have to hold. A converted model is not
    tried either with those at which the exported one fails."""
    entries = [entry for entry in declared(cell) if entry.when.only_some_draws]
    if not cell.converted:
        return entries
    about_fp32 = dataclasses.replace(cell, check="accuracy", runtime=cell.runtime or "onnxruntime", precision="fp32")
    return entries + [
        entry
        for entry in cell.case.says.fails
        if entry.when.only_some_draws and entry.when.precision is None and matches(entry.when, about_fp32)
    ]


def owed(entry: Fails, cell: Cell) -> bool:
    """Whether the failure has to show in this cell: the check that the entry names, or else the checks that
    are about its stage."""
    if entry.when.check is not None:
        return True
    if cell.converted and entry.stage in ("run", "compare"):  # the precision's fault, or the runtime that is named
        return (cell.check == "fidelity") == (entry.when.runtime is None)
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
