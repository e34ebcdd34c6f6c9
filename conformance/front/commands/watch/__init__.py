"""``conformance watch``: runs the cells whose files change, for as long as someone works on them."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from conformance.front import option_types
from conformance.front.commands import add_option, selecting
from conformance.process.disk import LIMIT

STORE = Path(".conformance")
SELECTION = ("exporter", "opset", "runtime", "precision")


def arguments(parser: argparse.ArgumentParser) -> None:
    selecting(parser, SELECTION)
    parser.add_argument(
        "--examples",
        type=option_types.count(0),
        metavar="N",
        help="drawn shapes for each cell, besides the boundary ones",
    )
    add_option(parser, "--store", STORE, "exported models and failing draws", type=Path, metavar="DIR")
    limit = "what was not used for longest is dropped until the store is no larger"
    add_option(parser, "--store-limit", LIMIT, limit, metavar="SIZE")
    add_option(
        parser, "--cell-timeout", 300.0, "a cell that takes longer has failed", type=option_types.seconds, metavar="S"
    )


def run(given: argparse.Namespace) -> int:
    """0, or 1 where a cell fails by its last verdict; Ctrl-C ends it."""
    from conformance.case.plan.catalogue import refuse_without_torch, selection
    from conformance.case.plan.cell import command
    from conformance.case.plan.keyword_selection import Words
    from conformance.case.plan.settings import Settings
    from conformance.cells.runner import Runner
    from conformance.front.commands.screen import Screen
    from conformance.front.commands.watch.watch_loop import WatchLoop
    from conformance.front.commands.watch.watched_cells import Catalogue
    from conformance.process.disk.stores import bytes_of, make
    from conformance.process.errors import UserError
    from conformance.process.worker.warm import new_worker

    try:
        home, limit = given.store, bytes_of(given.store_limit)
    except UserError as error:
        raise UserError(f"--store-limit: {error}") from None
    chosen = selection({name: getattr(given, name) for name in SELECTION})
    catalogue = Catalogue(given.paths or [Path("cases")], chosen, Words(given.words), given.examples)
    settings = Settings(
        store=home / "models",
        examples=given.examples,
        failures=home / "failures",
        answers=home / "answers",
        outcomes=home / "outcomes",
        smallest=False,  # which takes far longer than an edit; the command that is shown looks for it
    )
    options = {"examples": given.examples, "store": None if home == STORE else home}
    command_of = partial(command, folder=Path.cwd(), cases=given.paths, options=options)
    make(home)
    try:
        plan = catalogue.read()
        refuse_without_torch(plan.cells)
        with new_worker(dynamo=any(cell.exporter == "dynamo" for cell in plan.cells)) as worker:
            runner = Runner(settings, given.cell_timeout, worker)
            return WatchLoop(catalogue, plan, runner, Screen(), home, limit, command_of).run()
    except KeyboardInterrupt:  # before the first cell
        return 0
