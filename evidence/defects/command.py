"""``python -m evidence defects``: plants defects in the package and says which test finds each, as it is known.

With all of them, and the tests of this repository, it writes ``docs/evidence/defects.md``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import ROOT, table
from evidence.defects.page import rows_of, write
from evidence.defects.run import MOST, Options, Outcome, remember, run


def main(arguments: Sequence[str]) -> int:
    """0 where every defect was found, else 1."""
    parser = argparse.ArgumentParser(prog="python -m evidence defects", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these defects")
    parser.add_argument(
        "--tests", default=str(ROOT), metavar="TREE",
        help="another clone, or a git revision, whose tests are run on the package that it has",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="defects at a time (default: %(default)s)")
    parser.add_argument(
        "--most", type=float, default=MOST, metavar="SECONDS", help="of tests for a defect (default: %(default)s)"
    )
    parser.add_argument("--reach", type=Path, metavar="DIR", help="which test executes which line, measured before")
    parser.add_argument("--again", action="store_true", help="try again what was not found")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(given.tests)
        if not tree.is_dir():
            tree = Path(folder) / "tree"
            subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(tree)], check=True)
            subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", given.tests], check=True)
        options = Options(tree.resolve(), given.only, given.jobs, given.most, given.reach, given.again)
        known: dict[str, Outcome] = {}
        for outcome in run(options):
            known[outcome.id] = outcome
            by = f" by {outcome.by} ({outcome.tier}, {outcome.how}, {outcome.seconds:g} s)" if outcome.by else ""
            print(f"{outcome.status}: {outcome.id}{by}", flush=True)
    outcomes = list(known.values())
    print(table(rows_of(outcomes)))
    if options.tree == ROOT:
        remember(outcomes)
        if not given.only:
            write(outcomes)
    return 0 if all(outcome.status == "found" for outcome in outcomes) else 1
