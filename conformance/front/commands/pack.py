"""``conformance pack``: cells into a bundle, to be run where there is no PyTorch."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.front import option_types
from conformance.front.commands import add_cases, add_cell_timeout, add_option, add_store
from conformance.results.records.sanitize import one_line, tell

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell

KEYS = ("exporter", "opset", "precision")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="folder to write")
    add_cases(parser)
    parser.add_argument("-k", dest="words", metavar="TEXT", help="only cells whose id contains this")
    add_option(parser, "--runtime", "tensorrt", "cells of this runtime")
    for name in KEYS:
        parser.add_argument(f"--{name}", metavar="A,B", help=f"only cells of these {name}s")
    add_option(parser, "--examples", 16, "examples for each cell, at most", type=option_types.count(1))
    add_cell_timeout(parser)
    add_store(parser)


def run(given: argparse.Namespace) -> int:
    """0, or 1 where a cell could not be packed; the bundle then has all other cells."""
    from conformance.case.plan.catalogue import read_at_opsets, read_file, read_suite, refuse_without_torch, selection
    from conformance.case.plan.settings import Settings
    from conformance.models.bundle.bundle_files import CELLS
    from conformance.models.bundle.bundle_layout import BundleWriter
    from conformance.models.bundle.entry import Entry
    from conformance.process.errors import CaseFileError, UserError
    from conformance.process.worker.isolation import Death
    from conformance.process.worker.warm import new_worker
    from conformance.results.records.environment import environment

    options = {"runtime": given.runtime, **{name: getattr(given, name) for name in KEYS}}
    wanted = selection(options)
    read_one = read_file if wanted.opsets is None else partial(read_at_opsets, wanted.opsets)
    cells, files = read_suite(given.cases or [Path("cases")], wanted, read_one)
    broken = [error for error in files.values() if isinstance(error, CaseFileError)]
    if broken:
        raise UserError("\n".join(map(str, broken)))
    chosen = [cell for cell in cells if cell.check == "accuracy" and (given.words or "") in cell.id]
    if not chosen:
        raise UserError(f"no accuracy cell of {given.runtime} is selected; does a case name it under runtimes:?")
    refuse_without_torch(chosen)
    writer = BundleWriter(given.bundle, environment(sys.argv[1:]))
    settings = Settings(store=given.store / "models")
    left = []
    with new_worker(dynamo=any(cell.exporter == "dynamo" for cell in chosen)) as worker:
        for number, cell in enumerate(chosen, 1):
            if number > 1 and cell.case != chosen[number - 2].case:
                worker.replace()  # what a case changes in its process is not to decide on another
            answer: Any = worker.call(
                _pack, cell, settings, given.bundle / CELLS, given.examples, timeout=given.cell_timeout
            )
            if isinstance(answer, Entry):
                writer.add(answer)
                tell(f"[{number}/{len(chosen)}] {answer.name}: {len(answer.sets)} examples")
                continue
            reason = answer.how if isinstance(answer, Death) else f"stage {answer.stage}: {answer.reason}"
            left.append(cell)
            tell(f"[{number}/{len(chosen)}] {cell.label}: not packed, {one_line(reason)}")
    tell(f"packed {len(chosen) - len(left)} of {len(chosen)} cells in {given.bundle}")
    return 1 if any(not _declared(cell) for cell in left) else 0


def _declared(cell: Cell) -> bool:
    """Return whether the case says that there is no model, or none on this host."""
    from conformance.case.plan.expected import declared, on_host
    from conformance.results.records.processor import instructions

    before = ("declare", "export", "check", "convert")
    failing = (entry.stage for entry in on_host(declared(cell), instructions()))
    return bool(cell.case.says.needs) or any(stage in before for stage in failing)


def _pack(progress: Any, *given: Any) -> object:
    # Imported in the worker, so that the command itself never imports torch.
    from conformance.cells.pack_cells import pack_cell

    return pack_cell(progress, *given)
