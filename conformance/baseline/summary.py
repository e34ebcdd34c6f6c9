"""Changes as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from conformance.baseline.change import KINDS, Change, gate
from conformance.records.clean import literal, one_line

MOST = 20
"""Changes of one kind that are shown."""


def lines(changes: Sequence[Change], width: int) -> Iterator[str]:
    """The changes by kind in ``width`` columns: regressions first, then what else differs, then what is accepted.

    Where all changes of a kind fit into one line each, they stand so; else each text stands below its id, in at most
    two lines. Only an id may be longer than ``width``. The last line says how many changes there are.
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
            yield from _lines(group[:MOST], width)
            if len(group) > MOST:
                yield f"  and {len(group) - MOST} more"
    yield count(changes)


def count(changes: Iterable[Change]) -> str:
    """``2 regressions, 1 accepted, 5 other changes``; ``no change`` where there is none."""
    changes = list(changes)
    regressions, accepted = gate(changes), sum(change.accepted for change in changes)
    others = len(changes) - regressions - accepted
    parts = [
        f"{regressions} regression{'' if regressions == 1 else 's'}",
        *([f"{accepted} accepted"] if accepted else []),
        *([f"{others} other change{'' if others == 1 else 's'}"] if others else []),
    ]
    return ", ".join(parts) if changes else "no change"


def _lines(group: Sequence[Change], width: int) -> Iterator[str]:
    """One line for each change where all of them fit, else the id and below it the text. An id is never cut, since it
    is there to be copied."""
    texts = [one_line(change.text) for change in group]
    ids = [literal(change.id) for change in group]
    longest = max(map(len, ids))
    if all(4 + longest + len(text) <= width for text in texts):
        yield from (f"  {name:<{longest}}  {text}" for name, text in zip(ids, texts, strict=True))
        return
    for name, text in zip(ids, texts, strict=True):
        yield f"  {name}"
        yield from textwrap.wrap(
            text, max(width, 20), initial_indent="    ", subsequent_indent="    ", max_lines=2, placeholder=" …"
        )
