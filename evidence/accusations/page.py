"""What is printed, and ``docs/evidence/accusations.md``: a section for each group, which stays as it is until that
group runs again."""

from __future__ import annotations

import datetime
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import ROOT, Row, table
from benchmarks.published import sections
from conformance.results.records.words import REGIMES, SPECIALS
from evidence.accusations import looked_at
from evidence.accusations.looked_at import Entry, Judged, judge, verdict_of
from evidence.accusations.run import REPEATED, SEEDS, Red, Study, study
from evidence.counts import none

PAGE = ROOT / "docs" / "evidence" / "accusations.md"
LEAST = {"usual": 400, "open": 200}
"""Modules that a whole run has to have, by group."""
EXPORTERS = ("torchscript", "dynamo")
QUICK = 15
"""Every so-many-th module, of which two seeds are run."""
IN_A_CELL, SHOWN = 40, 25
"""Words that a cell of a table may have, and those that are shown of a longer text."""


@functools.cache
def _studied(group: str, quick: bool) -> Study:
    return study(group, seeds=2, every=QUICK) if quick else study(group, seeds=SEEDS[group])


def rows(quick: bool) -> Iterator[Row]:
    for group in SEEDS:
        yield from rows_of(_studied(group, quick), looked_at.read(group))


def rows_of(seen: Study, entries: Sequence[Entry]) -> Iterator[Row]:
    """The rows of a run; only a whole one has to have so many modules, and shows which entries are out of date."""
    judged, least = _judged(seen, entries), LEAST[seen.group]
    count, cells = len(seen.outcomes), sum(sum(one.cells.values()) for one in seen.outcomes)
    examples = sum(sum(one.examples.values()) for one in seen.outcomes)
    yield Row(
        "sound modules", f"{count:,}, {cells:,} cells, {examples:,} examples verified", _seeds(seen),
        target=f"at least {least}" if seen.whole else "", met=count >= least if seen.whole else None,
    )  # fmt: skip
    yield Row(
        "modules with a red", f"{len({red.module for red in seen.reds})}",
        f"{len(judged.reds)} reds, {len(judged.of('real'))} of them real",
    )  # fmt: skip
    accused = judged.of("false")
    yield none("false accusations", len(accused), _names(accused))
    unknown = judged.of("not looked at")
    yield none("reds that nobody has looked at", len(unknown), _names(unknown))
    yield Row("reds at which a process ended, which are not named", str(len(judged.ended)), _blamed(judged.ended))
    yield Row(
        "what was looked at and is not red in this run", str(len(judged.stale)),
        ", ".join(name for _, gone in judged.stale[:3] for name in gone),
    )  # fmt: skip


def _judged(seen: Study, entries: Sequence[Entry]) -> Judged:
    return judge(seen.reds, entries, whole=seen.whole and not seen.left)


def _seeds(seen: Study) -> str:
    """Return how many seeds the modules were run in."""
    counts = sorted(Counter(outcome.seeds for outcome in seen.outcomes).items(), reverse=True)
    said = [f"{number:,} in {seeds} seed{'s' * (seeds > 1)}" for seeds, number in counts]
    earlier = sum(outcome.code != seen.code for outcome in seen.outcomes)
    said += [f"{earlier:,} by an earlier state of the suite"] * bool(earlier)
    return ", ".join([*said, *([f"{seen.left:,} not run"] if seen.left else [])])


def _blamed(reds: Sequence[Red]) -> str:
    """Return who is blamed how often."""
    counts = Counter(red.fault or "nobody" for red in reds)
    return ", ".join(f"{who} {count}" for who, count in counts.most_common())


def _names(reds: Sequence[Red]) -> str:
    names = [f"{red.module} {red.error}" for red in reds[:3]]
    return ", ".join([*names, *(["..."] if len(reds) > len(names) else [])])


TEXT = """# False accusations

Made by `tox run -e dev -- python -m evidence accusations`, which takes more than an hour;
`python -m evidence.accusations` runs one group, and writes its section if asked to. Modules that are sound are
written as cases and run as any other case is. The question is whether the suite calls anything wrong that is
right, or blames one who did nothing. Each section was measured on its day, with its versions.

"""
METHOD = """## How it is measured

Each module is exported by both exporters (TorchScript at opset 17, dynamo at 20) and runs in ONNX Runtime and in
ONNX's evaluator: the checks `export`, `accuracy` and `specials`. Each seed draws all {regimes} regimes anew at up to
three shapes, and each of the {specials} kinds of special values twice. A cell that is red in the same way in
{repeated} seeds is not run in the others, nor is anything of a model that the exporter does not make. A first dim is
variable, from 1 to 4, where PyTorch takes all of these sizes and every output follows, or all are scalars; losses get
the values that they are made for, integers the range of the sample, all other inputs no declared values, so that
every regime runs.

A red is a module, an exporter, a runtime, a check, an error and who is blamed. **Real**: what the record says is so,
which somebody has shown without the suite. **False**: it is not so, or another one is to blame. Where a process ended
or ran out of time, a red is counted, and neither named nor judged here.
"""
SECTION = """{about}

{rows}

| exporter | modules | cells | examples verified | reds | real | false | not looked at |
|---|---|---|---|---|---|---|---|
{exporters}

{unfit} samples are no case: {why_unfit}. What is skipped is no red: {skipped}. {ill:,} draws were ill-conditioned,
and count neither way.

| modules | red | blamed | reds | verdict | shown |
|---|---|---|---|---|---|
{looked_at}

{notes}

Not looked at:

{unknown}

Looked at before, and not red in this run: kernels differ from processor to processor, draws from seed to seed, and
what the suite gives a verdict on from release to release.

{gone}

Measured on {day}: {where}

"""
ABOUT = {
    "usual": (
        "As people use them",
        "torch.nn's modules with their usual arguments, at most three distinct samples of each class of ModuleInfo\n"
        "(`torch.testing._internal.common_modules`, evaluation mode, float32), torchvision's operators, and\n"
        "torchvision's networks at small sizes with random weights (at one shape).",
    ),
    "open": (
        "Where much is left open",
        "Modules that make NaN, ties, long sums and jumps, or keep state: attention in its forms, pooling, Fourier\n"
        "transforms, quantizers, norms up to 512 × 512, matrices, parts of detectors, and modules that change\n"
        "themselves when they are called. They are the tables of `evidence/accusations/open_values.py`.",
    ),
}
"""By group: the title of its section, and what it has."""


def write(where: str) -> None:
    """Write the sections of all groups; ``where`` says on what host and with which versions."""
    for group in SEEDS:
        write_section(_studied(group, False), where)


def write_section(seen: Study, where: str, page: Path = PAGE) -> None:
    write_page(ABOUT[seen.group][0], section_of(seen, looked_at.read(seen.group), where), page)


def write_page(title: str, text: str, page: Path = PAGE) -> None:
    """Write the page with this section, and the others as they are."""
    known = sections(page.read_text(encoding="utf-8")) if page.is_file() else {}
    known[title] = text
    titles = [title for title, _ in ABOUT.values()]
    text = TEXT + "".join(f"## {title}\n\n{known[title]}" for title in titles if title in known)
    text += METHOD.format(regimes=len(REGIMES), specials=len(SPECIALS), repeated=REPEATED)
    page.write_text(text, encoding="utf-8")


def section_of(seen: Study, entries: Sequence[Entry], where: str) -> str:
    """Return the section of a run, without its title."""
    judged = _judged(seen, entries)
    skipped = Counter[str]()
    for outcome in seen.outcomes:
        skipped.update({_clean(reason): count for reason, count in outcome.skipped.items()})
    unfit = Counter(_clean(reason) for reason in seen.unfit.values())
    notes: list[str] = []
    known = "\n".join(_known(entry, judged, notes) for entry in entries)
    return SECTION.format(
        about=ABOUT[seen.group][1], rows=table(rows_of(seen, entries)), unfit=len(seen.unfit),
        why_unfit=_counted(unfit), exporters="\n".join(_exporter(seen, judged, name) for name in EXPORTERS),
        skipped=_counted(skipped), ill=sum(one.ill_conditioned for one in seen.outcomes),
        looked_at=known, notes="\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1)),
        unknown="\n".join(f"- {_red(red)}" for red in judged.of("not looked at")) or "None.",
        gone="\n".join(f"- {_kind(entry)}: {_code(gone)}" for entry, gone in judged.stale) or "None.",
        day=datetime.datetime.now(datetime.timezone.utc).date().isoformat(), where=where,
    )  # fmt: skip


def _exporter(seen: Study, judged: Judged, exporter: str) -> str:
    mine = [(red, entry) for red, entry in judged.reds if red.exporter == exporter]
    verdicts = Counter(verdict_of(entry) for _, entry in mine)
    cells = sum(one.cells.get(exporter, 0) for one in seen.outcomes)
    examples = sum(one.examples.get(exporter, 0) for one in seen.outcomes)
    modules = sum(exporter in one.cells for one in seen.outcomes)
    numbers = (modules, cells, examples, len(mine), verdicts["real"], verdicts["false"], verdicts["not looked at"])
    return f"| {exporter} | {' | '.join(f'{number:,}' for number in numbers)} |"


def _known(entry: Entry, judged: Judged, notes: list[str]) -> str:
    count = sum(known is entry for _, known in judged.reds)
    blamed = entry.fault or "nobody, left open"
    modules, shown = _cell(_code(entry.modules), notes), _cell(_clean(entry.shown), notes)
    return f"| {modules} | {_kind(entry)} | {blamed} | {count} | {entry.verdict} | {shown} |"


def _cell(text: str, notes: list[str]) -> str:
    """Return a text that fits into a cell; a longer one becomes a note below the table."""
    words = text.split()
    if len(words) <= IN_A_CELL:
        return text
    notes.append(text)
    return f"{' '.join(words[:SHOWN])} … (note {len(notes)})"


def _kind(entry: Entry) -> str:
    """Where it is, if anything narrows that down, and with which errors."""
    said = [entry.exporter, entry.runtime, entry.check]
    place = ", ".join(one for one in said if one)
    return f"{f'{place}: ' if place else ''}{' or '.join(entry.errors)}"


def _red(red: Red) -> str:
    where = ", ".join(one for one in (red.exporter, red.runtime, red.check) if one)
    blamed = f"blames the {red.fault}" if red.fault else "blames nobody"
    return f"`{red.module}`, {where}: {red.error}, {blamed}, in {len(red.seeds)} seeds. {_clean(red.reason or '')}"


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _counted(counts: Counter[str]) -> str:
    return "; ".join(f"{count} ({reason})" for reason, count in counts.most_common()) or "nothing"


def _clean(text: str) -> str:
    """In one line of a table, and not at length."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= 400 else f"{line[:400]} ..."
