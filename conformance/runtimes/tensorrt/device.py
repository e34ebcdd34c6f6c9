"""The GPU: its context, its memory, its name. All of CUDA that is needed, through pycuda."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from conformance.compare import Array


@contextlib.contextmanager
def current_device() -> Iterator[Any]:
    """The first GPU with its primary context current, which other libraries of the process share."""
    import pycuda.driver as cuda

    cuda.init()
    device = cuda.Device(0)
    context = device.retain_primary_context()
    context.push()
    try:
        yield device
    finally:
        context.synchronize()
        context.pop()


def facts() -> dict[str, Any] | None:
    """Name, compute capability, memory (MiB), driver and CUDA version of the GPU; None where there is none."""
    try:
        import pycuda.driver as cuda

        cuda.init()
        device = cuda.Device(0)
        return {
            "name": device.name(),
            "compute_capability": ".".join(map(str, device.compute_capability())),
            "memory": device.total_memory() // 2**20,
            "driver": cuda.get_driver_version(),
            "cuda": ".".join(map(str, cuda.get_version())),
        }
    except Exception:
        return None


class Memory:
    """Buffers on the device, by name; one grows when more is asked of it, and all are freed together."""

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[Any, int]] = {}

    def at_least(self, name: str, size: int) -> Any:
        """The buffer of that name with at least ``size`` bytes, and never less than one: empty tensors have an
        address too."""
        import pycuda.driver as cuda

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


def upload(buffer: Any, array: Array, stream: Any) -> None:
    """Copies an array to the device, in order with what else is on the stream."""
    import pycuda.driver as cuda

    if array.nbytes:
        cuda.memcpy_htod_async(buffer, array, stream)


def download(array: Array, buffer: Any, stream: Any) -> None:
    """Copies a device buffer into ``array``, which is filled once the stream has been waited for."""
    import pycuda.driver as cuda

    if array.nbytes:
        cuda.memcpy_dtoh_async(array, buffer, stream)
