"""What became of the ways: counted, and a page with the table of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row, table
from evidence.counts import enough, none
from evidence.depends.run import MODES, Outcome, study
from tests.plants.depends.ways import UNOBSERVABLE

PAGE = ROOT / "docs" / "evidence" / "depends.md"
WAYS = 45


def rows(quick: bool) -> Iterator[Row]:
    """Yield what was counted."""
    yield from rows_of(study(quick))


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """Yield the counts of outcomes."""
    changed = [outcome for outcome in outcomes if not outcome.way.sound and not outcome.broken]
    sound = [outcome for outcome in outcomes if outcome.way.sound and not outcome.broken]
    broken = [outcome for outcome in outcomes if outcome.broken]
    yield enough("ways to depend on something", len(changed), WAYS)
    declared = [outcome for outcome in changed if outcome.way.unobservable]
    unseen = len(declared)
    yield Row("of them not to be observed", str(unseen), target=f"at most {UNOBSERVABLE}", met=unseen <= UNOBSERVABLE)
    missed = sum(any(outcome.stale.values()) for outcome in declared)
    yield none("of these not seen as they are declared", missed)
    for mode in MODES:
        asked = [outcome for outcome in changed if mode in outcome.stale and not outcome.way.unobservable]
        stale = sum(bool(outcome.stale[mode]) for outcome in asked)
        yield none(f"stale greens, {mode}", stale, f"{len(asked)} ways")
    kept = sum(outcome.kept["unchanged"] for outcome in changed)
    yield Row("ways whose models are kept while nothing changes", str(kept), f"{len(changed)} ways")
    needless = sum(not all(outcome.kept.values()) for outcome in sound)
    yield none("sound twins that are exported again", needless, f"{len(sound)} twins")
    yield none("ways that prove nothing", len(broken))


TEXT = """# What a verdict depends on

Made by `tox run -e dev -- python -m evidence depends`. Each way is a case whose export is right as long as
something is as it was: a file, a variable, an installed package. A first run is green. Then the thing is changed, so
that a run from an empty store is red. A way is stale where a run with the store of the first one, with `--reuse` of
it, with `--changed-since` its revision, or on a cluster of two is not red as well. What cannot be observed is
declared by its case, and counts by itself. A sound twin does not use what is changed.

{targets}

## Ways

{ways}

## Sound twins

{sound}

{broken}{where}
"""


def write(where: str) -> None:
    """Write ``docs/evidence/depends.md``; ``where`` says on what host and with which versions."""
    outcomes = study(False)
    targets = table(rows_of(outcomes))
    broken = "".join(f"- {outcome.way.what}: {outcome.broken}\n" for outcome in outcomes if outcome.broken)
    PAGE.write_text(
        TEXT.format(
            targets=targets, ways=table_of([one for one in outcomes if not one.way.sound and not one.broken]),
            sound=table_of([one for one in outcomes if one.way.sound and not one.broken]), where=where,
            broken=f"## Ways that prove nothing\n\n{broken}\n" if broken else "",
        ),
        encoding="utf-8",
    )  # fmt: skip


def table_of(outcomes: Sequence[Outcome]) -> str:
    """Return the table of outcomes: by mode, whether the cells were red again, or kept."""
    head = f"| depends on | {' | '.join(MODES)} | unchanged |\n|---|{'---|' * (len(MODES) + 1)}"
    return "\n".join([head, *map(_line, outcomes)])


def _line(outcome: Outcome) -> str:
    cells = [_said(outcome, mode) for mode in MODES]
    note = f" (declared: {outcome.way.unobservable})" if outcome.way.unobservable else ""
    kept = "kept" if outcome.kept["unchanged"] else "made again"
    return f"| {outcome.way.what}{note} | {' | '.join(cells)} | {kept} |"


def _said(outcome: Outcome, mode: str) -> str:
    if mode not in outcome.stale:
        return ""
    if outcome.way.sound:
        return "kept" if outcome.kept[mode] else "made again"
    unseen = "not seen" if outcome.way.unobservable else "**stale**"
    return unseen if outcome.stale[mode] else "red"
