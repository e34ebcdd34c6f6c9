"""What is printed, and ``docs/evidence/location.md``."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row
from evidence.counts import none, share
from evidence.location import lowered, memory, run, sound

PAGE = ROOT / "docs" / "evidence" / "location.md"
RIGHT = 0.9
MEMORY = 2.0
"""Times the memory of a cell that passes."""
LOWERED = {"operator": 114 / 120, "operator and line": 110 / 120}
"""Shares of the wrong lowerings of which the place has to be named."""


def rows(quick: bool) -> Iterator[Row]:
    yield from rows_of(run.study(quick))
    yield from rows_of_lowered(lowered.study(quick))
    yield from rows_of_sound(sound.study(quick))
    yield row_of_memory(memory.peaks(quick))


def rows_of(outcomes: Sequence[run.Outcome]) -> Iterator[Row]:
    failed = [outcome for outcome in outcomes if outcome.failed]
    for what in ("operator", "line"):
        right = sum(getattr(outcome, what) for outcome in failed)
        yield share(f"planted defects, {what} named rightly", right, len(failed), RIGHT)
    for exporter in ("torchscript", "dynamo"):
        seconds = [outcome.seconds for outcome in failed if outcome.plant.exporter == exporter]
        if seconds:
            yield Row(
                f"seconds added to a failing cell, {exporter}", f"median {statistics.median(seconds):.2f} s",
                f"worst {max(seconds):.2f} s", repeats=len(seconds),
            )  # fmt: skip
    if len(failed) < len(outcomes):
        yield Row("planted defects that no example shows", str(len(outcomes) - len(failed)), target="0", met=False)


def rows_of_sound(models: Sequence[sound.Sound]) -> Iterator[Row]:
    looked_at = [model for model in models if not model.unable]
    named = sum(bool(model.named) for model in looked_at)
    compared, untied = sum(model.compared for model in looked_at), sum(model.untied for model in looked_at)
    beside = f"{len(models) - len(looked_at)} not looked at"
    yield none("sound models of which an operator is named", named, beside, len(looked_at))
    yield Row(
        "their operators that differ by more than kernels may", str(sum(model.parted for model in looked_at)),
        f"{compared} compared, {untied} without a tensor", repeats=len(looked_at),
    )  # fmt: skip


def row_of_memory(peaks: memory.Peaks) -> Row:
    return Row(
        f"peak memory of a failing cell of {peaks.network}", f"{peaks.wrong / 2**20:,.0f} MiB",
        f"of the same cell passing, {peaks.sound / 2**20:,.0f} MiB", f"{peaks.ratio:.2f} ×",
        f"at most {MEMORY:g} ×", peaks.ratio <= MEMORY,
    )  # fmt: skip


def rows_of_lowered(results: Sequence[lowered.Result]) -> Iterator[Row]:
    """Yield what became of the wrong lowerings: of those that are alone, and of those that are two at once."""
    counted = [result for result in results if result.counts]
    alone, pairs = ([one for one in counted if bool(one.plant.then) is two] for two in (False, True))
    passes = [one for one in alone if one.plant.passed]
    named = {"operator": [one.operator for one in alone]}
    named["operator and line"] = [one.operator and one.placed for one in alone]
    for what, right in named.items():
        yield _share(f"wrong lowerings, {what} named rightly", right, LOWERED[what])
    yield _share("wrong lowerings, the exporter is said to be at fault", [one.at_fault for one in alone], 1.0)
    yield _share("wrong rules of its optimizer, rule named rightly", [one.passed for one in passes], 1.0)
    yield _share(
        "two wrong lowerings in a model, first named rightly", [one.operator and one.placed for one in pairs], 1.0
    )
    yield _share("two wrong lowerings in a model, both named rightly",
                 [one.operator and one.placed and one.second for one in pairs], 1.0)  # fmt: skip
    for what, found in (
        ("wrong lowerings, places that are wrong", [one.wrong for one in counted]),
        ("wrong lowerings, changes other than what was planted", [one.proposed_wrongly for one in counted]),
    ):
        yield none(what, sum(found), of=len(found))
    for exporter in lowered.PRELOAD:
        seconds = [one.locating for one in counted if one.plant.by == exporter and one.locating is not None]
        if len(seconds) > 1:
            tenth = statistics.quantiles(seconds, n=10)[-1]
            yield Row(
                f"wrong lowerings, seconds that locating adds, {exporter}",
                f"median {statistics.median(seconds):.2f} s", f"nine of ten at most {tenth:.2f} s",
                repeats=len(seconds),
            )  # fmt: skip
    yield none("wrong lowerings that prove nothing", len(results) - len(counted), of=len(results))


def _share(what: str, right: Sequence[bool], least: float) -> Row:
    return share(what, sum(right), len(right), least)


TEXT = """# Which operator and line are named for a wrong export

Made by `tox run -e dev -- python -m evidence location`. Exports are made wrong at an operator and a line that
are known: by a symbolic or a translation that a case registers, by sizes that both exporters divide wrongly, by
values that a trace bakes in. Each is a small network whose other operators are right, and runs as a cell of the
suite does. Sound models are those of the shipped cases, whole networks left out: every operator is compared to
the end.

| what | measured | compared with | ratio | plants | target | |
|---|---|---|---|---|---|---|
{targets}

Some plants were replaced after a first run showed that they were no defects: a remainder of sizes, which both
exporters have right, and a padding that the module's output did not depend on. For a branch on values its own
line counts.

## Wrong lowerings

Mistakes in copies of what the exporters lower operators with (`tests/plants/location/lowerings.yaml`), as people make
them and as older releases had them: functions of onnxscript and of torch.onnx, rules of onnxscript's optimizer. They
were chosen before any was run. The edited file is imported in place of the installed one, the case passes without the
edit, and its cells run in processes of their own. Some stand in networks of 20 to 200 calls. A place that
is not the right one is `wrong`; where nothing is named stands `none`.

Fourteen were replaced, or got another module, after a first run had shown that they were no defects: nothing depended
on them (an exporter casts the input of a sum before its lowering), or their case was not sound (`clamp` between a
whole number and a fraction is refused by dynamo). How a record words
the change that was planted was written down after that run.

| mistake | calls around it | operator | line | pass | second | named |
|---|---|---|---|---|---|---|
{lowered}

## Plants

| plant | operator | line | named |
|---|---|---|---|
{plants}

## Sound models that could not be looked at, or of which an operator differs

{odd}

{where}
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/location.md``; ``where`` says on what host and with which versions."""
    outcomes, models = run.study(False), sound.study(False)
    yes = {True: "right", False: "wrong"}
    plants = [
        f"| {one.plant.name} | {yes[one.operator]} | {yes[one.line]} | {one.named.replace('|', '/')} |"
        for one in outcomes
    ]
    odd = [
        f"- {model.label}: {model.unable or f'{model.parted} of {model.compared} operators differ, none is named'}"
        for model in models if model.unable or model.parted
    ]  # fmt: skip
    results = lowered.study(False)
    all_rows = (
        *rows_of(outcomes),
        *rows_of_lowered(results),
        *rows_of_sound(models),
        row_of_memory(memory.peaks(False)),
    )
    targets = [row.line() for row in all_rows]
    text = TEXT.format(
        targets="\n".join(targets), plants="\n".join(plants), odd="\n".join(odd) or "None.", where=where,
        lowered="\n".join(map(_lowered_line, results)),
    )  # fmt: skip
    PAGE.write_text(text, encoding="utf-8")


def _lowered_line(one: lowered.Result) -> str:
    plant, told = one.plant, one.told
    if not one.counts:
        return f"| {one.name} | {plant.calls or ''} | | | | | proves nothing: {one.sound or 'no example shows it'} |"
    verdicts = [
        _verdict(one.operator, told.get("operator")),
        _verdict(one.placed, told.get("line")),
        _verdict(one.passed, told.get("passes")) if plant.passed else "",
        _verdict(one.second, told.get("second")) if plant.then else "",
    ]
    return f"| {one.name} | {plant.calls or ''} | {' | '.join(verdicts)} | {one.said.replace('|', '/')} |"


def _verdict(right: bool, told: object) -> str:
    return "right" if right else "wrong" if told else "none"
