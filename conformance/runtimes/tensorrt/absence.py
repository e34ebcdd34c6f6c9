"""Why TensorRT cannot run on this host: each lack has its own reason, told in records and never taken for a pass."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from conformance.process.errors import attempt
from conformance.runtimes.tensorrt.driver import find_driver, load_driver

OLDEST = "8.6"
"""The first version that has named tensors, output allocators, explicit Q/DQ and builder optimization levels."""


def absence() -> str | None:
    """One line that says what is missing and what to do, or None where an engine can be built and run.

    Looks for each thing only after those that it needs, and imports tensorrt only where it is installed.
    """
    if importlib.util.find_spec("tensorrt") is None:
        return "tensorrt is not installed (pip install tensorrt, for the CUDA version of this host's driver)"
    if find_driver() is None:
        return "neither pycuda nor cuda-python is installed (pip install cuda-python)"
    tensorrt = attempt(lambda: importlib.import_module("tensorrt"))
    if isinstance(tensorrt, Exception):  # a missing CUDA library is an ImportError, a broken one may be anything
        return f"tensorrt cannot be imported: {_line(tensorrt)}"
    if not hasattr(tensorrt.IBuilderConfig, "builder_optimization_level"):  # the last of what OLDEST brought
        return f"TensorRT {tensorrt.__version__} is too old: {OLDEST} or later is needed"
    return _no_gpu()


def _no_gpu() -> str | None:
    cuda = attempt(load_driver)
    if isinstance(cuda, ImportError) and "libcuda" in str(cuda):
        return f"no NVIDIA driver: {_line(cuda)}"
    if isinstance(cuda, Exception):
        return f"{find_driver()} cannot be imported: {_line(cuda)}"
    count = attempt(lambda: _count_gpus(cuda))
    if isinstance(count, cuda.Error):
        return f"no GPU: {_line(count)}"
    if isinstance(count, Exception):  # cuda-python looks for the driver's library when it is first called
        return f"no NVIDIA driver: {_line(count)}"
    return None if count else "no GPU: the driver knows none"


def _count_gpus(cuda: ModuleType) -> int:
    cuda.init()
    return int(cuda.Device.count())


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
