"""The environment of a run: versions, processor, flags."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

from conformance import HOME, __version__
from conformance.results.records.host_conditions import installed_version
from conformance.results.records.processor import cpu
from conformance.runtimes.registry import RUNTIMES


def environment(flags: list[str]) -> dict[str, Any]:
    """Plain data for the header of a run file. Versions are read without an import; what asks for a GPU is not."""
    return {
        "conformance": __version__,
        "code": code(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "gpu": gpu(),
        "versions": versions(),
        "flags": flags,
    }


def gpu() -> dict[str, object] | None:
    """The GPU that TensorRT would run on; None where there is none, or no TensorRT, without which asking would only
    take time."""
    from conformance.runtimes.tensorrt.driver import find_driver

    if importlib.util.find_spec("tensorrt") is None or find_driver() is None:
        return None
    from conformance.runtimes.tensorrt.device import facts

    return facts()


@cache
def code() -> str:
    """A hash of this package's own code."""
    return hash_of(HOME)


def hash_of(folder: Path) -> str:
    """Return a hash of all Python below a folder, and of the tables that it reads."""
    digest = hashlib.sha256()
    for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.csv")]):
        digest.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


@cache
def versions() -> dict[str, str | None]:
    """Versions of the packages that decide what a run measures; None for one that is not installed."""
    names = ("torch", "torchvision", "onnx", "onnxscript", "onnx_ir", "onnxruntime", "onnxsim", "onnxslim",
             "numpy", "onnxruntime-extensions", "hypothesis", "pycuda")  # fmt: skip
    packages = {name: (name,) for name in names} | {
        runtime.packages[0]: runtime.packages for runtime in RUNTIMES if runtime.packages
    }
    # A package for one CUDA version, such as tensorrt-cu12, may be there without plain tensorrt.
    return {name: next(filter(None, map(installed_version, others)), None) for name, others in packages.items()}
