"""What of ``pycuda.driver`` works: what it takes to run an engine.

Asynchronous copies are made when their stream is waited for, so that code that forgets to wait gets old data.
"""

import resource
import time
from typing import Any

import device_memory as _memory
import numpy as np


class Error(Exception):
    pass


class LogicError(Error):
    pass


class MemoryError(Error):
    pass


class RuntimeError(Error):
    pass


_stack: list[Any] = []  # contexts, current one last
_ready: list[bool] = []  # one for each init()


def init(flags: int = 0) -> None:
    if _memory.faulty("nogpu"):
        raise RuntimeError("cuInit failed: no CUDA-capable device is detected")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != hard:  # CUDA reserves addresses for all memory that there is
        raise MemoryError("cuInit failed: out of memory")
    _ready.append(True)


def _active(function: str, *, captured: bool = True) -> None:
    """Refuses what needs a context, and unless ``captured``, what is not allowed while a stream is captured."""
    if not _stack:
        raise LogicError(f"{function} failed: invalid device context - no currently active context?")
    if _memory.lost:
        raise LogicError(f"{function} failed: {_memory.lost[0]}")
    if _memory.capturing() and not captured:
        raise LogicError(f"{function} failed: operation not permitted when stream is capturing")


def _wait(function: str, stream: int | None = None) -> None:
    _active(function, captured=False)
    _memory.wait(stream)
    _active(function)


class Device:
    def __init__(self, arg2: int | str) -> None:
        if not _ready:
            raise LogicError("cuDeviceGet failed: initialization error")
        if arg2 != 0:
            raise LogicError("cuDeviceGet failed: invalid device ordinal")

    @staticmethod
    def count() -> int:
        if not _ready:
            raise LogicError("cuDeviceGetCount failed: initialization error")
        return 1

    def name(self) -> str:
        return _memory.NAME

    def compute_capability(self) -> tuple[int, int]:
        return (8, 0)

    def total_memory(self) -> int:
        return _memory.TOTAL

    def retain_primary_context(self) -> Any:
        return Context.make()


class Context:
    def push(self) -> None:
        _stack.append(self)

    @staticmethod
    def pop() -> None:
        _active("cuCtxPopCurrent")
        _stack.pop()

    @staticmethod
    def synchronize() -> None:
        _wait("cuCtxSynchronize")


class Stream:
    def __init__(self, flags: int = 0) -> None:
        _active("cuStreamCreate")

    @property
    def handle(self) -> int:
        return id(self)

    def synchronize(self) -> None:
        _wait("cuStreamSynchronize", id(self))


class Event:
    def __init__(self, flags: int = 0) -> None:
        _active("cuEventCreate")

    def record(self, stream: Any = None) -> Any:
        self._stream, self._time = id(stream) if stream else 0, None
        _memory.enqueue(self._stream, lambda: vars(self).update(_time=time.perf_counter()))
        return self

    def synchronize(self) -> Any:
        _wait("cuEventSynchronize", getattr(self, "_stream", 0))
        return self

    def query(self) -> bool:
        return getattr(self, "_time", None) is not None

    def time_since(self, arg2: Any) -> float:
        if not (self.query() and arg2.query()):
            raise LogicError("cuEventElapsedTime failed: device not ready")
        return max(1e-3, (self._time - arg2._time) * 1e3)

    def time_till(self, arg2: Any) -> float:
        return float(arg2.time_since(self))


class DeviceAllocation:
    def __int__(self) -> int:
        return int(self._address)

    __index__ = __int__

    def __del__(self) -> None:
        if self._address in _memory._live:
            _memory.free(self._address)

    def free(self) -> None:
        if self._address not in _memory._live:
            raise LogicError("device_allocation::free failed: invalid resource handle")
        _memory.free(self._address)


def mem_alloc(arg1: int) -> Any:
    _active("cuMemAlloc", captured=False)
    if _memory.faulty("oom"):
        raise MemoryError("cuMemAlloc failed: out of memory")
    if int(arg1) <= 0:
        raise LogicError("cuMemAlloc failed: invalid argument")
    return DeviceAllocation.make(_address=_memory.allocate(int(arg1)))


def _source(src: Any) -> bytes:
    view = memoryview(src)
    if not view.contiguous:
        raise ValueError("ndarray is not contiguous")
    return view.tobytes("A")


def _to_device(dest: Any, src: Any) -> None:
    data = _source(src)
    try:
        _memory.write(int(dest), data, "the destination of a copy")
    except Exception as error:
        raise LogicError(f"cuMemcpyHtoD failed: invalid argument ({error})") from error


def _to_host(dest: Any, src: Any) -> None:
    if not memoryview(dest).contiguous:
        raise ValueError("ndarray is not contiguous")
    array = np.asarray(dest)
    try:
        data = _memory.read(int(src), array.nbytes, "the source of a copy")
    except Exception as error:
        raise LogicError(f"cuMemcpyDtoH failed: invalid argument ({error})") from error
    flat = array.reshape(-1, order="A")
    flat[...] = np.frombuffer(data, array.dtype)


def memcpy_htod_async(dest: Any, src: Any, stream: Any = None) -> None:
    _active("cuMemcpyHtoDAsync")
    _memory.enqueue(id(stream) if stream else 0, lambda: _to_device(dest, src))


def memcpy_dtoh_async(dest: Any, src: Any, stream: Any = None) -> None:
    _active("cuMemcpyDtoHAsync")
    _memory.enqueue(id(stream) if stream else 0, lambda: _to_host(dest, src))


def pagelocked_empty(shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0) -> Any:
    _active("cuMemHostAlloc", captured=False)
    if shape == ():
        raise IndexError("the sizes of an array of no dimensions have no first one")  # undefined in pycuda's C++
    empty = np.empty(shape, dtype, order)
    if not empty.nbytes:
        raise LogicError("cuMemHostAlloc failed: invalid argument")
    return empty


def get_version() -> tuple[int, int, int]:
    return (12, 9, 0)


def get_driver_version() -> int:
    return 12090
