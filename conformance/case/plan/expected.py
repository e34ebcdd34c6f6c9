"""Find the declared failures of a cell, and where they have to show."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from conformance.case.files.must_hold import Fails, When
from conformance.case.plan.cell import Cell
from conformance.process.errors import Stopped, display_path
from conformance.results.records.host_conditions import is_about
from conformance.results.records.record import Record
from conformance.results.records.settle import Expectation, agrees
from conformance.results.records.words import SPECIALS, base_of


def matches(when: When, cell: Cell) -> bool:
    """Return whether a condition is about this cell.

    What it says about single draws and about the host is left aside.
    """
    return bool(
        when.exporter in (None, cell.exporter)
        and (when.opset is None or cell.opset in when.opset)
        and (when.runtime is None or cell.runtime in when.runtime)
        and (when.precision is None or {cell.precision, base_of(cell.precision)} & {*when.precision})
        and (when.check is None or cell.check in when.check)
        and all(cell.case.varied.get(name) == value for name, value in when.given.items())
    )


# By stage, the checks in which a declared failure has to show. In others it may: specials run the same model.
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

    A failure that names no precision and shows only when the model runs is about fp32: in a converted model it may be
    smaller than what the precision costs.
    """
    return [entry for entry in cell.case.says.fails if covers(entry, cell)]


def covers(entry: Fails, cell: Cell) -> bool:
    """Return whether a declared failure is about this cell, or about some of its draws, on whatever host."""
    return matches(entry.when, cell) and (
        not cell.converted or entry.when.precision is not None or entry.stage in _BEFORE_CONVERSION
    )


def on_host(entries: Iterable[Fails], instructions: Collection[str]) -> list[Fails]:
    """Return the entries that are about this environment, on a processor with these instruction sets."""
    return [entry for entry in entries if is_about(entry.when.host, instructions)]


def expectations(cell: Cell) -> list[Expectation]:
    """The declared failures of the whole cell, as data; those about single draws are settled while it runs."""
    return [
        Expectation(
            entry.stage, entry.error, entry.because, entry.fault,
            f"{display_path(cell.case.file)}:{cell.case.line_of(entry)}", owed(entry, cell),
            host=entry.when.host,
        )
        for entry in declared(cell)
        if not entry.when.only_some_draws
    ]  # fmt: skip


def shows(entry: Fails, failure: Stopped | Record) -> bool:
    """Return whether what happened is what the entry declares."""
    return agrees(entry.stage, entry.error, failure)


def fails_as_declared(cell: Cell, instructions: Collection[str], failure: Stopped | Record) -> Fails | None:
    """Return the first entry by which the whole cell fails like this on a host with these instruction sets."""
    entries = (entry for entry in on_host(declared(cell), instructions) if not entry.when.only_some_draws)
    return next((entry for entry in entries if shows(entry, failure)), None)


def apart(cell: Cell) -> list[Fails]:
    """Declared failures of single draws, which are not among the examples that have to hold. For a converted model
    these include the draws at which the exported model is declared to fail."""
    entries = [entry for entry in declared(cell) if entry.when.only_some_draws]
    if not cell.converted:
        return entries
    about_fp32 = dataclasses.replace(cell, check="accuracy", runtime=cell.runtime or "onnxruntime", precision="fp32")
    return entries + [
        entry
        for entry in cell.case.says.fails
        if entry.when.only_some_draws and entry.when.precision is None and matches(entry.when, about_fp32)
    ]


def has_specials_by_default(cell: Cell) -> bool:
    """Return whether a cell is of NaN and infinities that the case does not ask for, and of which it declares no draw
    to fail: what PyTorch itself does not compute then is no mistake of the case."""
    return cell.check == "specials" and "specials" not in cell.case.says.model_fields_set and not apart(cell)


def owed(entry: Fails, cell: Cell) -> bool:
    """Return whether the failure has to show in this cell.

    It has to in the check that the entry names, or else in the checks that are about its stage.
    """
    if entry.when.check is not None:
        return True
    if cell.check in ("parse", "build"):  # which not every runtime that stops at the model has to share
        seen = cell.check == "build" or entry.error == "UnsupportedModel"
        return entry.when.runtime is not None and entry.stage == "load" and seen
    if cell.converted and entry.stage in ("run", "compare"):  # shows in fidelity, unless the entry is about a runtime
        return (cell.check == "fidelity") == (entry.when.runtime is None)
    if entry.when.values:
        special = {value in SPECIALS for value in entry.when.values}
        plain = cell.check == "accuracy" or (cell.check == "meaning" and entry.when.runtime is not None)
        return (cell.check == "specials" and True in special) or (plain and False in special)
    if cell.check == "meaning":  # which computes no kernel, so that what other runtimes make of it is theirs
        return entry.when.runtime is not None and entry.stage == "compare"
    return cell.check in _OWED.get(entry.stage, ())
