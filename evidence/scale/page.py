"""Print the rows, and write ``docs/evidence/scale.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row, table
from evidence.counts import enough, none
from evidence.scale.run import MOVED, Outcome, study

PAGE = ROOT / "docs" / "evidence" / "scale.md"
PLANTS, SOUND = 30, 10
"""At least."""

TEXT = """# Wrong values in large files

Made by `tox run -e dev -- python -m evidence scale`. One place of a file is wrong: of an MLP of 100 MB, of a
convolutional network for images of 1024 by 1024, of a decoder of 12 layers. `conformance check` compares the file
with the changed one, in ONNX Runtime and fp32; who is at fault is not looked for. Each plant moves an output by at
least {moved:g} of its largest value, for random inputs that the suite has no part in. Sound changes leave what the
file means.

{targets}

| file | kind | where | moves an output by | verdict | examples | s |
|---|---|---|---|---|---|---|
{lines}

{where}
"""


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """Yield what is counted: plants that are found, and sound changes that pass."""
    planted = [one for one in outcomes if one.is_plant and one.counts]
    twins = [one for one in outcomes if not one.is_plant and one.counts]
    yield enough("wrong values planted", len(planted), PLANTS)
    for kind in dict.fromkeys(one.change.kind for one in planted):
        of_kind = [one for one in planted if one.change.kind == kind]
        yield Row(
            f"{kind}: found", str(sum(one.found for one in of_kind)), f"of {len(of_kind)}", repeats=len(of_kind)
        )
    yield none("not found", sum(not one.found for one in planted), f"of {len(planted)}", len(planted))
    yield enough("sound changes that pass", sum(one.passed for one in twins), SOUND, f"of {len(twins)}")
    yield none("sound changes that are called wrong", sum(one.code == 1 for one in twins), of=len(twins))
    void = sum(not one.counts for one in outcomes)
    yield none("changes that prove nothing", void, f"of {len(outcomes)}", len(outcomes))


def write(where: str) -> None:
    """Writes ``docs/evidence/scale.md``; ``where`` says on what host and with which versions."""
    outcomes = study(False)
    lines = [
        f"| {one.change.subject} | {one.change.kind} | {one.change.name} | {one.moved:.2g} | {one.said} "
        f"| {one.examples} | {one.seconds:.0f} |"
        for one in outcomes
    ]
    text = TEXT.format(moved=MOVED, targets=table(rows_of(outcomes)), lines="\n".join(lines), where=where)
    PAGE.write_text(text, encoding="utf-8")
