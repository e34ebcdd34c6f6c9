"""``conformance diff``: what is better and worse in one run than in another."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from conformance import option_types
from conformance.records.sanitize import tell


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, help="a run's folder, or a committed baseline")
    parser.add_argument("after", type=Path, help="a run's folder, or a committed baseline")
    limits(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the changes to a file")


def limits(parser: argparse.ArgumentParser) -> None:
    """Adds the factors from which on an error or a time counts as worse."""
    parser.add_argument(
        "--accuracy-factor",
        type=option_types.factor,
        default=2.0,
        metavar="X",
        help="an error is worse where it grew by this factor (default: %(default)s)",
    )
    parser.add_argument(
        "--slower-factor",
        type=option_types.factor,
        default=1.25,
        metavar="X",
        help="a time is worse where it grew by this factor (default: %(default)s)",
    )


def run(given: argparse.Namespace) -> int:
    """0, or 1 where something got worse and is not accepted."""
    from conformance.baseline import compare_runs, environment_changes, gate, lines, load, selection_of

    before, after = load(given.before), load(given.after)
    selected, note = selection_of(after[0])
    changes = compare_runs(
        before, after, selected=selected, accuracy_factor=given.accuracy_factor, slower_factor=given.slower_factor
    )
    for line in (*environment_changes(before, after), *([note] if note else [])):
        tell(line)
    for line in lines(changes, shutil.get_terminal_size((120, 40)).columns):
        tell(line)
    if given.json is not None:
        given.json.write_text(
            json.dumps([change.as_dict() for change in changes], indent=1, default=str) + "\n", "utf-8"
        )
    return 1 if gate(changes) else 0
