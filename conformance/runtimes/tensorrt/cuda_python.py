"""What is needed of ``pycuda.driver``, by the same names, on NVIDIA's cuda-python.

cuda-python has wheels where pycuda is compiled on installation. Its functions are those of the CUDA driver: each
returns a tuple that begins with a CUresult.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from types import ModuleType
from typing import Any, SupportsInt

import numpy as np

from conformance.process.arrays import Array


class Error(RuntimeError):
    """A call of the CUDA driver failed. Cause: the text has the function and CUDA's own words."""


class MemoryError(Error):
    """The device has no memory of that size left, or the host none that can be page-locked."""


def _call(name: str, *given: object) -> Any:
    """Call a function of the driver, and return what it gives. Raises Error."""
    import cuda.bindings.driver as cuda

    result, *values = getattr(cuda, name)(*given)
    if result != cuda.CUresult.CUDA_SUCCESS:
        _, text = cuda.cuGetErrorString(result)
        kind = MemoryError if result == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY else Error
        raise kind(f"{name} failed: {(text or str(result).encode()).decode()}")
    return values[0] if values else None


def _free_with(owner: object, function: str, handle: object) -> None:
    """Let the driver free ``handle`` once nobody holds ``owner``."""
    import cuda.bindings.driver as cuda

    # at the end of the process the driver frees everything, and may itself be gone
    weakref.finalize(owner, _free, cuda, _call("cuCtxGetCurrent"), function, handle).atexit = False


def _free(cuda: ModuleType, context: object, function: str, handle: object) -> None:
    """Free ``handle`` in its context, which need not be current then. A context that is lost has nothing to free."""
    if cuda.cuCtxPushCurrent(context)[0] == cuda.CUresult.CUDA_SUCCESS:
        getattr(cuda, function)(handle)
        cuda.cuCtxPopCurrent()


def init() -> None:
    """Start the driver. Raises what cuda-python raises where there is no driver, and Error where there is no GPU."""
    _call("cuInit", 0)


def get_driver_version() -> int:
    """Return the latest CUDA that the driver runs: 12090 is 12.9."""
    return int(_call("cuDriverGetVersion"))


def get_version() -> tuple[int, ...]:
    """Return the CUDA that cuda-python was made for, such as (12, 9, 0)."""
    import cuda.bindings

    return (*map(int, cuda.bindings.__version__.split(".")[:2]), 0)


class Device:
    def __init__(self, number: int) -> None:
        self._device = _call("cuDeviceGet", number)

    @staticmethod
    def count() -> int:
        return int(_call("cuDeviceGetCount"))

    def name(self) -> str:
        # of the 256 bytes those after the name mean nothing
        return str(_call("cuDeviceGetName", 256, self._device).partition(b"\0")[0].decode().rstrip())

    def compute_capability(self) -> tuple[int, int]:
        return self._attribute("COMPUTE_CAPABILITY_MAJOR"), self._attribute("COMPUTE_CAPABILITY_MINOR")

    def _attribute(self, name: str) -> int:
        from cuda.bindings.driver import CUdevice_attribute as Attribute

        return int(_call("cuDeviceGetAttribute", getattr(Attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), self._device))

    def total_memory(self) -> int:
        return int(_call("cuDeviceTotalMem", self._device))

    def retain_primary_context(self) -> Context:
        """Return the context that all libraries of the process share. It is kept to the end of the process, as the
        CUDA runtime keeps it."""
        return Context(_call("cuDevicePrimaryCtxRetain", self._device))


class Context:
    def __init__(self, context: object) -> None:
        self._context = context

    def push(self) -> None:
        _call("cuCtxPushCurrent", self._context)

    @staticmethod
    def pop() -> None:
        _call("cuCtxPopCurrent")

    @staticmethod
    def synchronize() -> None:
        _call("cuCtxSynchronize")


class Stream:
    def __init__(self) -> None:
        self._stream = _call("cuStreamCreate", 0)
        _free_with(self, "cuStreamDestroy", self._stream)

    @property
    def handle(self) -> int:
        return int(self._stream)

    def synchronize(self) -> None:
        _call("cuStreamSynchronize", self._stream)


class Event:
    def __init__(self) -> None:
        self._event = _call("cuEventCreate", 0)
        _free_with(self, "cuEventDestroy", self._event)

    def record(self, stream: Stream) -> None:
        _call("cuEventRecord", self._event, stream._stream)

    def synchronize(self) -> None:
        _call("cuEventSynchronize", self._event)

    def time_till(self, other: Event) -> float:
        """Return the milliseconds between two events that have happened."""
        return float(_call("cuEventElapsedTime", self._event, other._event))


class DeviceAllocation:
    """Memory of the device, which its owner frees."""

    def __init__(self, size: int) -> None:
        self._pointer = _call("cuMemAlloc", size)

    def __int__(self) -> int:
        return int(self._pointer)

    def free(self) -> None:
        _call("cuMemFree", self._pointer)


def mem_alloc(size: int) -> DeviceAllocation:
    return DeviceAllocation(size)


def pagelocked_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array in page-locked memory, which is freed with it. CUDA gives no memory of no size."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    address = int(_call("cuMemHostAlloc", size, 0))
    memory = (ctypes.c_byte * size).from_address(address)
    _free_with(memory, "cuMemFreeHost", address)
    return np.frombuffer(memory, dtype).reshape(shape)


def memcpy_htod_async(buffer: SupportsInt, array: Array, stream: Stream) -> None:
    """Copy an array, in C order, to the device. Whoever calls keeps the array until the stream was waited for."""
    _call("cuMemcpyHtoDAsync", int(buffer), array.ctypes.data, array.nbytes, stream._stream)


def memcpy_dtoh_async(array: Array, buffer: SupportsInt, stream: Stream) -> None:
    """Fill an array, in C order, from the device; it holds the values once the stream was waited for."""
    _call("cuMemcpyDtoHAsync", array.ctypes.data, int(buffer), array.nbytes, stream._stream)
