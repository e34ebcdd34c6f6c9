"""Changes as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from conformance.results.baseline.change import KINDS, Change, blocking
from conformance.results.records.sanitize import literal, one_line, shorten

MOST = 20
"""Changes of one kind that are shown, each with a cause of its own."""
MOST_ALIKE = 3
"""Cells that are named of those with one cause."""


def lines(changes: Sequence[Change], width: int) -> Iterator[str]:
    """The changes by kind in ``width`` columns: regressions first, then what else differs, then what is accepted.

    Changes of a kind with one cause are one entry. Where the others fit into one line each, they stand so; else each
    text stands below its id, in at most two lines. Only an id may be longer than ``width``. The last line says how
    many changes there are.
    """
    groups: list[tuple[str, list[Change]]] = []
    for regression in (True, False):
        open_changes = [change for change in changes if change.regression == regression and not change.accepted]
        groups += [
            (kind.heading, [change for change in open_changes if change.kind == name]) for name, kind in KINDS.items()
        ]
    groups.append(("accepted", [change for change in changes if change.accepted]))
    for heading, group in groups:
        if group:
            yield f"{heading}: {len(group)}"
            yield from _of_causes(group, width)
    yield count(changes)


def count(changes: Iterable[Change]) -> str:
    """``2 regressions, 1 accepted, 5 other changes``; ``no change`` where there is none."""
    changes = list(changes)
    regressions, accepted = len(blocking(changes)), sum(change.accepted for change in changes)
    others = len(changes) - regressions - accepted
    parts = [
        f"{regressions} regression{'' if regressions == 1 else 's'}",
        *([f"{accepted} accepted"] if accepted else []),
        *([f"{others} other change{'' if others == 1 else 's'}"] if others else []),
    ]
    return ", ".join(parts) if changes else "no change"


def _of_causes(group: Sequence[Change], width: int) -> Iterator[str]:
    """Yield the lines of each cause: its text once where several changes have it, and their ids."""
    by_cause: dict[str, list[Change]] = {}
    for change in group:
        by_cause.setdefault(change.cause or change.id, []).append(change)
    alone = [changes[0] for changes in by_cause.values() if len(changes) == 1]
    several = {cause: changes for cause, changes in by_cause.items() if len(changes) > 1}
    for cause, changes in sorted(several.items(), key=lambda item: -len(item[1])):
        texts = dict.fromkeys(one_line(change.text) for change in changes)
        said = one_line(cause) if len(texts) > 1 or cause not in texts else ""
        first = next(iter(texts)).removesuffix(f"; {said}")
        yield from _wrapped(f"{len(changes)} cells: {': '.join(filter(None, (said, first)))}", width, "  ")
        yield from shorten([f"    {literal(change.id)}" for change in changes], MOST_ALIKE, "    and {} more")
    yield from _write_group(alone[:MOST], width)
    if len(alone) > MOST:
        yield f"  and {len(alone) - MOST} more"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text, max(width, 20), initial_indent=indent, subsequent_indent=indent, max_lines=2, placeholder=" …"
    )


def _write_group(group: Sequence[Change], width: int) -> Iterator[str]:
    """One line for each change where all of them fit, else the id and below it the text. An id is never cut, since it
    is there to be copied."""
    if not group:
        return
    texts = [one_line(change.text) for change in group]
    ids = [literal(change.id) for change in group]
    longest = max(map(len, ids))
    if all(4 + longest + len(text) <= width for text in texts):
        yield from (f"  {name:<{longest}}  {text}" for name, text in zip(ids, texts, strict=True))
        return
    for name, text in zip(ids, texts, strict=True):
        yield f"  {name}"
        yield from _wrapped(text, width, "    ")
