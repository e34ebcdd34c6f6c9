"""Which defects of the package its own tests find, what is printed, and ``docs/evidence/defects.md``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row, table
from conformance.results.records.environment import environment
from evidence.counts import enough, none, share
from evidence.defects.listed import Defect, read
from evidence.defects.run import MOST, Outcome

PAGE = ROOT / "docs" / "evidence" / "defects.md"
LEAST = 120
TIERS = ("smoke", "default", "thorough")


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    planted = [one for one in outcomes if one.status != "does not apply"]
    found = [one for one in planted if one.status == "found"]
    yield enough("planted defects", len(planted), LEAST)
    tiers = ", ".join(f"{sum(one.tier == tier for one in found)} by {tier}" for tier in TIERS)
    yield share("found by the tests", len(found), len(planted), 1.0, f", {tiers}")
    blind = {defect.id for defect in read() if defect.blind}
    unseen = [one for one in planted if one.id in blind]
    if unseen:
        count = sum(one.status == "found" for one in unseen)
        yield Row(
            "of these, chosen without a look at the tests", f"{count} of {len(unseen)} found", repeats=len(unseen)
        )
    alone = sum(one.tier == "thorough" for one in found)
    yield Row(
        "found by `thorough` alone", f"{alone / len(found) if found else 0:.1%}", target="at most 10%",
        met=10 * alone <= len(found), repeats=len(found),
    )  # fmt: skip
    yield none("defects that no longer apply", len(outcomes) - len(planted), of=len(outcomes))


TEXT = """# Which mistakes in the package its tests find

Made by `tox run -e dev -- python -m evidence defects`. Each defect of `evidence/defects/defects.yaml` is a
mistake that a person could make in the package; those of `blind.yaml` beside it were chosen from the package alone,
without a look at its tests or at the list. It is written into a copy of the repository, and the tests that
execute its lines are run there, the cheapest first, until one fails that passes without it; at most {most:g} seconds
of tests for each, as measured. Seconds are those of the test that found it.

{targets}

| kind | planted | found | {tiers} | median seconds |
|---|---|---|{rules}|---|
{kinds}

## Not found

{survivors}

{where}
"""


def write(outcomes: Sequence[Outcome]) -> None:
    """Writes ``docs/evidence/defects.md``."""
    found = environment([])
    where = f"Python {found['python']}, {found['cpu']['name']}, {found['cores']} cores."
    PAGE.write_text(page_of(outcomes, where), encoding="utf-8")


def page_of(outcomes: Sequence[Outcome], where: str) -> str:
    """The text of the page."""
    defects = {defect.id: defect for defect in read()}
    planted = [one for one in outcomes if one.status != "does not apply"]
    kinds = dict.fromkeys(defects[one.id].kind for one in planted)
    lines = [_line(kind, [one for one in planted if defects[one.id].kind == kind]) for kind in sorted(kinds)]
    survivors = [_survivor(defects[one.id], one) for one in planted if one.status != "found"]
    return TEXT.format(
        most=MOST, targets=table(rows_of(outcomes)),
        tiers=" | ".join(f"by {tier}" for tier in TIERS), rules="|".join(["---"] * len(TIERS)),
        kinds="\n".join([*lines, _line("all", planted)]), survivors="\n".join(survivors) or "None.", where=where,
    )  # fmt: skip


def _line(kind: str, outcomes: Sequence[Outcome]) -> str:
    found = [one for one in outcomes if one.status == "found"]
    tiers = [str(sum(one.tier == tier for one in found)) for tier in TIERS]
    median = f"{statistics.median(one.seconds for one in found):.2g}" if found else ""
    return f"| {' | '.join([kind, str(len(outcomes)), str(len(found)), *tiers, median])} |"


def _survivor(defect: Defect, outcome: Outcome) -> str:
    tried = f"{outcome.tried} of the {outcome.met_by} test functions that execute it were run"
    why = f" {defect.open}" if defect.open else ""
    return f"- `{defect.id}` ({defect.path}): {defect.what} {outcome.status.capitalize()}: {tried}.{why}"
