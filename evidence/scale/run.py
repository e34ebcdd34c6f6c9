"""Plants a wrong value in a file, shows that its outputs are others, and has the suite compare both files."""

from __future__ import annotations

import functools
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.scale import LIMIT, models
from benchmarks.scale.bare_file import BATCHES, draw, open_session
from benchmarks.scale.measured import measure
from conformance.process.arrays import Array
from tests.plants.large_files import Change, changed, plants, sound

FILES = {
    "mlp": partial(models.mlp, megabytes=100), "image": partial(models.image, side=1024),
    "decoder": models.decoder,
}  # fmt: skip
SMALL = {
    "mlp": partial(models.mlp, megabytes=8), "image": partial(models.image, side=128),
    "decoder": partial(models.decoder, layers=2, width=64, words=50),
}  # fmt: skip
MOVED = 1e-3
"""The share of its largest value that an output has to be moved by, or a plant proves nothing."""
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Tried in turn where a change has no size of its own, until it moves an output."""
SIZES = sorted({*BATCHES, 4, 6, 7})
"""Sizes of an open dim, of which each is run in ONNX Runtime alone."""
SEEDS = 20261128


@dataclass(frozen=True)
class Outcome:
    """One change: how far it moves an output, and what the suite says of it."""

    change: Change
    moved: float
    code: int | None
    """The exit code; None where the suite did not end in time, or nothing was asked."""
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
    examples: int = 0

    @property
    def is_plant(self) -> bool:
        return self.change.kind != "sound"

    @property
    def counts(self) -> bool:
        """True if the change is what it is meant to be; else it is void."""
        return self.moved >= MOVED if self.is_plant else self.moved < MOVED

    @property
    def said(self) -> str:
        """The verdict of the suite, in a word or a few."""
        if not self.counts:
            return "void"
        if self.code is None:
            return f"not within {LIMIT:g} s"
        return {0: "right", 1: ", ".join(self.errors) or "failed", 5: "no verdict"}.get(
            self.code, f"exit {self.code}"
        )

    @property
    def found(self) -> bool:
        """True if an output is called wrong."""
        return self.code == 1 and any(error.startswith("Wrong") for error in self.errors)

    @property
    def passed(self) -> bool:
        return self.code == 0


@functools.cache
def study(quick: bool) -> list[Outcome]:
    """Return the outcome of every plant and of every sound change; with ``quick`` of one of each kind."""
    return list(_outcomes(quick))


def _outcomes(quick: bool) -> Iterator[Outcome]:
    todo = [*plants(), *sound()]
    if quick:
        first: dict[str, Change] = {}
        for change in todo:
            first.setdefault(change.kind, change)
        todo = [*first.values()]
    files: Mapping[str, partial[None]] = SMALL if quick else FILES  # type: ignore[assignment]  # one takes no more
    with tempfile.TemporaryDirectory() as name:
        for change in todo:
            folder = Path(name)
            original = folder / f"{change.subject}.onnx"
            if not original.exists():
                files[change.subject](original)
            yield outcome_of(change, original, folder / "one")


def outcome_of(change: Change, original: Path, folder: Path) -> Outcome:
    """Change a file in an empty folder of its own, and have the suite compare both."""
    folder.mkdir()
    try:
        shutil.copy(original, folder / "original.onnx")
        moved = planted(change, folder)
        empty = Outcome(change, moved, None)
        return _compared(empty, folder) if empty.counts else empty
    finally:
        shutil.rmtree(folder)


def planted(change: Change, folder: Path) -> float:
    """Write the changed file, and return how far it moves an output, as a share of the largest value."""
    model = onnx.load(folder / "original.onnx")
    wanted = [*_answers(folder / "original.onnx")]
    moved = 0.0
    for strength in STRENGTHS if change.grows else STRENGTHS[:1]:
        (folder / "changed.onnx").write_bytes(changed(model, change, strength).SerializeToString())
        pairs = zip(_answers(folder / "changed.onnx"), wanted, strict=True)
        moved = max(float(np.abs(got - right).max() / np.abs(right).max()) for got, right in pairs)
        if moved >= MOVED:
            break
    return moved


def _answers(file: Path) -> Iterator[Array]:
    """Yield all outputs in ONNX Runtime without its optimizer, of values that the suite has no part in."""
    import onnxruntime

    session = open_session(str(file), onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    is_open = any(not isinstance(size, int) for one in session.get_inputs() for size in one.shape)
    rng = np.random.default_rng(SEEDS)
    for batch in SIZES if is_open else (1,):
        yield from session.run(None, draw(session, batch, rng))


def _compared(empty: Outcome, folder: Path) -> Outcome:
    """Run ``conformance check original.onnx changed.onnx`` without the search for who is at fault."""
    words = ["original.onnx", "changed.onnx", "--precision", "fp32", "--runtime", "onnxruntime", "--store", "store"]
    command = [sys.executable, "-m", "evidence.scale.verdict", *words, "--output", "json=report.json"]
    cost = measure(command, folder, LIMIT)
    file = folder / "report.json"
    report = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"models": []}
    records = [record for model in report["models"] for record in model["records"]]
    errors = tuple(dict.fromkeys(record["error"] for record in records if record["status"] == "failed"))
    examples = sum(record["examples"] for record in records if record["check"] == "accuracy")
    outcome = Outcome(empty.change, empty.moved, cost.code, errors, cost.seconds, examples)
    print(f"{outcome.change.subject}, {outcome.change.name}: {outcome.said}", file=sys.stderr, flush=True)
    return outcome
