"""The CUDA driver as Python reaches it: by pycuda where that is installed, else by NVIDIA's cuda-python."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

PACKAGES = {
    "pycuda": ("pycuda", "pycuda.driver"),
    "cuda-python": ("cuda.bindings", "conformance.runtimes.tensorrt.cuda_python"),
}
"""By distribution the package that it brings, and the module that offers what pycuda.driver does. pycuda comes first,
as it has to be compiled and so is there only where somebody chose it; PyTorch for CUDA brings cuda-python along."""


def find_driver() -> str | None:
    """Return which of ``PACKAGES`` is installed, the first of them; None where none is."""
    return next((name for name, (package, _) in PACKAGES.items() if _is_installed(package)), None)


def load_driver() -> ModuleType:
    """Return what offers the CUDA driver by the names of ``pycuda.driver``. ImportError where nothing does."""
    name = find_driver()
    if name is None:
        raise ImportError(f"none of {', '.join(PACKAGES)} is installed")
    return importlib.import_module(PACKAGES[name][1])


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False
