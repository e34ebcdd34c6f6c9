"""Write ``docs/evidence/numbers.md``, and the rows as data beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import numpy as np

from benchmarks.common import ROOT
from evidence.numbers.functions import FUNCTIONS
from evidence.numbers.right import FORMATS
from evidence.numbers.run import ALL, SAMPLE
from evidence.numbers.tally import Row, Seen

PAGE = ROOT / "docs" / "evidence" / "numbers.md"
DATA = PAGE.with_suffix(".json")
HEAD = """
| operator | runtime | values | worst | at input | mean | wrong | over 4 | of tolerance | falls \
| NaN, infinity, sign of 0 | flushed | by length | s |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""
SUMMARY = """
| type | runtime | operators | all values | does not run | correctly rounded | up to 4 steps off | most of tolerance |
|---|---|---|---|---|---|---|---|
"""
TEXT = """# Every value of unary operators

Made by `tox run -e dev -- python -m evidence numbers`: results of single operators on a CPU, one thread, beside the
correctly rounded ones. An error is counted in steps: 1 is the next number of the type.
{summary}
- *values*: all of the type, or a sample: one of every 256 that follow one another.
- *worst*, *mean*, *wrong* (not correctly rounded), *over 4*: in steps, where both are finite and no zero stands for a
  subnormal. Within a power of two a step is an ulp (D. Goldberg, 1991; J.-M. Muller and others, *Handbook of
  Floating-Point Arithmetic*, section 2.3), among subnormals their spacing. A correctly rounded result, 0 steps off,
  is off by up to half an ulp.
- *of tolerance*: the largest error, as a share of what this suite allows where the largest value of an output is 1 or
  more.
- *falls*: neighbours, of a sample those in it, in the wrong order where the function rises or falls (Sin, Cos, Tan:
  around 0), and by how many steps at most.
- *NaN, infinity, sign of 0*: how many are one in place of another value or the other way, and the first input. A
  result that overflows too early is here, and in no other column. Right are limits (Gelu of minus infinity is -0),
  and of Pow what IEEE 754 says.
- *flushed*: zero in place of a subnormal, or what zero gives for a subnormal input, off by more than a step.
- *by length*: other results in an input of 7 values than in a long one, of those tried.
- *s*: of the processor, for the right values and the operator.

What is right is a form in float64 in which nothing cancels; beside mpmath it was off by up to 2**{margin} of the
value. Where the value times 1 - 2**-42 and times 1 + 2**-42 are rounded otherwise (Ziv's test), mpmath decides with
400 bits: {asked} of {count} values. The worst and the first result of each kind are in
[the data](numbers.json), as bits.
{tables}
{where} Instruction sets of the rows: {processors}.
"""


def saved() -> list[Row]:
    """Return the rows of the data."""
    return [Row(**one) for one in json.loads(DATA.read_text(encoding="utf-8"))] if DATA.exists() else []


def updated(before: Sequence[Row], now: Sequence[Row]) -> list[Row]:
    """Return rows in the order of the page: for each kernel what was measured last, but no sample in place of all
    values by the same version and kind of processor."""
    rows: dict[tuple[int, int, str], Row] = {}
    for row in (*before, *now):
        key = [*FORMATS].index(row.format), [*FUNCTIONS].index(row.function), row.runtime
        old = rows.get(key, row)
        alike = (row.version, row.processor) == (old.version, old.processor)
        if not (alike and row.values == SAMPLE != old.values):
            rows[key] = row
    return [rows[key] for key in sorted(rows)]


def write(rows: Sequence[Row], margin: float, where: str) -> None:
    """Write the page and the data. ``margin`` is how far the forms in float64 are off."""
    DATA.write_text("[\n" + ",\n".join(json.dumps(asdict(row)) for row in rows) + "\n]\n", encoding="utf-8")
    most = sorted((row for row in rows if row.error is None), key=lambda row: row.count)
    once = {(row.format, row.function): row for row in most}.values()
    tables = (
        f"\n## {of}\n{HEAD}" + "\n".join(line(row) for row in rows if row.format == of) + "\n" for of in FORMATS
    )
    text = TEXT.format(
        summary=SUMMARY + "".join(summary(rows)), margin=math.ceil(math.log2(margin)), where=where,
        asked=f"{sum(row.by_mpmath for row in once):,}", count=f"{sum(row.count for row in once):,}",
        tables="".join(tables), processors=", ".join(sorted({row.processor for row in rows})),
    )  # fmt: skip
    PAGE.write_text(text, encoding="utf-8")


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each type and runtime."""
    for of, name in dict.fromkeys((row.format, row.runtime) for row in rows):
        mine = [row for row in rows if (row.format, row.runtime) == (of, name)]
        run = [row for row in mine if row.error is None]
        most = max(run, key=lambda row: row.largest.get("share", 0), default=None)
        share = f"{most.largest.get('share', 0):.2g} ({most.function})" if most else ""
        within = [sum(row.largest.get("worst", 0) <= steps for row in run) for steps in (0, 4)]
        cells = (of, f"{name} {mine[0].version}", len(run), sum(row.values == ALL for row in run),
                 len(mine) - len(run), *within, share)  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |\n"


def line(row: Row) -> str:
    """Return the line of a row in the table of its type."""
    if row.error is not None:
        return f"| {row.function} | {row.runtime} | does not run |" + " |" * 11
    of = max(row.compared, 1)
    odd = (f"{kind} {row.events[kind]:,}: {number(row, row.at[kind])}"
           for kind in ("nan", "infinity", "sign") if kind in row.events)  # fmt: skip
    falls = f"{row.events['fall']:,}, by {row.largest['fall']:,}" if "fall" in row.events else ""
    flushed = f"{row.events['flushed']:,}" if "flushed" in row.events else ""
    cut = f"{row.events['by length']:,} of {row.cut:,}" if "by length" in row.events else ""
    cells = (
        row.function, row.runtime, row.values, f"{row.largest.get('worst', 0):,}",
        number(row, row.at["worst"]) if "worst" in row.at else "", f"{row.steps / of:.2g}",
        f"{100 * row.off / of:.2g} %", f"{100 * row.events.get('over', 0) / of:.2g} %",
        f"{row.largest.get('share', 0):.2g}", falls, "; ".join(odd), flushed, cut, f"{row.seconds:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def number(row: Row, seen: Seen) -> str:
    """Return an input as its bits and as a number."""
    of = FORMATS[row.format]
    bits = np.array(seen[0], of.bits)
    return f"`{seen[0]:0{2 * of.bits.itemsize}x}` {float(bits.view(of.dtype)):.5g}"
