"""Print the rows, and write ``docs/evidence/converted.md``."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.common import ROOT, Row, process_ended, table
from evidence.converted.plan import REAL
from evidence.converted.study import RESULTS, Sound, Study, study
from evidence.counts import enough, none

PAGE = ROOT / "docs" / "evidence" / "converted.md"
LEAST = 200
FOUND, NAMED, PLANTED = 57, 50, 60
"""The planted defects that have to be found and named rightly, of how many."""


def rows(quick: bool) -> Iterator[Row]:
    return rows_of(study(quick))


def rows_of(seen: Study) -> Iterator[Row]:
    count, planted = len(seen.files), len(seen.asked)
    accused = [one.stem for one in seen.files if one.result == "accused"]
    wrong = [name for name, said in seen.compared.items() if said]
    what = "sound files whose weights, scales, ranges or positions are called wrong"
    yield none(what, len(wrong), _few(wrong), of=len(seen.compared))
    yield enough("sound files that were checked", count, LEAST) if seen.whole else Row("sound files", str(count))
    if seen.left:
        yield Row("not asked about", str(seen.left), "it was broken off, and goes on there")
    yield none("accused", len(accused), _few(accused), of=count)
    for result in RESULTS:
        found = [one.stem for one in seen.files if one.result == result]
        if found and result != "accused":
            unnamed = result in ("right", "ends a runtime's process")  # what ends a process is for its makers alone
            yield Row(result, str(len(found)), "" if unnamed else _few(found))
    for what, those, least in (("found", [one for one in seen.asked if one.found], FOUND),
                               ("named rightly", [one for one in seen.asked if one.named], NAMED)):  # fmt: skip
        due = -(-least * planted // PLANTED)
        yield Row(f"planted defects {what}", str(len(those)), f"of {planted}", target=f"at least {due}",
                  met=len(those) >= due, repeats=planted)  # fmt: skip


TEXT = """# Files that others have converted

Made by `tox run -e dev -- python -m evidence converted`, which goes on where it was broken off. Small seeded networks
(`evidence/converted/networks.py`) are converted by real converters (`convert.py` beside it). `conformance check` gets
each file beside its original, in ONNX Runtime and OpenVINO, with no other option. In copies of some files defects are
planted (`plants.py`, written before anything was changed for them). One is found where the exit code is not 0, and
named where the text has the weight or node and the kind of the defect.

{rows}

| planted | in | found | named | said |
|---|---|---|---|---|
{planted}

| converter | networks | beside the original | SQNR, dB |
|---|---|---|---|
{converters}

On a processor without VNNI products of 8 bits are added in 16, where they saturate, in ONNX Runtime and in OpenVINO;
the record says so where the same file is right with kernels that do not, and what to do
([finding](../../findings/openvino-eight-bit-products-saturate.sh)); weights of 7 bits (`static-reduced`) do not.

Reds of sound files, but for {ended} on which a runtime ends its process:

{reds}

Refused by ONNX's checker, and so not sound:

{invalid}

Not taken by the converter:

{refused}

Measured on {day}: {where} Converters: {versions}.
"""


def write(where: str) -> None:
    """Writes ``docs/evidence/converted.md``; ``where`` says on what host and with which versions."""
    seen = study(False)
    names = dict.fromkeys(one.converter for one in seen.files)
    planted = [
        f"| {one.plant.what} | `{one.plant.file}` | {_yes(one.found)} | {_yes(one.named)} | {_short(one.said)} |"
        for one in seen.asked
    ]
    told = [one for one in seen.files if one.said]
    reds = [
        f"- `{one.stem}`, {one.result}: {REAL.get(one.stem) or '; '.join(one.said)}"
        for one in told if not any(map(process_ended, one.said))
    ]  # fmt: skip
    PAGE.write_text(TEXT.format(
        rows=table([*rows_of(seen)]), planted="\n".join(planted),
        converters="\n".join(_line(name, [one for one in seen.files if one.converter == name]) for name in names),
        reds=_list(reds), ended=len(told) - len(reds), invalid=_list([f"- {one}" for one in seen.invalid]),
        refused=_list([f"- {one}" for one in seen.refused]), where=where, versions="; ".join(seen.versions),
        day=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    ), encoding="utf-8")  # fmt: skip


def _few(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more, below" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(lines) or "None."


def _yes(said: bool) -> str:
    return "yes" if said else "no"


def _short(text: str) -> str:
    told = text.partition(" converted: ")[2] or text
    line = " ".join(told.split()).replace("|", "\\|")
    return line if len(line) <= 160 else f"{line[:160]} ..."


def _line(name: str, files: Sequence[Sound]) -> str:
    counts = Counter(one.result for one in files)
    told = ", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result])
    decibels = [one.decibels for one in files if one.decibels is not None]
    ends = f"{min(decibels):.1f} to {max(decibels):.1f}" if decibels else ""
    return f"| {name} | {', '.join(one.network for one in files)} | {told} | {ends} |"
