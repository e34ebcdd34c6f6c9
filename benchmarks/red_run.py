"""A run of which nearly half is red beside the same run without the defects: seconds, lines, what is explained.

Each case has a symbolic or a translation of its own that is wrong in one way, and a sound twin; the sound run leaves
all of these to the exporter.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Row
from conformance.results.records.run_file import read_run
from tests.plants.location.exports import Plant, plants

MOST_RATIO, MOST_LINES = 3.0, 15
_OWN = re.compile(r", (?:symbolics|translations): \{.*?\}+(?=\}\}$)", re.M)
_LEFT = re.compile(r" (?:(\d+)(?: (s|min))? to )?(\d+) (s|min) left")
_UNITS = {"s": 1.0, "min": 60.0}


@dataclass(frozen=True)
class Ran:
    seconds: float
    lines: list[tuple[float, str]]
    """The lines that it printed, each with the seconds after which."""
    records: list[dict[str, Any]]


def rows(quick: bool) -> Iterator[Row]:
    chosen = [plant for plant in plants() if plant.name.startswith(("symbolic", "translation"))]
    chosen = chosen[::10] if quick else chosen
    with tempfile.TemporaryDirectory(prefix="conformance-red-") as folder:
        green = _run(Path(folder) / "green", chosen, defects=False)
        red = _run(Path(folder) / "red", chosen, defects=True)
    failed = [record for record in red.records if record.status == "failed"]
    ratio = red.seconds / green.seconds
    yield Row(
        f"a run of {len(chosen)} defects, {len(failed)} of {len(red.records)} cells red, from an empty store",
        f"{red.seconds:.0f} s", f"without the defects, {green.seconds:.0f} s", f"{ratio:.2f} ×",
        f"at most {MOST_RATIO:g} ×", ratio <= MOST_RATIO,
    )  # fmt: skip
    left = sum(record["unexplained"] for record in failed)
    yield Row("red cells that are explained in that run", f"{len(failed) - left} of {len(failed)}")
    findings = sum(line.startswith("FAILED ") for _, line in red.lines)
    printed = sum(1 for _, line in red.lines) / max(findings, 1)
    yield Row(
        "lines printed for a finding, all lines counted", f"{printed:.1f}", f"{findings} findings",
        target=f"at most {MOST_LINES}", met=printed <= MOST_LINES,
    )  # fmt: skip
    for part in (0.25, 0.5, 0.75):
        told = _estimate(green, part)
        if told is not None:
            low, high, at = told
            truth = green.seconds - at
            yield Row(
                f"seconds left at {part:.0%} of the sound run", f"{truth:.0f} s", f"{low:.0f} to {high:.0f} s said",
                target="within", met=low <= truth <= high,
            )  # fmt: skip


def _estimate(run: Ran, part: float) -> tuple[float, float, float] | None:
    """Return what the line before this part of the run says is left, in seconds, and when it was printed."""
    told = [(at, match) for at, line in run.lines if (match := _LEFT.search(line)) and at <= part * run.seconds]
    if not told:
        return None
    at, match = told[-1]
    unit = _UNITS[match[4]]
    high = float(match[3]) * unit
    low = float(match[1]) * _UNITS[match[2] or match[4]] if match[1] else high
    return low - unit / 2, high + unit / 2, at


_OPSETS = {"[17]": ("[14, 15, 16, 17]", "[16, 17]"), "[18]": ("[18, 19, 20, 21]", "[18, 20]")}
"""The opsets of a plant, and those at which the case and its twin run."""


def _run(folder: Path, chosen: list[Plant], *, defects: bool) -> Ran:
    (folder / "cases").mkdir(parents=True)
    body = ""
    for number, plant in enumerate(chosen):
        (folder / "cases" / f"beside_{number}.py").write_text(plant.python, encoding="utf-8")
        for twin, name in enumerate(("case", "twin")):
            text = plant.body.replace("beside.", f"beside_{number}.")
            for old, new in _OPSETS.items():
                text = text.replace(old, new[twin])
            lines = (text if defects and not twin else _OWN.sub("", text)).splitlines()
            body += "\n".join([f"{name}_{number}:", f"  about: {plant.name!r}", *(f"  {line}" for line in lines), ""])
    (folder / "cases" / "all.yaml").write_text(body, encoding="utf-8")
    command = [sys.executable, "-u", "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "conformance"]
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed = [(time.monotonic() - start, line.rstrip("\n")) for line in process.stdout]
    process.wait()
    return Ran(time.monotonic() - start, printed, read_run(folder / "reports/latest")[1])
