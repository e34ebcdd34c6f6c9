"""The page of measurements: a section for each group, which stays as it is until that group is measured again."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType

from benchmarks.common import Row, table

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
NOTES = """## Notes

In whole runs every side exports a TorchScript model at two sizes, as the harness does to find one that is baked in,
and a dynamo model at one.

The opsets of one module do not share a capture: it is a small part of an export, so there is little to gain where
exports are cheap, and it takes an API that torch keeps to itself. A shared program is not left as it was either:
each export of it may add a symbol to its range constraints, which are written into the model (the LSTM's nodes
stay the same, its bytes do not).

What each side does is said at the functions in `benchmarks/`. Some comparisons do not exist: Polygraphy does not
export, and `torch.onnx.testing.assert_onnx_program` takes models of the dynamo exporter only.

On pages of their own:

{apart}"""
APART = {
    "latency": ("evidence/latency.md", "how often a budget of time is decided wrongly"),
    "mutants": (
        "mutants.md",
        "how many planted defects are found, here and by other tools, and in which node",
    ),
    "culprits": ("evidence/culprits.md", "how often the culprit of a planted defect is named"),
    "accusations": ("evidence/accusations.md", "whether the suite accuses modules that are sound"),
    "size": ("evidence/size.md", "what 100,000 cells take besides running them"),
    "endurance": ("evidence/endurance.md", "what a long run among hostile cells loses"),
    "location": ("evidence/location.md", "which operator and line are named for a wrong export"),
    "passes": ("evidence/passes.md", "which pass of an optimizer is named"),
    "reduction": ("evidence/reduction.md", "how small the model of a runtime's fault becomes"),
    "findings": ("evidence/findings.md", "how many findings planted causes come to"),
    "repairs": ("evidence/repairs.md", "how many located defects have a fix"),
    "coverage": ("evidence/coverage.md", "what the cells see of a module, and what asking costs"),
    "reach": (
        "evidence/reach.md",
        "which modules and calls are cases without Python, and how soon a verdict is there",
    ),
    "versions": ("evidence/runtime-versions.md", "what other versions make of the catalogue's models"),
    "neighbours": ("evidence/neighbours.md", "whether a case changes the verdict of another cell"),
    "cluster": ("evidence/cluster.md", "a run on a cluster, and what becomes of killed workers"),
    "defects": ("evidence/defects.md", "which mistakes in this package its own tests find"),
    "depends": ("evidence/depends.md", "whether a change of what a verdict depends on is seen"),
}
"""The groups with pages of their own: where, and what they answer."""
_SECTION = re.compile(r"^## (.+)\n", re.M)
TEXT = """# Benchmarks

Made by `tox run -e dev -- python -m benchmarks`, or group by group: `python -m benchmarks {first}` measures what
stands under that name. Both sides of a ratio are measured in one run and in turn; the times are medians of the
repeats, the ratio is the median of the repeats' own ratios with the least and the largest behind it. The host is
shared and noisy: look at the ratios, not at the times. A target that some repeats meet and others do not is
"unclear". A row without a name is about the one above it.

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
    page.write_text(text + _notes(page), encoding="utf-8")


def _notes(page: Path) -> str:
    """What is to be known of all groups, and the pages that were made of those that are not here."""
    apart = "".join(
        f"- {what}: [{name}]({place}), made by `python -m benchmarks {name}`\n"
        for name, (place, what) in APART.items()
        if (page.parent / place).is_file()
    )
    return NOTES.format(apart=apart)


def sections(text: str) -> dict[str, str]:
    """What stands under each heading of the page."""
    parts = _SECTION.split(text)[1:]
    return {name: body.strip() + "\n\n" for name, body in zip(parts[::2], parts[1::2], strict=True)}
