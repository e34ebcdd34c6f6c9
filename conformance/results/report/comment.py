"""The comment on a pull request: what changed against the base branch, by finding.

Text of a run stands in code alone, as in ``markdown``: nobody is mentioned, and no link, image or HTML comes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from conformance.results.baseline.change import Change, Run, blocking
from conformance.results.records import finding_block
from conformance.results.records.findings import RED, Finding, findings, since
from conformance.results.records.record import Record
from conformance.results.report.markdown import change_table, code, headline, of_finding
from conformance.results.report.record_rows import failures

LIMIT = 65_536
"""Characters of a comment on GitHub; GitLab takes more."""
_MOST = 10
"""Lines of each list; the page has all."""


class Against(NamedTuple):
    """Findings against those of the base branch."""

    new: list[Finding]
    known: list[Finding]
    gone: list[Finding]


def marker(name: str) -> str:
    """Return the first line of the comments of one job, which nobody sees."""
    return f"<!-- conformance: {quote(name, safe='', errors='replace')} -->"


def comment(
    name: str,
    run: Run,
    base: Sequence[Record] | None,
    changes: Sequence[Change] = (),
    page: str = "",
    limit: int = LIMIT,
) -> str:
    """Return the comment of the job ``name`` about a run, in at most ``limit`` characters.

    ``base`` are the records of the base branch, None where it has none; ``changes`` are those since it; ``page`` is
    the address of the whole report. New findings that there is no room for are counted.
    """
    header, rows = run
    against = _compare(run, base)
    head = [marker(name), *headline(header, rows, changes), "", _sum_up(against, base is not None), ""]
    blocks = [[*of_finding(one, "new" if base is not None else "red")] for one in against.new]
    tail = [
        *_write_rest(against, rows, changes),
        *([f"[The whole report, and the folders that are named here]({page})"] if page else []),
    ]
    for shown in range(len(blocks), -1, -1):
        left = len(blocks) - shown
        more = [f"and {left} more findings, which the whole report shows", ""] if left else []
        lines = [*head, *(line for block in blocks[:shown] for line in block), *more, *tail, ""]
        if len("\n".join(lines)) <= limit:
            break
    return "\n".join(lines)


def _compare(run: Run, base: Sequence[Record] | None) -> Against:
    header, rows = run
    found, now = findings(failures(rows), header.get("environment")), {row.id: row.status for row in rows}
    earlier = [] if base is None else [("the base branch", {record.id: record for record in base})]
    known = [finding for finding in found if since(finding, earlier) is not None]
    gone = [finding for finding in findings(base or ()) if _is_gone([now.get(cell.id) for cell in finding.cells])]
    return Against([finding for finding in found if finding not in known], known, gone)


def _is_gone(statuses: Sequence[str | None]) -> bool:
    """Return whether cells of the base branch ran here, and none is red: one that did not run shows nothing."""
    return not {*RED} & {*statuses} and any(status not in (None, "skipped") for status in statuses)


def _sum_up(against: Against, has_base: bool) -> str:
    if not has_base:
        return "The base branch has no baseline, so nothing says which findings are new."
    counts = {"new": against.new, "still there": against.known, "gone": against.gone}
    told = ", ".join(f"{len(found)} {word}" for word, found in counts.items() if found)
    return f"**Findings against the base branch:** {told or 'none'}"


def _write_rest(against: Against, rows: Sequence[Record], changes: Sequence[Change]) -> Iterator[str]:
    red = {row.id for row in failures(rows)}
    worse = [change for change in blocking(changes) if change.id not in red]
    if worse:
        yield "**Worse in another way:**"
        yield from change_table(worse, _MOST)
        yield ""
    if against.gone:
        yield "**Gone:**"
        yield ""
        yield from _listed([f"- {_cells(finding)}" for finding in against.gone])
    if against.known:
        yield "**Still there:**"
        yield ""
        yield from _listed([f"- {_line(finding)}" for finding in against.known])


def _listed(lines: Sequence[str]) -> list[str]:
    left = len(lines) - _MOST
    return [*lines[:_MOST], *([f"- and {left} more"] if left > 0 else []), ""]


def _line(finding: Finding) -> str:
    block = finding_block.describe(finding)
    return code(f"{block.who}: {block.what}", 200)


def _cells(finding: Finding) -> str:
    more = len(finding.cells) - 1
    return code(finding.cells[0].id) + (f" and {more} more cell{'s' * (more != 1)} with its cause" if more else "")
