"""``conformance report``: a run as a page, a summary for CI, annotations, or data."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.results.records.sanitize import tell

if TYPE_CHECKING:
    from conformance.results.baseline.change import Change


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", type=Path, nargs="*", default=[Path("reports/latest")], metavar="RUN",
        help="runs, oldest first: the last is reported, the others are its history (default: reports/latest)",
    )  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="one page that opens from disk")
    parser.add_argument(
        "--markdown", nargs="?", type=Path, const=Path("-"), metavar="FILE", help="a summary; printed without a FILE"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report as data")
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="the findings for code hosts and editors")
    parser.add_argument("--github", action="store_true", help="print annotations for GitHub's pages")
    parser.add_argument("--baseline", type=Path, metavar="RUN", help="show what changed since that run or baseline")


def run(given: argparse.Namespace) -> int:
    """Write each form that is asked for; the page beside the run where none is."""
    from conformance.results.report.command import report

    html: Path | None = given.html
    if not any((html, given.markdown, given.json, given.sarif, given.github)):
        last = given.runs[-1]
        html = (last if last.is_dir() else last.parent) / "report.html"
    prints = given.markdown == Path("-")
    changes = changes_since(given.runs[-1], given.baseline)
    markdown = None if prints else given.markdown
    if any((html, markdown, given.json, given.sarif, given.github)):
        report(
            given.runs, html=html, markdown=markdown, json_=given.json, github=given.github, sarif=given.sarif,
            changes=changes,
        )  # fmt: skip
    if prints:
        from conformance.results.baseline.baseline_file import load
        from conformance.results.report.markdown import summary

        sys.stdout.write(summary(*load(given.runs[-1]), changes))
    if html is not None:
        tell(f"wrote {html}")
    return 0


def changes_since(run: Path, baseline: Path | None) -> list[Change]:
    """Compare with a baseline; without one, read what ``--baseline`` found."""
    if baseline is None:
        from conformance.results.baseline.change import read_changes

        return read_changes(run)
    from conformance.results.baseline.baseline_file import load
    from conformance.results.baseline.run_comparison import compare_runs
    from conformance.results.baseline.selection import selection_of

    after = load(run)
    selected, _ = selection_of(after[0])
    return compare_runs(load(baseline), after, selected=selected)
