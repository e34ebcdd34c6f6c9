"""From saving a symbolic to its verdict: by a run of pytest, and by ``conformance watch``, beside importing torch."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import ROOT, Row, Timings, in_turn, run_python, seconds_of
from benchmarks.whole_run import suite

SHIPPED = ROOT / "cases"
TORCH = 1.6
"""Seconds that importing torch took where the targets in seconds were set; elsewhere they are as many times that."""
PYTEST, FIRST, ALL = 3.0, 0.3, 2.0
"""Seconds: a run of pytest; from a save to the first verdict of a watch, and to its last."""

FIRST_CASE = """
asinh:
  about: A registered symbolic, as somebody writes it who has just begun.
  forward: torch.asinh(x)
  inputs: {x: "float32[batch, 5]"}
  dims: {batch: 1..64}
  export: {torchscript: {opsets: [9, 12, 17, 20], symbolics: {"aten::asinh": symbolics.asinh}}}
  graph: {nodes: {Asinh: 1}}
"""
SYMBOLIC = "def asinh(g, x):\n    return g.op('Asinh', x)\n"


def rows(quick: bool) -> Iterator[Row]:
    """A comment is added to ``symbolics.py`` before each repeat: all cells of its case have to be exported and
    verified again, and the store has what other exporters made. ``-k asinh`` selects three of the shipped cases."""
    repeats = 1 if quick else 5
    with tempfile.TemporaryDirectory() as name:
        yield from _of(_first_case(Path(name) / "one"), "one case of one's own", repeats)
        if not quick:
            shutil.copytree(SHIPPED, Path(name) / "shipped" / "cases")
            yield from _of(Path(name) / "shipped", "the shipped cases", repeats)


def _first_case(folder: Path) -> Path:
    (folder / "cases").mkdir(parents=True)
    (folder / "cases" / "asinh.yaml").write_text(FIRST_CASE, encoding="utf-8")
    (folder / "cases" / "symbolics.py").write_text(SYMBOLIC, encoding="utf-8")
    return folder


def _of(folder: Path, what: str, repeats: int) -> Iterator[Row]:
    symbolics = next(file.parent for file in folder.rglob("asinh.yaml")) / "symbolics.py"
    numbers = itertools.count()

    def edit() -> None:
        with symbolics.open("a", encoding="utf-8") as file:
            file.write(f"# edit {next(numbers)}\n")

    def by_pytest() -> float:
        edit()
        return seconds_of(lambda: suite(folder, "-k", "asinh", cases="cases"))

    def imported() -> float:
        return seconds_of(lambda: run_python(folder, "-c", "import torch"))

    by_pytest()  # fills the store, and leaves bytecode files
    found = in_turn({"import": imported, "pytest": by_pytest}, repeats)
    yield _row(f"save to verdict, `pytest -k asinh`, {what}", found, "pytest", PYTEST)
    with _Watch(folder) as watch:
        seconds: dict[str, float] = {}

        def by_watch() -> float:
            edit()
            seconds.update(watch.after_a_save())
            return seconds["first"]

        found = in_turn({"import": imported, "first": by_watch, "all": lambda: seconds["all"]}, repeats)
    yield _row(f"save to first verdict, `conformance watch -k asinh`, {what}", found, "first", FIRST)
    yield _row("save to the last verdict of the edit", found, "all", ALL)


def _row(what: str, found: Timings, side: str, seconds: float) -> Row:
    limit = seconds / TORCH
    ratio = found.ratio(side, "import")
    return Row(
        what, f"{found[side]:.2f} s", f"importing torch, {found['import']:.2f} s", f"{ratio:.2f}",
        f"at most {seconds:g} s where importing torch takes {TORCH:g} s: {limit:.2f} ×", ratio.meets(limit),
        found.repeats,
    )  # fmt: skip


class _Watch:
    """A watch in a process of its own, and the times at which it says things."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> _Watch:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-m", "conformance", "watch", "-k", "asinh", "--store", "watched"]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdout=subprocess.PIPE, text=True, env={**environment, "OMP_NUM_THREADS": "1"}
        )
        self.after_a_save()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()  # a background job ignores Ctrl-C
        self._process.communicate()

    def after_a_save(self) -> dict[str, float]:
        """Seconds until the first verdict and until the last, counted from now."""
        start = time.perf_counter()
        said: dict[str, float] = {}
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if " passed  " in line or " failed as declared  " in line:
                said.setdefault("first", time.perf_counter() - start)
            if "FAILED" in line:
                raise RuntimeError(line)
            if line.rstrip().endswith("Ctrl-C ends"):
                return {**said, "all": time.perf_counter() - start}
        raise RuntimeError("the watch ended")
