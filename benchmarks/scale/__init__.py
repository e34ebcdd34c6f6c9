"""Large files, many nodes, large inputs, whole networks: a check beside a bare script and beside Polygraphy.

The bare script runs five examples in ONNX Runtime with and without its optimizer, or exports a module and compares
with PyTorch; Polygraphy's command runs the file twice, with as many examples and its own threads. Ratios are of
core-seconds, of a command and all that it starts, from the start of its process on; memory is the most that all these
processes had together, each page counted once. Where a side does not end in time, its ratio is at least so much.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from benchmarks.common import Row, Spread
from benchmarks.scale.measured import Cost, measure
from benchmarks.scale.subjects import ALL, BARE, OURS, POLYGRAPHY, Subject, subjects

LIMIT = 600.0
"""Seconds by the clock that a command may take."""
REPEATS, ENOUGH = 3, 60.0
"""Of each side; a subject whose first round took more than so many seconds is measured once."""
LEAST = 1.0
"""Core-seconds of the bare script from which on ratios have a target: below it they measure how processes start."""
MOST = {(OURS, BARE): 8.0, (OURS, POLYGRAPHY): 2.0, (ALL, BARE): 20.0}
"""Times that a check may take."""
WHAT = {OURS: "ONNX Runtime", ALL: "all runtimes", BARE: "a bare script", POLYGRAPHY: "Polygraphy"}
PER_BYTE, BESIDES = 2.5, 10**9
"""Bytes of memory at most: so many for each of the file, and these; or as many as Polygraphy takes, which holds the
same inputs and results, however small the file is."""
EXPONENT = 1.1
"""At most, of seconds in size between the two files below."""
SMALLER, LARGER = "mlp-100", "mlp-1000"

Verdict = bool | Literal["unclear"] | None
Costs = Mapping[str, Sequence[Cost]]


def names(quick: bool) -> list[str]:
    """Return what ``only`` can be."""
    return [one.name for one in subjects(quick)]


def rows(quick: bool, only: Collection[str] = ()) -> Iterator[Row]:
    """Measure all subjects, or those that are named; with ``quick`` small ones, once."""
    found: dict[str, tuple[int, Costs]] = {}
    for subject in subjects(quick):
        if only and subject.name not in only:
            continue
        with tempfile.TemporaryDirectory() as name:
            size = subject.prepare(Path(name))
            costs, examples = _measured(subject, Path(name), quick)
        found[subject.name] = size, costs
        yield from rows_of(subject.name, size, costs, examples, subject.most)
    if {SMALLER, LARGER} <= {*found}:
        yield growth(found[SMALLER], found[LARGER])


def _measured(subject: Subject, folder: Path, quick: bool) -> tuple[Costs, Mapping[str, int]]:
    """Return what each side took, in turn, and how many examples each check had verified."""
    costs: dict[str, list[Cost]] = {}
    examples: dict[str, int] = {}
    commands = subject.commands()
    if quick and subject.name != names(quick)[0]:
        commands.pop(ALL, None)
    for _ in range(1 if quick else REPEATS):
        for side, command in commands.items():
            for left in ("store", "report"):
                shutil.rmtree(folder / left, ignore_errors=True)
            (folder / "report.json").unlink(missing_ok=True)
            cost = measure(command, folder, LIMIT)
            costs.setdefault(side, []).append(cost)
            if side in (OURS, ALL):
                examples[side] = subject.examples(folder)
        if sum(each[0].seconds for each in costs.values()) > ENOUGH:
            break
    return costs, examples


def rows_of(
    name: str, size: int, costs: Costs, examples: Mapping[str, int], most: float | None = None
) -> Iterator[Row]:
    """Yield the rows of one subject of ``size`` bytes, which may take ``most`` seconds by the clock."""
    what = name
    for (side, other), limit in MOST.items():
        if side in costs and other in costs:
            count = f"; {examples[side]:,} examples" if examples.get(side) else ""
            ours, theirs = f"{WHAT[side]}: {_text(costs[side])}{count}", f"{WHAT[other]}, {_text(costs[other])}"
            applies = statistics.median(cost.cores for cost in costs[BARE]) > LEAST
            row = Row(what, ours, theirs, repeats=len(costs[side]))
            yield _ratio(row, costs[side], costs[other], limit if applies else None)
            what = ""
    peak = max(cost.peak for cost in costs[OURS])
    allowed = max([PER_BYTE * size + BESIDES, *(cost.peak for cost in costs.get(POLYGRAPHY, ()) if cost.code == 0)])
    ended = all(cost.code is not None for cost in costs[OURS])
    met: Verdict = False if peak > allowed else ended or "unclear"
    yield Row(
        f"{name}: memory", f"{peak / 2**20:,.0f} MiB", f"a file of {size / 1e6:,.1f} MB",
        f"{peak / allowed:.2f} of what is allowed",
        f"at most {PER_BYTE:g} × and {BESIDES / 1e9:g} GB, or Polygraphy's", met, len(costs[OURS]),
    )  # fmt: skip
    if most is not None:
        clock = Spread([cost.seconds if cost.code is not None else math.inf for cost in costs[OURS]])
        yield Row(f"{name}: by the clock", _text(costs[OURS]), target=f"at most {most:g} s", met=clock.meets(most),
                  repeats=len(costs[OURS]))  # fmt: skip


def _ratio(row: Row, ours: Sequence[Cost], theirs: Sequence[Cost], limit: float | None) -> Row:
    """Return the row with the ratio of core-seconds, which is a bound where the check was ended before its verdict.

    Nothing is met where a side failed: it did not do the work that the other one did.
    """
    right, theirs_right = (all(cost.code == 0 for cost in side) for side in (ours, theirs))
    spread = Spread([one.cores / other.cores for one, other in zip(ours, theirs, strict=True)])
    bound = "more than " if any(cost.cut for cost in ours) else ""
    met: Verdict = None
    if limit is not None:
        met = spread.meets(limit)
        if not (right and theirs_right):
            met = False if theirs_right and min(spread.values) > limit else "unclear"
    target = "" if limit is None else f"at most {limit:g} ×"
    text = f"{bound}{spread:.1f}" if theirs_right else ""
    return Row(row.what, row.measured, row.compared_with, text, target, met, row.repeats)


def growth(small: tuple[int, Costs], large: tuple[int, Costs]) -> Row:
    """Return the row of how core-seconds grow with the size of a file: by which power of it."""

    def exponent(side: str) -> float:
        (less, before), (more, after) = small, large
        seconds = [statistics.median(cost.cores for cost in costs[side]) for costs in (before, after)]
        return math.log(seconds[1] / seconds[0]) / math.log(more / less)

    ended = all(cost.code is not None for _, costs in (small, large) for cost in costs[OURS])
    ours = exponent(OURS)
    return Row(
        f"exponent in size, {SMALLER} to {LARGER}", f"{'' if ended else 'more than '}{ours:.2f}",
        f"{WHAT[BARE]}, {exponent(BARE):.2f}", target=f"at most {EXPONENT:g}",
        met=ours <= EXPONENT if ended else False if ours > EXPONENT else "unclear",
    )  # fmt: skip


def _text(costs: Sequence[Cost]) -> str:
    """Return seconds, core-seconds and memory of a side, and whether it ended, and ended well."""
    seconds, cores = (statistics.median(getattr(cost, each) for cost in costs) for each in ("seconds", "cores"))
    peak = max(cost.peak for cost in costs) / 2**20
    if cuts := [cost.cut for cost in costs if cost.cut]:
        return f"{cuts[0]} ({cores:.1f} core-seconds, {peak:,.0f} MiB)"
    codes = sorted({cost.code for cost in costs if cost.code})
    wrong = f", exit code {' and '.join(map(str, codes))}" if codes else ""
    return f"{seconds:.1f} s, {cores:.1f} core-seconds, {peak:,.0f} MiB{wrong}"
