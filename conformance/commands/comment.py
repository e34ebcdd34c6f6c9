"""``conformance comment``: a comment on a pull request that says what changed against its base branch."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from conformance.records.sanitize import tell


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, nargs="?", default=Path("reports/latest"), metavar="RUN",
        help="the run (default: %(default)s); all else is read from the variables of GitHub Actions or GitLab CI",
    )  # fmt: skip
    parser.add_argument("--baseline", type=Path, metavar="RUN", help="the baseline of the base branch, if it has one")
    parser.add_argument(
        "--name", metavar="NAME", help="what tells this comment from those of other jobs (default: the job's name)"
    )
    parser.add_argument("--page", default="", metavar="URL", help="where the whole report can be found")


def run(given: argparse.Namespace) -> int:
    """0, also where no comment could be written: then it stands in the job's summary, with the reason."""
    body = describe(given.run, given.baseline, name_of(given), given.page)
    why = write(body)
    add_to_summary(f"{body}\n{why}\n" if why else "")
    return 0


def name_of(given: argparse.Namespace) -> str:
    """Return what tells the comment of this job from those of others."""
    return given.name or os.environ.get("GITHUB_JOB") or os.environ.get("CI_JOB_NAME") or "conformance"


def describe(run: Path, baseline: Path | None, name: str, page: str) -> str:
    """Return the comment about a run."""
    from conformance.baseline import load
    from conformance.commands.report import changes_since
    from conformance.report.comment import comment

    base = None if baseline is None else load(baseline)[1]
    return comment(name, load(run), base, changes_since(run, baseline), page)


def write(body: str) -> str | None:
    """Write a comment, and return None; or tell and return why there is none."""
    from conformance.report import code_host

    try:
        code_host.write(code_host.thread(os.environ), body)
    except code_host.Unwritten as why:
        tell(f"conformance comment: {why}")
        return str(why)
    return None


def add_to_summary(text: str) -> None:
    """Add to the page of a job of GitHub Actions; others have none."""
    if text and os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
            summary.write(text)
