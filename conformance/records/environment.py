"""What a run was made on: versions, processor, flags."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from functools import cache
from typing import Any

from conformance import __version__
from conformance.records.processor import cpu


def environment(flags: list[str]) -> dict[str, Any]:
    """Plain data for the header of a run file; of the packages whose versions it tells it imports pycuda alone."""
    return {
        "conformance": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "gpu": gpu(),
        "versions": versions(),
        "flags": flags,
    }


def gpu() -> dict[str, Any] | None:
    """The GPU that TensorRT would run on; None where there is none, or no pycuda to ask."""
    if importlib.util.find_spec("pycuda") is None:
        return None
    from conformance.runtimes.tensorrt.device import facts

    return facts()


TENSORRT = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11")
"""The packages that bring TensorRT; one that is installed for a CUDA version of its own has no other."""


@cache
def versions() -> dict[str, str | None]:
    """Versions of the packages that decide what a run measures; None for one that is not installed."""
    names = ("torch", "torchvision", "onnx", "onnxscript", "onnx_ir", "onnxruntime", "onnxsim", "numpy",
             "onnxruntime-extensions", "hypothesis", "pycuda", *TENSORRT)  # fmt: skip
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    by_package = [found.pop(name) for name in TENSORRT]
    return {**found, "tensorrt": next((version for version in by_package if version is not None), None)}
