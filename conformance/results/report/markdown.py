"""A Markdown summary of a run, for the page of a CI job: about one screen, whatever the run was like.

Text of a record stands in code spans only: in these GitHub, GitLab and other readers of GitHub Flavored Markdown see
no HTML, no links, no mentions and no references to issues. In a table ``|`` has to be escaped even there.
https://github.github.com/gfm/#code-spans https://github.github.com/gfm/#example-200
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from conformance.process.errors import UserError
from conformance.results.baseline.change import Change, blocking
from conformance.results.records import finding_block, matrix, text
from conformance.results.records.findings import Finding, findings
from conformance.results.records.record import Record
from conformance.results.records.record_types import Environment, Header
from conformance.results.records.sanitize import fenced, literal, one_line, shorten
from conformance.results.report.record_rows import WORDS, by_reason, failures, finished, place

LIMIT_BYTES = 1 << 20
"""GitHub shows no step summary above 1 MiB.
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands#step-isolation-and-limits"""

_WIDE = 160
"""Characters of a field that are shown; longer fields would make a table that nobody reads."""


def summary(
    header: Header,
    rows: Sequence[Record],
    changes: Sequence[Change] = (),
    most: int = 30,
    limit_bytes: int = LIMIT_BYTES,
) -> str:
    """Counts, failures with fault and place, changes since a baseline; folded what failed as declared or was skipped.

    At most ``most`` rows in each table, and fewer where the text would have more than ``limit_bytes`` in UTF-8.
    Raises UserError where not even the counts fit.
    """
    while True:
        text = "\n".join(_write_lines(header, rows, changes, most))
        if len(text.encode("utf-8")) <= limit_bytes:
            return text
        if most <= 0:
            least = len(text.encode("utf-8"))
            raise UserError(f"a summary has {least} bytes at least, and {limit_bytes} are allowed")
        most //= 2


def code(value: object, most: int = _WIDE) -> str:
    """A code span of one line that may stand in a table; empty where there is nothing to say."""
    text = one_line(value, most)
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def _write_lines(header: Header, rows: Sequence[Record], changes: Sequence[Change], most: int) -> Iterator[str]:
    red = failures(rows)
    yield from headline(header, rows, changes)
    yield from _findings(red, header.get("environment"), most)
    yield from _failures(red, most)
    yield from _changes(changes, most)
    for status in ("xfailed", "skipped"):
        yield from _reasons(WORDS[status], [row for row in rows if row.status == status], most)
    yield ""


def headline(header: Header, rows: Sequence[Record], changes: Sequence[Change]) -> Iterator[str]:
    """Yield how a run ended, in a heading."""
    yield f"### {_mark(header, rows, changes)} Conformance: {matrix.counts(rows)}"
    if not finished(header):
        yield ""
        yield "**The run did not finish:** it was killed, or still runs. Cells that are not here were not reached."


def _mark(header: Header, rows: Sequence[Record], changes: Sequence[Change]) -> str:
    """A cross where the job has to fail (also for a regression of a cell that is gone, and for a run that did not
    finish), a circle where nothing was verified, else a tick."""
    if failures(rows) or blocking(changes) or not finished(header):
        return "❌"
    return "✅" if any(row.status != "skipped" for row in rows) else "⚪"


def _findings(red: Sequence[Record], environment: Environment | None, most: int) -> Iterator[str]:
    found = findings(red, environment)
    if not found or not most:
        return
    yield ""
    yield f"**{text.found(len(found), len(red))}**"
    yield ""
    for number, finding in enumerate(found[:most], 1):
        yield from of_finding(finding, f"{number} of {len(found)}")
    if len(found) > most:
        yield f"- and {len(found) - most} more findings"


def of_finding(finding: Finding, title: str) -> Iterator[str]:
    """Yield the block of a finding under a title."""
    told = finding_block.describe(finding)
    yield f"**{title}:** {code(told.who, 2 * _WIDE)}"
    yield ""
    yield from fenced("\n".join([one_line(told.what), "", *finding_block.markdown(told)]))
    yield ""


def _failures(red: Sequence[Record], most: int) -> Iterator[str]:
    if not red or not most:
        return
    yield ""
    yield f"<details><summary>Every red cell, {len(red)}</summary>"
    yield ""
    yield "| cell | at fault | stage | why | case |"
    yield "|---|---|---|---|---|"
    for row in red[:most]:
        why = row.reason or row.error
        cells = [code(row.id), code(text.at_fault(row)), code(row.stage), code(why), code(place(row))]
        yield f"| {' | '.join(cells)} |"
    if len(red) > most:
        yield ""
        yield f"and {len(red) - most} more failed."
    commands = [str(row.command) for row in red[:most] if row.command]
    if commands:
        yield ""
        yield from fenced("\n".join(literal(command, 2000) for command in commands))
    yield ""
    yield "</details>"


def _changes(changes: Sequence[Change], most: int) -> Iterator[str]:
    if not changes:
        return
    blocks = blocking(changes)
    accepted = [change for change in changes if change.regression and change.accepted]
    others = [change for change in changes if not change.regression]
    yield ""
    yield (
        f"**Since the baseline:** {len(blocks)} regressions, {len(accepted)} accepted regressions, "
        f"{len(others)} other changes."
    )
    yield from change_table(blocks, most)
    if accepted + others and most:
        yield ""
        yield f"<details><summary>{len(accepted + others)} changes that block nothing</summary>"
        yield from change_table(accepted + others, most)
        yield ""
        yield "</details>"


def change_table(changes: Sequence[Change], most: int) -> Iterator[str]:
    """Yield a table of changes, at most so many."""
    if not changes or not most:
        return
    yield ""
    yield "| change | cell | what |"
    yield "|---|---|---|"
    for change in changes[:most]:
        yield f"| {code(change.kind)} | {code(change.id)} | {code(change.text)} |"
    if len(changes) > most:
        yield ""
        yield f"and {len(changes) - most} more."


def _reasons(words: str, rows: Sequence[Record], most: int) -> Iterator[str]:
    if not rows:
        return
    reasons = by_reason(rows)
    yield ""
    yield f"<details><summary>{len(rows)} {words}</summary>"
    yield ""
    told = [f"- {len(same)} × {code(reason)}" for reason, same in reasons.items()]
    yield from shorten(told, most, "- and {} more reasons")
    yield ""
    yield "</details>"
