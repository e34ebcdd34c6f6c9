"""Print the table of the README: ``python plugins/symbolics/make_table.py RUN``, the folder of a run of ``cases``."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import more_symbolics
from more_symbolics.tensor import SYMBOLICS

from conformance.results.records.run_file import LINES
from evidence.operators import ulp

HEAD = "| operator | from opset | × tolerance | ULP |\n|---|---|---|---|"
CALLED_ELSE = {
    "nn.functional.max_unpool1d": "max_unpool2d", "H": "matrix_H",
    "nearest_exact_of_lines": "_upsample_nearest_exact1d", "nearest_exact_of_images": "_upsample_nearest_exact2d",
}  # fmt: skip
"""Operators that samples and cases of another name call."""


def rows(records: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows of the table: of each operator the worst of the values that passed."""
    worst = defaultdict[str, list[tuple[float, int]]](list)
    for record in records:
        if record["check"] in ("accuracy", "specials") and record["status"] in ("passed", "xfailed"):
            found = record["worst"] or {}
            error = found.get("ratio") if record["status"] == "passed" else None
            if (operator := operator_of(record["case"])) is not None:
                worst[operator].append((float(error or 0), ulp(found.get("got"), found.get("wanted")) or 0))
    for name, one in sorted(SYMBOLICS.items(), key=lambda item: item[0].lower()):
        ratio, units = max(worst.get(name, [(-1.0, -1)]))
        said = "not measured | " if ratio < 0 else f"{ratio:.2g} | {units}"
        yield f"| `{name.removeprefix('aten::')}` | {one.least} | {said} |"


def operator_of(case: str) -> str | None:
    """Return the operator of a case: its name's words are those of a sample, or of a case by itself."""
    of_sample = re.fullmatch(r"\w+-([\w.]+)-\d+", case)
    name = case.partition("-")[0] if of_sample is None else of_sample[1]
    name = CALLED_ELSE.get(name.removesuffix(".grad"), name)
    words = [*name.split("."), ""]
    joined = ["_".join(words[first:end]) for first, end in combinations(range(len(words)), 2)]
    known = [f"aten::{one}" for one in sorted(joined, key=len, reverse=True) if f"aten::{one}" in SYMBOLICS]
    return known[0] if known else None


if __name__ == "__main__":
    assert more_symbolics.SYMBOLICS is SYMBOLICS
    lines = (Path(sys.argv[1]) / LINES).read_text(encoding="utf-8").splitlines()
    print(HEAD, *rows([record for record in map(json.loads, lines) if "check" in record]), sep="\n")
