"""What is printed, and ``docs/evidence/coverage.md``."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.common import ROOT, Row, Spread, Timings, table
from evidence.counts import enough, none
from evidence.coverage import shipped
from evidence.coverage.shipped import Share
from tests.plants.coverage import DEFECTS, NETWORKS, SOUND, WAYS, name_of, plants
from tests.plants.planted import Seen, walk

PAGE = ROOT / "docs" / "evidence" / "coverage.md"
TABLE = "tests.plants.coverage"
PLANTS = 40
SMALL, LARGE = 1.25, 2.0
"""Times what a case takes without being asked, for small modules and for networks of 25 million parameters."""


@functools.cache
def study(quick: bool) -> dict[str, Seen]:
    """By name, the fresh networks with and without defects; in quick mode the first network."""
    chosen = [plant for plant in plants() if not quick or plant.name.startswith(f"{NETWORKS[0]}, ")]
    return {seen.plant.name: seen for seen in walk(TABLE, chosen, quick)}


def rows(quick: bool) -> Iterator[Row]:
    yield from rows_of_fresh(study(quick))
    yield from rows_of_shares(shipped.shares(quick))
    yield from rows_of_costs(shipped.costs(quick))


def rows_of_fresh(found: Mapping[str, Seen]) -> Iterator[Row]:
    for way in WAYS:
        these = [
            found[name] for network in NETWORKS for defect in DEFECTS
            if (name := name_of(network, defect, way)) in found and found[name].planted
        ]  # fmt: skip
        green = [seen for seen in these if not seen.failed]
        errors = Counter(str(seen.record["error"]) for seen in these if seen.failed)
        said = ", ".join(f"{error} {count}" for error, count in errors.most_common())
        has_target = way != "declared hollow"
        yield Row(
            f"defects in branches that are green, the case {way}", str(len(green)), said,
            target="0" if has_target else "", met=not green if has_target else None, repeats=len(these),
        )  # fmt: skip
    count = sum(seen.planted and seen.plant.name.endswith("as it is") for seen in found.values()) - sum(
        name_of(network, SOUND, "as it is") in found for network in NETWORKS
    )
    yield enough("defects planted in branches", count, PLANTS)
    sound = [found[name] for network in NETWORKS if (name := name_of(network, SOUND, "woken")) in found]
    red = sum(seen.failed for seen in sound)
    yield none("woken networks without a defect that are red", red, of=len(sound))


def rows_of_shares(shares: Sequence[Share]) -> Iterator[Row]:
    known = [share for share in shares if not share.unknown and share.of]
    seen, of = sum(share.seen for share in known), sum(share.of for share in known)
    least = min((share.seen / share.of for share in known), default=0.0)
    yield Row(
        "calls of the shipped cases that are seen", f"{seen / of if of else 0:.1%}",
        f"{seen:,} of {of:,}; in the case that sees least {least:.0%}", repeats=len(known),
    )  # fmt: skip
    hollow = sum(share.hollow for share in shares)
    unknown = sum(bool(share.unknown) for share in shares)
    yield Row("shipped cases that are declared hollow", str(hollow), f"{unknown} of which nothing can be said",
              repeats=len(shares))  # fmt: skip


def rows_of_costs(costs: Sequence[tuple[str, bool, Timings]]) -> Iterator[Row]:
    small = [times.ratio("with", "without").median for _, large, times in costs if not large]
    if small:
        yield Row(
            "time of small modules' cases, with asking", f"median {statistics.median(small):.2f} ×",
            f"without asking, {len(small)} cases", f"{Spread(small):.2f}", f"at most {SMALL} ×",
            statistics.median(small) <= SMALL, min(times.repeats for _, large, times in costs if not large),
        )  # fmt: skip
    for name, large, times in costs:
        if large:
            ratio = times.ratio("with", "without")
            yield Row(
                f"time of {name}, with asking", f"{times['with']:.1f} s", f"without asking, {times['without']:.1f} s",
                f"{ratio:.2f}", f"at most {LARGE:g} ×", ratio.meets(LARGE), times.repeats,
            )  # fmt: skip


TEXT = """# What the cells see of a module

Made by `tox run -e dev -- python -m evidence coverage`. Ten fresh networks have a branch that does not reach the
output; in it something is left out, exchanged or off while the module is exported. Each is run with its case as one
writes it at first, with `hollow:`, and with `weights: awake`. A network whose case is as it is is red as `Hollow`
with and without a defect, until its case says something.

{targets}

## Defects in branches

| network, defect | {ways} |
|---|{rules}|
{fresh}

## Shipped cases of which not all is seen

{shares}

## Cost

All export and accuracy cells of a case on ONNX Runtime, with an empty store in a fresh process.

| case | with | without | |
|---|---|---|---|
{costs}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/coverage.md``; ``where`` says on what host and with which versions."""
    found, shares, costs = study(False), shipped.shares(False), shipped.costs(False)
    fresh = [
        f"| {network}, {defect} | " + " | ".join(_said(found[name_of(network, defect, way)]) for way in WAYS) + " |"
        for network in NETWORKS for defect in (SOUND, *DEFECTS)
    ]  # fmt: skip
    PAGE.write_text(
        TEXT.format(
            targets=table(rows(False)), ways=" | ".join(WAYS),
            rules="|".join("---" for _ in WAYS), fresh="\n".join(fresh),
            shares="\n".join(_share(share) for share in shares if share.seen < share.of or share.unknown) or "None.",
            costs="\n".join(_cost(*cost) for cost in costs), where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip


def _said(seen: Seen) -> str:
    record: Mapping[str, Any] = seen.record
    return f"{record['error']}" if seen.failed else "green"


def _share(share: Share) -> str:
    told = f"nothing can be said ({share.unknown})" if share.unknown else f"{share.seen} of {share.of}"
    return f"- `{share.cell}`: {told}{', declared hollow' if share.hollow else ''}"


def _cost(name: str, large: bool, times: Timings) -> str:
    ratio = times.ratio("with", "without")
    return f"| {name} | {times['with']:.2f} s | {times['without']:.2f} s | {ratio:.2f} |"
