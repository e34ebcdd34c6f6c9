"""The GPU: its context, its memory, its name."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.process.arrays import Array
from conformance.process.errors import attempt, noting, or_else
from conformance.runtimes.tensorrt.driver import load_driver


@contextlib.contextmanager
def current_device() -> Iterator[Any]:
    """The first GPU with its primary context current, which other libraries of the process share."""
    cuda = load_driver()
    cuda.init()
    device = cuda.Device(0)
    context = device.retain_primary_context()
    context.push()
    try:
        with ending_if_lost():
            yield device
            context.synchronize()
    finally:
        context.pop()


@contextlib.contextmanager
def ending_if_lost() -> Iterator[None]:
    """Inside, an error after which CUDA answers everything with that error ends this process, where it is a worker.

    After an illegal address, a failed launch and the like "the process must be terminated and relaunched" (CUDA
    Runtime API, cudaErrorIllegalAddress). A worker that went on would find ever smaller examples that fail just as
    well, and then fail all cells to come.
    """

    def end(_: Exception) -> None:
        lost = _find_loss()
        if lost is not None and multiprocessing.parent_process() is not None:
            print(f"CUDA can do nothing more in this process: {lost}", file=sys.stderr, flush=True)
            os.abort()

    with noting(end):
        yield


def _find_loss() -> str | None:
    """Return why the current CUDA context cannot be used any more, or None."""
    cuda = load_driver()
    error = attempt(lambda: cuda.Context.synchronize())
    return str(error) if isinstance(error, Exception) else None


def facts() -> dict[str, object] | None:
    """Name, compute capability and memory (MiB) of the GPU; the versions of the driver, of the latest CUDA that the
    driver runs, and of the CUDA that the binding was made for. None where there is no GPU."""
    return or_else(None, _read_facts)


def _read_facts() -> dict[str, object]:
    cuda = load_driver()
    cuda.init()
    device = cuda.Device(0)
    return {
        "name": device.name(),
        "compute_capability": ".".join(map(str, device.compute_capability())),
        "memory": device.total_memory() // 2**20,
        "driver": driver_release(),
        "driver_cuda": cuda.get_driver_version(),
        "cuda": ".".join(map(str, cuda.get_version())),
    }


def driver_release(file: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The release of the driver, as ``550.54.14``, where the kernel tells it; many releases share a CUDA version."""
    try:
        release = re.search(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s", file.read_text(errors="replace"))
    except OSError:  # the Linux that runs under Windows has no such file
        return None
    return release[1] if release else None


class Memory:
    """Buffers on the device, by name; a buffer grows when more is asked of it, and all are freed together."""

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[Any, int]] = {}

    def at_least(self, name: str, size: int) -> Any:
        """The buffer of that name with at least ``size`` bytes, and never less than one byte: empty tensors have an
        address too."""
        cuda = load_driver()
        size = max(size, 1)
        if name in self._buffers:
            buffer, room = self._buffers[name]
            if room >= size:
                return buffer
            buffer.free()
            del self._buffers[name]
        self._buffers[name] = cuda.mem_alloc(size), size
        return self._buffers[name][0]

    def free(self) -> None:
        for buffer, _ in self._buffers.values():
            buffer.free()
        self._buffers.clear()


def pinned(array: Array) -> Array:
    """A copy in page-locked memory, which the device reaches without a detour; of an empty array a plain copy."""
    cuda = load_driver()
    if not array.size:  # CUDA gives no memory of no size
        return array.copy()
    copy: Array = cuda.pagelocked_empty((array.size,), array.dtype).reshape(array.shape)  # pycuda makes no 0-d arrays
    copy[...] = array
    return copy


def upload(buffer: object, array: Array, stream: object) -> None:
    """Copy an array to the device, in order with what else is on the stream."""
    cuda = load_driver()
    if array.nbytes:
        cuda.memcpy_htod_async(buffer, array, stream)


def download(array: Array, buffer: object, stream: object) -> None:
    """Copy a device buffer into ``array``, which is filled once the stream has been waited for."""
    cuda = load_driver()
    if array.nbytes:
        cuda.memcpy_dtoh_async(array, buffer, stream)
