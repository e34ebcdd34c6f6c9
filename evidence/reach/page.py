"""The rows of all four questions, and ``docs/evidence/reach.md``."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.common import ROOT, Row, table
from conformance.process.worker.warm import new_worker
from evidence.reach.alike import CASES, Alike, compared
from evidence.reach.cases import EACH, ENDS, Outcome, study
from evidence.reach.first import STARTS, Reached, reached
from evidence.reach.folder import FILES, SHAPES, milliseconds
from evidence.reach.samples import Database

PAGE = ROOT / "docs" / "evidence" / "reach.md"
DATABASES: dict[Database, str] = {"operators": "operators (`op_db`)", "modules": "modules (`module_db`)"}
LONGEST, DEPENDENCIES, COMMANDS = 300.0, 50.0, 3
"""Seconds to the first verdict; milliseconds for the dependencies of a case among 1,000 files; commands typed."""


@dataclass(frozen=True)
class Shares:
    """What became of the samples of one database. Where an operator has more than ``EACH``, those that were tried
    stand for all."""

    tried: Sequence[Outcome]
    weights: Sequence[float]
    """How many samples each one stands for."""

    @property
    def all(self) -> float:
        return sum(self.weights)

    def share(self, *verdicts: str, before: bool = False) -> float:
        """Of all samples; ``before``: of the cases as they are, those without the words that came later."""
        counted = (w for one, w in self._weighed() if one.verdict in verdicts and not (before and one.words))
        return sum(counted) / self.all

    def kinds(self) -> list[tuple[str, str, float, list[str]]]:
        """Verdict, why, share, and some names, the largest share first; what ends a process is not named."""
        weights: dict[tuple[str, str], float] = {}
        names: dict[tuple[str, str], set[str]] = {}
        for one, weight in self._weighed():
            if one.kind:
                of = (one.verdict, one.kind)
                weights[of] = weights.get(of, 0.0) + weight
                names.setdefault(of, set()).update([] if one.kind == ENDS else [one.name])
        lines = [(*of, weight / self.all, sorted(names[of])) for of, weight in weights.items()]
        return sorted(lines, key=lambda line: (line[0], -line[2]))

    def _weighed(self) -> Iterable[tuple[Outcome, float]]:
        return zip(self.tried, self.weights, strict=True)


@functools.cache
def shares(database: Database, quick: bool) -> Shares:
    outcomes: list[Outcome] = []
    weights: list[float] = []
    with new_worker() as worker:
        for found, count in study(worker, database, every=40 if quick else 1, each=2 if quick else EACH):
            outcomes += found
            weights += [count / len(found)] * len(found)
    return Shares(outcomes, weights)


@functools.cache
def starts(quick: bool) -> list[Reached]:
    return [reached(start) for start in (STARTS[:2] if quick else STARTS)]


@functools.cache
def alike(quick: bool) -> Alike:
    return compared(4 if quick else CASES)


@functools.cache
def folders(quick: bool) -> dict[str, tuple[list[float], list[float]]]:
    return {shape: milliseconds(shape, repeats=2 if quick else 5) for shape in SHAPES}


def rows(quick: bool) -> Iterator[Row]:
    for database, name in DATABASES.items():
        yield from _of_samples(shares(database, quick), name)
    for one in starts(quick):
        met = one.first is not None and one.first <= LONGEST and len(one.start.commands) <= COMMANDS
        yield Row(
            f"first verdict on {one.start.what}", "none" if one.first is None else f"{one.first:.0f} s",
            f"all {sum(one.verdicts.values())} verdicts: {one.all:.0f} s",
            target=f"at most {LONGEST:.0f} s and {COMMANDS} commands", met=met,
        )  # fmt: skip
    yield from _of_checks(alike(quick))
    for shape, (first, second) in folders(quick).items():
        each = {value <= DEPENDENCIES for value in first}
        yield Row(
            f"dependencies among {FILES:,} files, {shape}", f"{statistics.median(first):.0f} ms",
            f"asked again, {statistics.median(second):.0f} ms", target=f"at most {DEPENDENCIES:.0f} ms",
            met=each.pop() if len(each) == 1 else "unclear", repeats=len(first),
        )  # fmt: skip


def _of_samples(found: Shares, name: str) -> Iterator[Row]:
    before = found.share("as is", before=True)
    count = f"{len(found.tried)} tried for {found.all:,.0f}"
    yield Row(f"samples of {name} that are cases as they are", f"{found.share('as is'):.1%}",
              f"{before:.1%} without the words that came later", repeats=len(found.tried))  # fmt: skip
    yield Row("with Python of their own", f"{found.share('wrapper'):.1%}", count)
    yield Row("refused by design", f"{found.share('refused'):.1%}")
    yield Row("not at all", f"{found.share('not at all'):.1%}")


def _of_checks(found: Alike) -> Iterator[Row]:
    count = len(found.verdicts)
    yield Row("the same verdict by `conformance.check` and by the suite", f"{found.equal} of {count}",
              target="all", met=found.equal == count, repeats=count)  # fmt: skip
    yield Row("seconds of `conformance.check`, one call a case", f"{found.check:.0f} s",
              f"the suite on the same {found.cells} cells, {found.suite:.0f} s",
              f"{found.check / found.suite:.2f} ×")  # fmt: skip


TEXT = """# How far cases reach

Made by `tox run -e dev -- python -m evidence reach`.

{targets}

## Samples of PyTorch's own tests

`op_db` and `module_db` are what PyTorch tests its operators and modules with. A script writes a case for each sample
by rule, without knowing what is called; the project's own code reads the case, draws its inputs and computes its
outputs, which have to equal those of a direct call bit for bit. Up to {each} samples of an operator or module are
tried, evenly from all, and stand for all. Samples are those in float32 and of evaluation mode.

{kinds}

The words that came later: modules of packages, lists, tuples, dicts, numbers and None as inputs, `clones` and
`unused`. That a case can be written does not say that an exporter takes it.

## From an empty folder to a verdict

Nothing is written by hand: what a user has already and what is typed is all there is.

| | the user has | typed after `conformance` | first verdict | all verdicts | |
|---|---|---|---|---|---|
{starts}

## `conformance.check` and the suite

{checks} of the shipped cases, drawn by a fixed seed, each for one exporter at one opset in ONNX Runtime and fp32:
once by `pytest conformance`, once by one call of `conformance.check` for each, with an empty store and in one process
each.
{different}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/reach.md``; ``where`` says on what host and with which versions."""
    found = alike(False)
    different = [
        f"- {cell}: {suite} by the suite, {check} by `check`"
        for cell, (suite, check) in found.verdicts.items() if suite != check
    ]  # fmt: skip
    PAGE.write_text(
        TEXT.format(
            targets=table(rows(False)),
            each=EACH,
            kinds="\n\n".join(_kinds(shares(database, False), name) for database, name in DATABASES.items()),
            starts="\n".join(map(_start, starts(False))),
            checks=len(found.verdicts),
            different="\n".join(["\nWhat differs:\n", *different]) if different else "No verdict differs.",
            where=where,
        ),
        encoding="utf-8",
    )


def _kinds(found: Shares, name: str) -> str:
    lines = [
        f"| {verdict} | {kind} | {share:.2%} | {', '.join(names[:4])}{', …' if len(names) > 4 else ''} |"
        for verdict, kind, share, names in found.kinds()
    ]
    return "\n".join([f"| {name} | why | share | such as |", "|---|---|---|---|", *lines])


def _start(one: Reached) -> str:
    typed = ", ".join(f"`{command}`" for command in one.start.commands)
    counts = ", ".join(f"{count} {word}" for word, count in one.verdicts.items())
    first = "none" if one.first is None else f"{one.first:.0f} s"
    return (
        f"| {one.start.what} | {one.start.has} | {typed} | {first} | {one.all:.0f} s: {counts} "
        f"| {'; '.join(one.red)} |"
    )
