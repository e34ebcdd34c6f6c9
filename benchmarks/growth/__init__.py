"""CPU seconds of exporters, converters, simplifiers, by nodes or megabytes.

Nodes are of residual blocks of five small ones, megabytes of layers of 2,048.

Each runs once in a process of its own, with one OpenMP thread; seconds are of the CPU, without imports. The exponent
is of the last two sizes: 1 is linear, 2 quadratic. A program that takes too long is not given larger ones.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Row
from benchmarks.growth.programs import PROGRAMS
from benchmarks.scale import models
from conformance.extras.versions import environments

SCRIPT = Path(__file__).with_name("programs.py")
OTHERS = ("onnxconverter-common==1.16.0", "onnxslim==0.1.98", "onnx==1.23.2", "numpy==2.4.6")
"""Packages of an environment of its own, for the programs that are not among what this package is tested with."""
ELSEWHERE = ("onnxconverter-common's float16 converter", "onnxslim")
EXPORTERS = ("torch.onnx.export, TorchScript", "torch.onnx.export, dynamo")
"""They make a module of so many nodes, and are given no file."""
NODES, MEGABYTES = (250, 1000, 4000, 20_000), (10, 100, 1000)
FEW_NODES, FEW_MEGABYTES = (50, 100), (1, 2)
LIMIT, LONG = 300.0, 40.0
"""Seconds by the clock that a run may take, and of the CPU from which on larger sizes are left out."""


@dataclass(frozen=True)
class Taken:
    """CPU seconds and bytes of one run."""

    seconds: float
    bytes: int


def rows(quick: bool) -> Iterator[Row]:
    """Measure all programs by nodes, then by megabytes; with ``quick`` small sizes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        others = environments.venv(folder / "others")
        environments.install(others, OTHERS, "converters and simplifiers")
        for unit, sizes, make in (
            ("nodes", FEW_NODES if quick else NODES, lambda file, size: models.nodes(file, size)),
            ("MB", FEW_MEGABYTES if quick else MEGABYTES, lambda file, size: models.mlp(file, size)),
        ):
            files = _made(folder, sizes, unit, make)
            for program in PROGRAMS:
                if program not in EXPORTERS or unit == "nodes":
                    python = others if program in ELSEWHERE else Path(sys.executable)
                    yield row_of(program, unit, _grown(python, program, files))


def _made(folder: Path, sizes: Sequence[int], unit: str, make: Callable[[Path, int], None]) -> dict[int, Path]:
    files = {size: folder / f"{unit}-{size}.onnx" for size in sizes}
    for size, file in files.items():
        make(file, size)
    return files


def _grown(python: Path, program: str, files: Mapping[int, Path]) -> dict[int, Taken | str]:
    """Return by size what a program took, or why there is nothing to tell; without sizes that would take long."""
    found: dict[int, Taken | str] = {}
    for size, file in files.items():
        found[size] = taken = run(python, program, file)
        if isinstance(taken, str) or taken.seconds > LONG:
            break
    return found


def run(python: Path, program: str, file: Path) -> Taken | str:
    """Return what a program takes, or why it gave nothing: the limit, or the last line of what it raised."""
    command = [str(python), "-W", "ignore", str(SCRIPT), program, str(file)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=file.parent, env=variables, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:80]
    return Taken(**json.loads(done.stdout.strip().splitlines()[-1]))


def row_of(program: str, unit: str, found: Mapping[int, Taken | str]) -> Row:
    """Return the row of a program: what each size took, and the exponent of the last two."""
    took = {size: taken for size, taken in found.items() if isinstance(taken, Taken)}
    sizes = " / ".join(f"{size:,}" for size in found)
    seconds = " / ".join(f"{each.seconds:.3g} s" if isinstance(each, Taken) else each for each in found.values())
    memory = " / ".join(f"{taken.bytes / 2**20:,.0f}" for taken in took.values())
    return Row(f"{program}: {sizes} {unit}", seconds, f"{memory} MiB", exponent(took))


def exponent(took: Mapping[int, Taken]) -> str:
    """Return by which power of the size the seconds grow between the last two; empty where there are none to tell."""
    if len(took) < 2:
        return ""
    (less, before), (more, after) = [*took.items()][-2:]
    if min(before.seconds, after.seconds) < 1e-3:  # what clocks and caches decide
        return ""
    return f"exponent {math.log(after.seconds / before.seconds) / math.log(more / less):.1f}"
