"""``conformance findings``: the causes that the red cells of a run come to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.front.commands import add_store, width
from conformance.results.records.sanitize import tell

if TYPE_CHECKING:
    from conformance.results.records.findings import Finding


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", type=Path, nargs="*", default=[Path("reports/latest")], metavar="RUN",
        help="runs, oldest first: the findings are those of the last, since the earliest of the others that has them "
        "(default: reports/latest)",
    )  # fmt: skip
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="a baseline, as the oldest of the runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the findings to a file")
    parser.add_argument(
        "--expect", action="append", default=[], metavar="ID",
        help="write entries of `fails` for this finding (repeatable; `all` for all) into its case files, which are "
        "refused until their `because` is filled in; what no longer happens is taken out, and what fails otherwise "
        "changed",
    )  # fmt: skip
    parser.add_argument(
        "--fix", action="append", default=[], metavar="ID",
        help="look for changes to the case with which the first cell of this finding passes (repeatable; `all` for "
        "all); each is run on all draws of the cell before it is told",
    )  # fmt: skip
    add_store(parser, "exported models, for --fix")


def run(given: argparse.Namespace) -> int:
    """0, or 1 where there are findings."""
    from conformance.process.errors import UserError
    from conformance.results.baseline.baseline_file import load
    from conformance.results.records import finding_block, text
    from conformance.results.records.findings import findings, since
    from conformance.results.report.command import names

    places = [*([given.baseline] if given.baseline else []), *given.runs]
    loaded = [load(place) for place in places]
    runs = [
        (name, {record.id: record for record in records})
        for name, (_, records) in zip(names(places), loaded, strict=True)
    ]
    *earlier, (_, last) = runs
    found = findings(last.values(), loaded[-1][0].get("environment"))
    told = [finding.as_dict(since(finding, earlier)) for finding in found]
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    wanted = {*given.expect, *given.fix}
    unknown = wanted - {"all"} - {finding.id for finding in found}
    if unknown:
        raise UserError(f"no finding of {places[-1]} is {', '.join(sorted(unknown))}; list them without --expect")
    for number, finding in enumerate(found, 1):
        if not wanted or wanted & {"all", finding.id}:
            block = finding_block.describe(finding, since(finding, earlier))
            for line in (*finding_block.lines(block, number, len(found), width()), ""):
                tell(line)
    if given.expect:
        from conformance.front.commands.findings.expect import expect

        for line in expect(_choose(found, given.expect), last):
            tell(line)
    if given.fix:
        from conformance.front.commands.findings.fix import fix
        from conformance.front.commands.screen import Screen

        screen = Screen()
        for line in fix(_choose(found, given.fix), last, given.store / "models", screen.doing):
            screen.line(line)
    if wanted:
        return 0
    tell(text.found(len(found), sum(len(finding.cells) for finding in found)) if found else "no cell is red")
    return 1 if found else 0


def _choose(found: Sequence[Finding], ids: Sequence[str]) -> list[Finding]:
    return [finding for finding in found if {*ids} & {"all", finding.id}]
