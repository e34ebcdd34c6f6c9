"""``conformance versions``: what was shipped under other versions of a runtime, and the suite under other torches."""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.front import option_types
from conformance.front.commands import add_option, add_store
from conformance.results.records.sanitize import tell

if TYPE_CHECKING:
    from conformance.extras.versions.environments import Environment, Wanted

    Make = Callable[[Wanted], Environment]
    Ask = Callable[[Environment, str], Path]
    """The folder of the run that an environment makes of the cells whose ids have these words."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle", type=Path, nargs="?",
        help="with --runtime: what conformance pack wrote, or what a failing cell left",
    )  # fmt: skip
    of = parser.add_mutually_exclusive_group(required=True)
    of.add_argument(
        "--runtime", metavar="NAME==V,...",
        help="replay the bundle under these versions of a runtime, in order: onnxruntime==1.27.*,1.30.0,latest",
    )  # fmt: skip
    of.add_argument(
        "--exporter", metavar="torch==V,...",
        help="run the suite under these versions of torch, in order, each in an environment of 5 GB: "
        "torch==2.13.*,latest",
    )  # fmt: skip
    parser.add_argument("-k", dest="words", default="", metavar="TEXT", help="only cells whose id contains this")
    parser.add_argument(
        "--bisect", metavar="CELL",
        help="find the first release, between the first and the last of the versions, in which this cell is not what "
        "it was",
    )  # fmt: skip
    parser.add_argument(
        "--cases", action="append", type=Path, metavar="PATH",
        help="with --exporter: case files, as of pytest; repeatable",
    )  # fmt: skip
    for name, what in (("precision", "keep only these"), ("examples", "drawn shapes for each cell")):
        parser.add_argument(f"--{name}", metavar="A,B" if name == "precision" else "N",
                            help=f"with --exporter: {what}, as of pytest")  # fmt: skip
    parser.add_argument("-n", dest="processes", metavar="N", help="with --exporter: processes of pytest-xdist")
    add_option(
        parser, "--report", Path("reports/versions"), "a folder for each version's run", type=Path, metavar="DIR"
    )
    add_store(parser, "where environments are kept")
    parser.add_argument(
        "--cell-timeout", type=option_types.seconds, metavar="S",
        help="seconds (default: 600 with --runtime, that of pytest with --exporter)",
    )  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """0 where every cell came out alike and as declared in all versions, 1 where not, or where the release at which a
    cell changed was found."""
    from conformance.extras.versions.environments import bisected
    from conformance.process.errors import UserError

    wanted, make, ask = _of_torch(given) if given.exporter else _of_a_runtime(given)
    if given.bisect is None:
        return _compared(wanted, make, ask, given)
    if len(wanted) < 2:
        named = given.exporter or given.runtime
        raise UserError(f"--bisect: {named} names one version; name the first and the last")
    tell(bisected(wanted[0], wanted[-1], given.bisect, lambda version: ask(make(version), given.bisect), tell))
    return 1


def _of_a_runtime(given: argparse.Namespace) -> tuple[list[Wanted], Make, Ask]:
    from conformance.extras.versions import runtimes
    from conformance.extras.versions.environments import wanted_of
    from conformance.models.bundle.bundle_layout import Bundle
    from conformance.process.errors import UserError

    for option in ("cases", "precision", "examples", "processes"):
        if getattr(given, option) is not None:
            name = "-n" if option == "processes" else f"--{option}"
            raise UserError(f"{name} is for --exporter; with --runtime the bundle says what is run")
    if given.bundle is None:
        raise UserError(f"--runtime {given.runtime}: name the bundle to replay; conformance pack makes one")
    wanted = wanted_of("--runtime", given.runtime, runtimes.PACKAGES)
    bundle = Bundle(given.bundle)  # raises UserError for what is none

    def ask(environment: Environment, words: str) -> Path:
        return runtimes.replayed(environment, bundle.folder, words, given.report, given.cell_timeout or 600.0)

    return wanted, lambda version: runtimes.made(version, given.store / "environments"), ask


def _of_torch(given: argparse.Namespace) -> tuple[list[Wanted], Make, Ask]:
    from conformance.extras.versions import torch_releases
    from conformance.extras.versions.environments import wanted_of
    from conformance.process.errors import UserError

    if given.bundle is not None:
        raise UserError(f"{given.bundle}: with --exporter the suite is run, and no bundle; --cases names case files")
    wanted = wanted_of("--exporter", given.exporter, torch_releases.PACKAGES)
    options = {
        "--precision": given.precision, "--examples": given.examples, "-n": given.processes,
        "--cell-timeout": given.cell_timeout,
    }  # fmt: skip
    words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    words += [word for path in given.cases or () for word in ("--cases", str(path))]
    words += ["--store", str(given.store)]

    def ask(environment: Environment, cells: str) -> Path:
        return torch_releases.suite_run(environment, given.report, [*words, *(["-k", cells] if cells else [])], tell)

    return wanted, lambda version: torch_releases.made(version, given.store / "environments", tell), ask


def _compared(wanted: list[Wanted], make: Make, ask: Ask, given: argparse.Namespace) -> int:
    from conformance.results.baseline.baseline_file import load
    from conformance.results.baseline.change import Limits, blocking
    from conformance.results.baseline.run_comparison import compare_runs
    from conformance.results.baseline.summary import lines
    from conformance.results.records import matrix

    runs = []
    for version in wanted:
        environment = make(version)
        place = ask(environment, given.words)
        runs.append((environment.name, load(place)))
        tell(f"{environment.name}: {matrix.counts(runs[-1][1][1])}")
    width = shutil.get_terminal_size((120, 40)).columns
    worse = any(record.status in ("failed", "xpassed") for _, (_, records) in runs for record in records)
    for (before, old), (after, new) in itertools.pairwise(runs):
        changes = compare_runs(
            old, new, limits=Limits(slower_factor=math.inf)
        )  # durations of one run each say little
        tell(f"from {before} to {after}:")
        for line in lines(changes, width):
            tell(f"  {line}")
        worse = worse or bool(blocking(changes))
    tell(f"the runs are in {given.report}")
    return 1 if worse else 0
