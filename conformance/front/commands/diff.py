"""``conformance diff``: what is better and worse in one run than in another."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from conformance.front import option_types
from conformance.front.commands import add_option
from conformance.results.records.sanitize import tell


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, help="a run's folder, or a committed baseline")
    parser.add_argument("after", type=Path, help="a run's folder, or a committed baseline")
    limits(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the changes to a file")


def limits(parser: argparse.ArgumentParser) -> None:
    """Add the factors from which on an error or a time counts as worse."""
    for name, default, what in (("accuracy", 2.0, "an error"), ("slower", 1.25, "a time")):
        told = f"{what} is worse where it grew by this factor"
        add_option(parser, f"--{name}-factor", default, told, type=option_types.factor, metavar="X")


def run(given: argparse.Namespace) -> int:
    """0, or 1 where something got worse and is not accepted."""
    from conformance.results.baseline.baseline_file import load
    from conformance.results.baseline.change import Limits, blocking
    from conformance.results.baseline.change_causes import environment_changes
    from conformance.results.baseline.run_comparison import compare_runs
    from conformance.results.baseline.selection import selection_of
    from conformance.results.baseline.summary import lines

    before, after = load(given.before), load(given.after)
    selected, note = selection_of(after[0])
    limits = Limits(accuracy_factor=given.accuracy_factor, slower_factor=given.slower_factor)
    changes = compare_runs(before, after, selected=selected, limits=limits)
    for line in (*environment_changes(before, after), *([note] if note else [])):
        tell(line)
    for line in lines(changes, shutil.get_terminal_size((120, 40)).columns):
        tell(line)
    if given.json is not None:
        given.json.write_text(
            json.dumps([change.as_dict() for change in changes], indent=1, default=str) + "\n", "utf-8"
        )
    return 1 if blocking(changes) else 0
