"""What is printed, and ``docs/evidence/neighbours.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row, table
from evidence.counts import enough, none
from evidence.neighbours.run import Outcome, study

PAGE = ROOT / "docs" / "evidence" / "neighbours.md"
LEAST = 40


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    count = len({(one.way.name, one.way.when) for one in outcomes})
    yield enough("ways to change a process", count, LEAST)
    differ, verdicts = sum(len(one.differ) for one in outcomes), sum(one.verdicts for one in outcomes)
    yield none("verdicts that differ from a fresh process's", differ, f"of {verdicts}", len(outcomes))


TEXT = """# Whether a case changes the verdict of another cell

Made by `tox run -e dev -- python -m evidence neighbours`. For each way one worker runs, as a run does: a sound
case, the case that changes its process (its export, then its comparison), and three more: one that is sound, one
that has no symbolic and cannot be exported with TorchScript, and one that is exported wrongly. Each verdict (status,
stage, error, fault, the model's hash) is compared with that of the same cell alone, in a fresh process with an empty
store.

{targets}

| way | when | exporter | told as | verdicts that differ |
|---|---|---|---|---|
{ways}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/neighbours.md``; ``where`` says on what host and with which versions."""
    outcomes = study(False)
    targets = table(rows_of(outcomes))
    ways = [
        f"| {one.way.name} | {one.way.when} | {one.way.exporter} | {', '.join(one.told) or 'nothing'} "
        f"| {'; '.join(one.differ) or 'none'} |"
        for one in outcomes
    ]
    PAGE.write_text(TEXT.format(targets=targets, ways="\n".join(ways), where=where), encoding="utf-8")
