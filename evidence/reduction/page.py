"""What is printed, and ``docs/evidence/reduction.md``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row, table
from evidence.reduction.run import Outcome, study

PAGE = ROOT / "docs" / "evidence" / "reduction.md"
NODES = 5


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    counted = [one for one in outcomes if one.counts]
    small = [one for one in counted if one.nodes is not None]
    nodes = [one.nodes for one in small if one.nodes is not None]
    scripts = [one for one in small if one.shows is not None]
    yield Row("runtime faults made smaller", f"{len(small)} of {len(counted)}", repeats=len(counted))
    if nodes:
        whole = statistics.median(one.whole for one in small)
        yield Row(
            "nodes of the smallest model", f"median {statistics.median(nodes):g}, at most {max(nodes)}",
            f"median of the whole models {whole:g}", target=f"median at most {NODES}",
            met=statistics.median(nodes) <= NODES, repeats=len(nodes),
        )  # fmt: skip
        seconds = [one.smallest["seconds"] for one in small]
        yield Row("seconds", f"median {statistics.median(seconds):.1f} s", f"worst {max(seconds):.1f} s",
                  repeats=len(seconds))  # fmt: skip
    showing = sum(one.shows == 1 for one in scripts)
    yield Row(
        "scripts that end with 1 in a process of their own", f"{showing} of {len(scripts)}",
        f"{len(small) - len(scripts)} small models have none", target="all", met=showing == len(scripts) > 0,
        repeats=len(scripts),
    )  # fmt: skip
    mended = [one.mended for one in scripts if one.mended is not None]
    yield Row(
        "scripts that end with 0 once the defect is gone", f"{mended.count(0)} of {len(mended)}", target="all",
        met=mended.count(0) == len(mended) > 0, repeats=len(mended),
    )  # fmt: skip


TEXT = """# How small the model of a runtime fault becomes

Made by `tox run -e dev -- python -m evidence reduction`. A kernel of ONNX Runtime at a time is wrong, in a case
with ten more nodes behind it where its output is float; and each wrong runtime that a shipped case declares is met
without the declaration. The script that a record names is run twice more, in processes of their own: with the defect,
and without it where it was planted.

{targets}

| fault | named | nodes | of | operators | script | without the defect | seconds |
|---|---|---|---|---|---|---|---|
{faults}

A fault that the record does not hold against the runtime is not made small, and does not count.

## Faults that prove nothing

{void}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/reduction.md``; ``where`` says on what host and with which versions."""
    outcomes = study(False)
    targets = table(rows_of(outcomes))
    faults = [
        f"| {one.name} | {one.fault or 'nobody'} | {_said(one.nodes)} | {one.whole} "
        f"| {', '.join(one.smallest.get('operators', ()))} | {_script(one)} | {_said(one.mended)} "
        f"| {_said(one.smallest.get('seconds'))} |"
        for one in outcomes if not one.void
    ]  # fmt: skip
    void = "\n".join(f"- {one.name}: {one.void[:200]}" for one in outcomes if one.void) or "None."
    PAGE.write_text(TEXT.format(targets=targets, faults="\n".join(faults), void=void, where=where), encoding="utf-8")


def _said(value: object) -> str:
    return "" if value is None else str(value)


def _script(one: Outcome) -> str:
    if one.shows is not None:
        return f"ends with {one.shows}"
    return " ".join(str(one.smallest.get("why_not", "")).replace("|", "/").split())[:120]
