"""What is printed, and ``docs/evidence/repairs.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row, table
from evidence.counts import enough, none, share
from evidence.repairs.run import Outcome, study

PAGE = ROOT / "docs" / "evidence" / "repairs.md"
LEAST, MENDED = 40, 0.6


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    located = [one for one in outcomes if one.located and not one.void]
    yield enough("located defects", len(located), LEAST, f"of {len(outcomes)}")
    for kind, these in _by_kind(located):
        yield Row(f"with a verified fix, {kind}", f"{sum(one.mended for one in these)} of {len(these)}",
                  repeats=len(these))  # fmt: skip
    yield share("with a verified fix", sum(one.mended for one in located), len(located), MENDED)
    proposals = [proposal for one in outcomes for proposal in one.proposals]
    wrong = sum(bool(proposal.wrong) for proposal in proposals)
    yield none("fixes that do not pass when they are pasted", wrong, f"of {len(proposals)}", len(proposals))


def _by_kind(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    for kind in Counter(one.name.partition(":")[0] for one in outcomes):
        yield kind, [one for one in outcomes if one.name.partition(":")[0] == kind]


TEXT = """# How many located defects have a fix

Made by `tox run -e dev -- python -m evidence repairs`. Each defect is met in a small case: a wrong symbolic or
translation, sizes that an exporter divides wrongly, values baked in, a pass of ONNX Runtime, a conversion that loses
too much. `conformance findings --fix` is asked for changes to the case; each change is then pasted into a copy of the
case, all of whose cells are run in a store of their own.

{targets}

| defect | located at | proposed |
|---|---|---|
{defects}

## Fixes that do not pass when they are pasted

{wrong}

## Defects that prove nothing

{void}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/repairs.md``; ``where`` says on what host and with which versions."""
    outcomes = study(False)
    targets = table(rows_of(outcomes))
    defects = [
        f"| {one.name} | {one.located or 'nowhere'} "
        f"| {'; '.join(proposal.what for proposal in one.proposals) or 'nothing'} |"
        for one in outcomes if not one.void
    ]  # fmt: skip
    wrong = [f"- {one.name}, {fix.what}: {fix.wrong[:300]}" for one in outcomes for fix in one.proposals if fix.wrong]
    void = [f"- {one.name}: {one.void}" for one in outcomes if one.void]
    PAGE.write_text(
        TEXT.format(
            targets=targets, defects="\n".join(defects), wrong="\n".join(wrong) or "None.",
            void="\n".join(void) or "None.", where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip
