"""The page of measurements: a section for each group, which stays as it is until that group is measured again."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType

from benchmarks.common import ROOT, Row, table

PAGE = ROOT / "docs" / "benchmarks.md"
NOTES = """## Notes

In whole runs every side exports a TorchScript model at two sizes, as the suite does to find one that is baked in,
and a dynamo model at one. What each side does is said at the functions in `benchmarks/`. Some comparisons do not
exist: Polygraphy does not export, and `torch.onnx.testing.assert_onnx_program` takes dynamo's models only.

Measurements with pages of their own: [evidence](index.md#evidence).
"""
_SECTION = re.compile(r"^## (.+)\n", re.M)
TEXT = """# Benchmarks

How fast the suite is, beside a bare script and other tools. Made by `tox run -e dev -- python -m benchmarks`, or by
group: `python -m benchmarks {first}`. Both sides of a ratio are measured in one run and in turn; times are medians
of the repeats, a ratio is the median of their ratios, with the least and the largest behind it. The host is shared:
look at ratios, not at times. A target that only some repeats meet is "unclear".

"""
GROUP = """{what}

{table}

Measured on {day}: {where}

"""


def write(
    group: str, module: ModuleType, rows: Sequence[Row], where: str, groups: Collection[str], page: Path = PAGE
) -> None:
    """Puts the rows of a group into its section of the page, in the order of ``groups``."""
    known = sections(page.read_text(encoding="utf-8")) if page.is_file() else {}
    what = (module.__doc__ or "").strip().partition("\n\n")[0]
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    known[group] = GROUP.format(what=what, table=table(rows), day=day, where=where)
    text = TEXT.format(first=next(iter(groups)))
    text += "".join(f"## {name}\n\n{known[name]}" for name in groups if name in known)
    page.write_text(text + NOTES, encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """What stands under each heading of the page."""
    parts = _SECTION.split(text)[1:]
    return {name: body.strip() + "\n\n" for name, body in zip(parts[::2], parts[1::2], strict=True)}
