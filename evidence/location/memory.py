"""The memory of a cell that fails and is located, against the same cell where it passes."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from benchmarks.scale.measured import proportional

NETWORK, QUICK = "classifier-name_resnet50", "softmax"
TICK = 0.05
"""Seconds between two looks at the memory."""
FACTOR = 1.01
"""By how much the output of the last product is off in the model that is wrong."""


@dataclass(frozen=True)
class Peaks:
    """The most memory that a cell of a network took, in bytes, with all of its processes."""

    network: str
    sound: int
    wrong: int
    told: str
    """The node that was named for the wrong one."""

    @property
    def ratio(self) -> float:
        return self.wrong / self.sound


@functools.cache
def peaks(quick: bool) -> Peaks:
    network = QUICK if quick else NETWORK
    (sound, _), (wrong, told) = (_watched(network, how) for how in ("sound", "wrong"))
    return Peaks(network, sound, wrong, told)


def _watched(network: str, how: str) -> tuple[int, str]:
    from conformance.process.worker import children

    most = 0
    with tempfile.TemporaryFile("w+") as said:
        command = [sys.executable, "-m", "evidence.location", network, how]
        process = subprocess.Popen(command, cwd=ROOT, stdout=said)
        while process.poll() is None:
            most = max(most, sum(proportional(pid) for pid in (process.pid, *children.below(process.pid))))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TICK)
        said.seek(0)
        text = said.read().strip()
    if process.returncode:
        raise RuntimeError(f"{command} gave {process.returncode}: {text[-2000:]}")
    return most, text.splitlines()[-1]


def run(network: str, how: str) -> None:
    """Runs the TorchScript cell of a case, with an export that is wrong or not, and prints the node that its record
    names."""
    from conformance.case.files.case_file import case_files, load
    from conformance.case.plan.catalogue import plan
    from conformance.case.plan.settings import Settings
    from conformance.cells.red import explain_cell
    from conformance.process.worker.progress_note import Progress
    from conformance.process.worker.warm import prepare_process
    from tests.plants import edits
    from tests.plants.plant import Planted
    from tests.plants.planting import exported

    prepare_process()
    case = next(case for file in case_files([ROOT / "cases"]) for case in load(file) if case.name == network)
    wanted = "accuracy", "torchscript", "onnxruntime", "fp32"
    cells = (one for one in plan(case) if (one.check, one.exporter, one.runtime, one.precision) == wanted)
    cell = next(cells)
    planted = Planted()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if how == "wrong":
            stack.enter_context(exported(_off(edits))(planted))
        record = explain_cell(Progress(), cell, Settings(store=Path(folder) / "models", examples=2))
    if (record.status == "failed") != (how == "wrong"):
        raise RuntimeError(f"{cell.id} is {record.status}: {record.reason}")
    print((record.operator or {}).get("node") or "nothing is named")


def _off(edits: Any) -> Any:
    """The last product of a network, or its softmax, is off."""

    def edit(model: Any) -> int:
        for operator in ("Gemm", "MatMul", "Softmax"):
            times: int = edits.behind(operator, edits.times(FACTOR))(model)
            if times:
                return times
        return 0

    return edit
