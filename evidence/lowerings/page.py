"""Print the rows of the lowerings, and write ``docs/evidence/lowerings.md``."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.common import HEAD, ROOT, Row
from evidence.counts import share
from evidence.lowerings import selected
from evidence.lowerings.run import COUNT, Answer, study

PAGE = ROOT / "docs" / "evidence" / "lowerings.md"
TARGET = 0.9


def rows(quick: bool) -> Iterator[Row]:
    answers = study(quick)
    counted = [one for one in answers if one.counts]
    found = [one for one in counted if one.red]
    yield share("lowerings made wrong that the catalogue finds", len(found), len(counted), TARGET)
    plain = sum((one.red or {})["plain"] for one in found)
    yield Row("by two samples of each operator, sizes and values grown", str(plain), f"{len(counted)} mistakes")
    asked = [one for one in found if not (one.red or {})["unexplained"]]
    yield Row("exporter and operator named", str(sum(one.named for one in asked)), f"{len(asked)} explained")
    seconds = sorted(one.seconds for one in counted)
    yield Row("seconds for a mistake, median", f"{seconds[len(seconds) // 2]:.0f}", repeats=len(counted))
    yield Row("written down and replaced, as no input showed them", str(len(answers) - len(counted)))
    yield from selected.rows()


TEXT = """# Lowerings made wrong

Made by `tox run -e dev -- python -m evidence lowerings`. {count} mistakes in onnxscript's lowerings, one at a time in
a copy that is first on the path: `evidence/lowerings/plants.yaml`, written before the catalogue was asked, and drawn
by a fixed seed. Each has a call that dynamo lowers with it, right without it and wrong with it; a mistake without
such a call is replaced by the next.{cut}

{table}

Of the catalogue (`evidence/lowerings/catalogue`: dynamo, opset 20, ONNX Runtime) those cells run whose samples call,
as PyTorch traces them, an operator that the mistake's own call calls, until one is red that passes without the
mistake. Two samples of each operator, with other sizes and values, run first: what they find is what the catalogue
found before samples grew by arguments, dtypes, dims counted from the end, NaN and infinities, and by calls that no
sample has but the signature allows. `--changed-since` was asked of one sample of each operator of its first file.

## Not found

{missed}

## Found

| function | mistake | cells | found by | error | at fault | operator |
|---|---|---|---|---|---|---|
{found}

## Replaced

{replaced}

{where}
"""


def write(where: str) -> None:
    """Write the page; ``where`` says on what host and with which versions."""
    answers = study(False)
    counted = [one for one in answers if one.counts]
    missed = [f"- `{one.plant}`: {one.about}. {_why(one)}" for one in counted if not one.red]
    replaced = [
        f"- `{one.plant}`: {one.about}. Its call: {one.sound}, with the mistake {one.planted}."
        for one in answers if not one.counts
    ]  # fmt: skip
    cut = "" if len(counted) == COUNT else f" The run was cut off before {COUNT}."
    PAGE.write_text(
        TEXT.format(
            count=len(counted), cut=cut, table="\n".join((HEAD, *(row.line() for row in rows(False)))),
            missed="\n".join(missed) or "None.", found="\n".join(_found(one) for one in counted if one.red),
            replaced="\n".join(replaced) or "None.", where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip


def _why(one: Answer) -> str:
    if not one.cells:
        return "No cell calls its operator."
    return f"None of the {one.cells} cells that call its operator passes without it and is red with it."


def _found(one: Answer) -> str:
    red = one.red or {}
    operator = (red["operator"] or {}).get("operator")
    cells = f"{one.ran} of {one.cells}"
    parts = (f"`{one.plant}`", one.about, cells, f"`{red['case']}`", red["error"], red["fault"], operator)
    return f"| {' | '.join(map(str, parts))} |"
