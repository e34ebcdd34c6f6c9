"""``conformance watch``: runs the cells whose files change, for as long as someone works on them."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from conformance import option_types
from conformance.commands import add_option, selecting
from conformance.disk import LIMIT

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
    from conformance.checks.runner import Runner
    from conformance.commands.screen import Screen
    from conformance.commands.watch.watch_loop import Loop
    from conformance.commands.watch.watched_cells import Catalogue
    from conformance.disk.stores import bytes_of, make
    from conformance.errors import UserError
    from conformance.plan.catalogue import refuse_without_torch, selection
    from conformance.plan.keyword_selection import Words
    from conformance.plan.rerun_command import command
    from conformance.plan.settings import Settings
    from conformance.worker.warm import new_worker

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
            return Loop(catalogue, plan, runner, Screen(), home, limit, command_of).run()
    except KeyboardInterrupt:  # before the first cell
        return 0
