"""From nothing to a first verdict: what the wheel downloads with all that it needs, and how long a first check takes,
in an environment without torch, in a new process and with an empty store."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Row, Spread, in_turn, seconds_of
from tests.kit import wheel

MEGABYTES, SECONDS = 80.0, 20.0
"""At most so many are downloaded, and so many pass from installed to the first verdict."""
CASE = """
tanh:
  about: A first case of one's own.
  forward: torch.tanh(x)
  inputs: {x: "float32[batch, 5]"}
  dims: {batch: 1..64}
"""


def rows(quick: bool) -> Iterator[Row]:
    repeats = 1 if quick else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        built, _ = wheel.built(folder / "dist")
        python = wheel.environment(folder / "environment", built)
        yield _downloaded(python, built, folder / "downloads")
        installed = sum(file.stat().st_size for file in (folder / "environment").rglob("*") if file.is_file()) / 1e6
        yield Row("megabytes on disk, with the environment's own pip", f"{installed:.0f}")
        wheel.run([python, "-c", wheel.MODELS], folder)
        (folder / "case.yaml").write_text(CASE, encoding="utf-8")
        check: list[Path | str] = [python.parent / "conformance", "check", "net.onnx"]
        cells: list[Path | str] = [sys.executable, "-m", "conformance", "run", "case.yaml", "-p", "no:cacheprovider"]

        def of_file() -> float:
            return _seconds(check, folder, wheel.clean())

        def of_module() -> float:
            return _seconds(cells, folder)

        found = in_turn({"file": of_file, "module": of_module}, repeats)
        spread = Spread(found.values["file"])
        yield Row(
            "`conformance check net.onnx` in fp32, fp16 and int8, without torch", f"{found['file']:.1f} s",
            target=f"at most {SECONDS:.0f} s", met=spread.meets(SECONDS), repeats=repeats,
        )  # fmt: skip
        yield Row("`conformance run` on a case of a module, with torch", f"{found['module']:.1f} s", repeats=repeats)


def _downloaded(python: Path, built: Path, folder: Path) -> Row:
    wheel.run([python, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--dest", folder, built])
    sizes = {file.name.split("-")[0]: file.stat().st_size / 1e6 for file in folder.iterdir()}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:4]
    told = ", ".join(f"{name} {sizes[name]:.1f}" for name in largest)
    total = sum(sizes.values())
    return Row(
        f"megabytes downloaded for the wheel and what it needs ({len(sizes)} packages)", f"{total:.1f}", told,
        target=f"at most {MEGABYTES:.0f}", met=total <= MEGABYTES,
    )  # fmt: skip


def _seconds(command: list[Path | str], folder: Path, environment: dict[str, str] | None = None) -> float:
    for left in (".conformance", "reports"):
        shutil.rmtree(folder / left, ignore_errors=True)
    words = [*map(str, command)]
    return seconds_of(lambda: subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True))
