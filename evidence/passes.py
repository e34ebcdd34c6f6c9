"""Which pass a record names for each plant, what is printed, and ``docs/evidence/passes.md``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Literal

from benchmarks.common import ROOT, Row, table
from evidence.counts import enough, none, share
from tests.plants.passes.defects import guilty, plants
from tests.plants.planted import Seen, part_of, walk

PAGE = ROOT / "docs" / "evidence" / "passes.md"
TABLE = "tests.plants.passes.defects"
LEAST, RIGHT = 20, 0.9
Verdict = Literal["right", "wrong", "open", "not found"]


@functools.cache
def study(quick: bool) -> list[Seen]:
    return list(walk(TABLE, part_of(list(plants()), quick), quick))


def named(seen: Seen) -> list[str]:
    """The passes that the record of a plant names, of ONNX Runtime or of the exporter."""
    of_runtime, of_exporter = seen.record["optimizer"] or {}, seen.record["operator"] or {}
    return list(of_runtime.get("passes") or of_exporter.get("passes") or ())


def verdict(seen: Seen, passed: str) -> Verdict:
    """Whether the pass of a plant is named, and no other with it."""
    if not seen.failed:
        return "not found"
    if not named(seen):
        return "open"
    return "right" if named(seen) == [passed] else "wrong"


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(outcomes: Sequence[Seen]) -> Iterator[Row]:
    counted = [seen for seen in outcomes if seen.counts]
    by_name = guilty()
    verdicts = [verdict(seen, by_name[seen.plant.name]) for seen in counted]
    yield enough("wrong passes", len(counted), LEAST)
    others = f", {verdicts.count('open')} left open, {verdicts.count('not found')} not found"
    yield share("named rightly", verdicts.count("right"), len(counted), RIGHT, others)
    yield none("named wrongly", verdicts.count("wrong"), of=len(counted))
    yield none("plants that prove nothing", len(outcomes) - len(counted), of=len(outcomes))


TEXT = """# Which pass of an optimizer is named

Made by `tox run -e dev -- python -m evidence passes`. One pass of an optimizer at a time is wrong, in a small case
that passes without that. Of ONNX Runtime, the outputs of a model that the pass changes are off by a quarter; of
onnxscript, which optimizes what the dynamo exporter makes, what a rule or pass puts into a graph is doubled; onnxsim
takes an operator for another. Known defects of ONNX Runtime are not planted.

{targets}

A pass counts as named where the record names it and no other. Rules of onnxscript that have no name are not tried.

| plant | guilty | named | |
|---|---|---|---|
{plants}

## Plants that prove nothing

{void}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/passes.md``; ``where`` says on what host and with which versions."""
    outcomes, by_name = study(False), guilty()
    lines = [
        f"| {seen.plant.name} | {by_name[seen.plant.name]} | {', '.join(named(seen)) or 'none'} "
        f"| {verdict(seen, by_name[seen.plant.name])} |"
        for seen in outcomes if seen.counts
    ]  # fmt: skip
    targets = table(rows_of(outcomes))
    void = "\n".join(seen.void for seen in outcomes if not seen.counts) or "None."
    PAGE.write_text(TEXT.format(targets=targets, plants="\n".join(lines), void=void, where=where), encoding="utf-8")
