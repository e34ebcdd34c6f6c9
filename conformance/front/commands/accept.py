"""``conformance accept``: changes a baseline to agree with a run, in exactly the cells that are named."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from conformance.front.commands.diff import limits
from conformance.results.records.sanitize import tell


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("after", type=Path, metavar="RUN", help="the run whose changes are accepted")
    parser.add_argument("patterns", nargs="+", metavar="PATTERN", help="ids of cells, with * and ?")
    parser.add_argument(
        "--baseline",
        type=Path,
        required=True,
        metavar="FILE",
        help="the baseline; made where the file does not exist",
    )
    parser.add_argument("--because", default="", metavar="TEXT", help="why; needed for what got worse")
    parser.add_argument("--kind", action="append", metavar="KIND", help="only changes of this kind; repeatable")
    parser.add_argument("--environment", action="store_true", help="also note the versions and processor of the run")
    limits(parser)


def run(given: argparse.Namespace) -> int:
    from conformance.results.baseline.acceptance import accept
    from conformance.results.baseline.baseline_file import load
    from conformance.results.baseline.change import Limits
    from conformance.results.baseline.selection import selection_of
    from conformance.results.baseline.summary import lines

    after = load(given.after)
    selected, note = selection_of(after[0])
    factors = Limits(accuracy_factor=given.accuracy_factor, slower_factor=given.slower_factor)
    changes = accept(
        given.baseline, after, given.patterns, given.kind, given.because, selected=selected, limits=factors,
        environment=given.environment,
    )  # fmt: skip
    if note is not None:
        tell(note)
    for line in lines(changes, shutil.get_terminal_size((120, 40)).columns):
        tell(line)
    tell(f"wrote {given.baseline}")
    return 0
