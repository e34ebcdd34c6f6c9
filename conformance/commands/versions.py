"""``conformance versions``: what was shipped, under other versions of a runtime."""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.records.clean import tell

if TYPE_CHECKING:
    from conformance.bundle.environments import Environment


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="what conformance pack wrote, or what a failing cell left")
    parser.add_argument(
        "--runtime", required=True, metavar="NAME==V,...",
        help="the runtime and its versions, in order: onnxruntime==1.27.*,1.30.0,latest",
    )  # fmt: skip
    parser.add_argument("-k", dest="words", default="", metavar="TEXT", help="only cells whose id contains this")
    parser.add_argument(
        "--bisect", metavar="CELL",
        help="find the first release, between the first and the last of the versions, in which this cell is not what "
        "it was",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=Path, default=Path("reports/versions"), metavar="DIR",
        help="a folder for each version's run (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--store", type=Path, default=Path(".conformance"), help="where environments are kept (default: %(default)s)"
    )
    parser.add_argument(
        "--cell-timeout", type=float, default=600.0, metavar="S", help="seconds (default: %(default)s)"
    )


def run(given: argparse.Namespace) -> int:
    """0 where every cell came out alike and as declared in all versions, 1 where not, or where the release at which a
    cell changed was found."""
    from conformance.baseline import compare_runs, gate, lines, load
    from conformance.bundle.environments import made, wanted_of
    from conformance.bundle.layout import Bundle
    from conformance.bundle.versions import bisected, replayed
    from conformance.errors import UserError
    from conformance.records import matrix

    wanted = wanted_of(given.runtime)
    bundle = Bundle(given.bundle)  # raises UserError for what is none
    home = given.store / "environments"

    def ask(environment: Environment, words: str) -> Path:
        return replayed(environment, bundle.folder, words, given.report, given.cell_timeout)

    if given.bisect is not None:
        if len(wanted) < 2:
            raise UserError(f"--bisect: --runtime {given.runtime} names one version; name the first and the last")
        found = bisected(wanted[0], wanted[-1], given.bisect, lambda one: ask(made(one, home), given.bisect), tell)
        tell(found)
        return 1
    runs = []
    for one in wanted:
        environment = made(one, home)
        place = ask(environment, given.words)
        runs.append((environment.name, load(place)))
        tell(f"{environment.name}: {matrix.counts(runs[-1][1][1])}")
    width = shutil.get_terminal_size((120, 40)).columns
    worse = any(record["status"] in ("failed", "xpassed") for _, (_, records) in runs for record in records)
    for (before, old), (after, new) in itertools.pairwise(runs):
        changes = compare_runs(old, new, slower_factor=math.inf)  # durations of one run each say little
        tell(f"from {before} to {after}:")
        for line in lines(changes, width):
            tell(f"  {line}")
        worse = worse or bool(gate(changes))
    tell(f"the runs are in {given.report}")
    return 1 if worse else 0
