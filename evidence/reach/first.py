"""From an empty folder to the first verdict: the commands, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import run_python

SECONDS = 600.0
"""That a command may take."""
_VERDICTS = {"passed": "passed", "xfailed": "failed as declared", "FAILED": "failed", "skipped": "skipped"}
"""The first words of the lines that are verdicts."""
CONFIG = {
    "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "vocab_size": 99, "max_position_embeddings": 64,
}  # fmt: skip
MODEL = """
import torch
layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)]
net, x = torch.nn.Sequential(*layers).eval(), torch.randn(2, 3, 8, 8)
torch.onnx.export(net, (x,), "net.onnx", input_names=["x"], dynamic_axes={"x": {0: "batch"}}, dynamo=False)
"""


@dataclass(frozen=True)
class Start:
    """Something to be checked, and the commands for it."""

    what: str
    commands: Sequence[str]
    """As a user types them, without ``conformance``."""
    has: str = "nothing"
    """What a user has already."""
    give: Callable[[Path], object] = lambda folder: None
    """Puts that into the folder."""


@dataclass(frozen=True)
class Reached:
    """What came of the commands."""

    start: Start
    first: float | None
    """Seconds until the first verdict stood on the screen; None where there was none."""
    all: float
    """Seconds until the last command ended."""
    verdicts: Mapping[str, int]
    red: Sequence[str]
    """The cells that failed, each with its first line of text."""


STARTS = (
    Start("an ONNX file", ["check net.onnx"], "the file",
        lambda folder: run_python(folder, "-c", MODEL)),
    Start("`torch.nn.LSTM`", ["new lstm --from torch.nn.LSTM --with input_size=6 --with hidden_size=5"]),
    Start(
        "a tiny BERT of transformers", ["new bert --from transformers.BertModel --config tiny.json"],
        "a configuration of seven lines",
        lambda folder: (folder / "tiny.json").write_text(json.dumps(CONFIG), encoding="utf-8"),
    ),
    Start(
        "a ResNet of timm", ["new resnet --from timm.create_model --with model_name=resnet10t --with num_classes=5"]
    ),
)  # fmt: skip


def reached(start: Start) -> Reached:
    """Runs the commands in an empty folder. Raises RuntimeError for one that ends with anything but 0 or 1."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start.give(folder)
        began, first = time.perf_counter(), None
        counts: Counter[str] = Counter()
        red: list[str] = []
        for command in start.commands:
            lines: list[str] = []
            with subprocess.Popen(
                [sys.executable, "-u", "-m", "conformance", *command.split()], cwd=folder, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
            ) as process:  # fmt: skip
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line.rstrip())
                    word = line.partition(" ")[0]
                    if word in _VERDICTS and "[" in line:
                        first = first if first is not None else time.perf_counter() - began
                        counts[_VERDICTS[word]] += 1
                if process.wait(SECONDS) not in (0, 1):
                    raise RuntimeError(f"{command} gave {process.returncode}:\n" + "\n".join(lines[-20:]))
            red += [
                f"{line.split()[1]}: {after.strip()}"
                for line, after in zip(lines, [*lines[1:], ""], strict=True) if line.startswith("FAILED ")
            ]  # fmt: skip
        return Reached(start, first, time.perf_counter() - began, counts, red)
