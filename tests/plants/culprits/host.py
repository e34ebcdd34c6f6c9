"""The host: a disk, a limit of memory, a package, a processor, and whoever ends processes there."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from typing import Any

from tests.plants import sound as of
from tests.plants.plant import Plant, Planted, Planting, Written
from tests.plants.planting import disk, raising, running, saturating

NO_VNNI = frozenset({"avx2", "f16c"})
QUANTIZED = "runtimes: onnxruntime\nspecials: false\nexport: {torchscript: [17]}\nprecisions: {int8: {}}"
ROWS = f'inputs: {{x: "float32[batch, 6]"}}\ndims: {{batch: 1..4}}\n{QUANTIZED}'
LINEAR = Written(f"module: beside.Linear\n{ROWS}", of.MODULES)
PERCEPTRON = Written(f"module: beside.Perceptron\n{ROWS}", of.MODULES)
NET = Written(of.NET.body.replace("onnxruntime: {config: {session.x64quantprecision: 1}}\n", ""), of.MODULES)
MUCH = of.case(
    "module beside.Much", of.X, "batch: 1..2",
    python="""
import torch


class Much(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x) * (1 / torch.empty(150_000_000).dim())
""",
)  # fmt: skip


def _killed(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return outputs


def _killed_at(target: str) -> Planting:
    """The process is ended from outside while it is at a function."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        from unittest import mock

        def ends(*arguments: Any, **options: Any) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

        with mock.patch(target, ends):
            yield

    return planting


def _wrapped() -> BaseException:
    error = RuntimeError("planted: failed to save the model")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return error


def _without_a_folder() -> BaseException:
    return FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")


DISKS = [
    ("No space left on device", errno.ENOSPC), ("Read-only file system", errno.EROFS),
    ("Disk quota exceeded", errno.EDQUOT),
]  # fmt: skip
STORE, EXPORT = "conformance.models.kept.model_store.Store.put", "conformance.models.cell_run.export"
OPENER = "conformance.runtimes.onnxruntime.open_optimized"
CONVERTING = {
    "no space for a model to be converted": disk(*DISKS[0], "onnx.save"),
    "no folder for temporary files": raising("conformance.models.precision.convert.ranges", _without_a_folder),
    "the process is killed while it converts": _killed_at("conformance.models.precision.convert.convert"),
}


def plants() -> Iterator[Plant]:
    for what, case in {"a layer": LINEAR, "two layers": PERCEPTRON, "convolutions": NET}.items():
        settings = {"examples": 2, "instructions": NO_VNNI}
        name = f"8-bit sums saturate in {what}"
        yield Plant(name, "host", case, saturating, precision="int8", settings=settings)
    for text, number in DISKS:
        yield Plant(f"the store cannot be written: {text}", "host", of.SIN, disk(text, number, STORE))
    yield Plant("no space while loading", "host", of.SOFTMAX, disk(*DISKS[0], OPENER))
    yield Plant("no space while exporting", "host", of.LINEAR, raising(EXPORT, _wrapped))
    for name, planting in CONVERTING.items():
        yield Plant(name, "host", of.NET, planting, check="fidelity", precision="int8")
    for what, body in (("package", "planted_package"), ("command", "command:planted-command")):
        lacking = Written(f"{of.SIN.body}\nneeds: [{body}]", of.SIN.python)
        yield Plant(f"a {what} that is not installed", "host", lacking, sound=of.SIN)
    yield Plant("a limit of memory", "host", MUCH, sound=MUCH, memory_gib=0.2)
    yield Plant("the process is killed while it runs", "host", of.SIN, running("Sin", _killed))
    yield Plant("the process is killed while it exports", "host", of.SIN, _killed_at(EXPORT))
