"""``conformance merge``: the runs of several jobs as one."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.results.records.sanitize import tell


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("runs", type=Path, nargs="+", metavar="SHARD", help="folders of runs")
    parser.add_argument("--partial", action="store_true", help="merge though a job did not finish, or is missing")
    parser.add_argument(
        "--allow-mixed", action="store_true", help="merge though jobs had different versions of packages"
    )


def run(given: argparse.Namespace) -> int:
    from conformance.results.baseline.merging import merge
    from conformance.results.records.matrix import counts

    _, records = merge(given.runs, given.out, partial=given.partial, allow_mixed=given.allow_mixed)
    tell(counts(records))
    return 0
