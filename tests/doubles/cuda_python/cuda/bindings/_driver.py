"""What of ``cuda.bindings.driver`` works: what it takes to run an engine, on the memory of the double of pycuda.

Nothing is raised for what CUDA refuses: each function returns its result, and None for what it would give.
Asynchronous copies are made when their stream is waited for, so that code that forgets to wait gets old data.
"""
# ruff: noqa: F821 (the recorded classes are put into this module by recorded.install)

import ctypes
import resource
import time
from collections.abc import Callable
from typing import Any

import device_memory as _memory

_TEXTS = {
    "CUDA_ERROR_INVALID_VALUE": b"invalid argument", "CUDA_ERROR_OUT_OF_MEMORY": b"out of memory",
    "CUDA_ERROR_NOT_INITIALIZED": b"initialization error", "CUDA_ERROR_INVALID_DEVICE": b"invalid device ordinal",
    "CUDA_ERROR_NO_DEVICE": b"no CUDA-capable device is detected",
    "CUDA_ERROR_INVALID_CONTEXT": b"invalid device context", "CUDA_ERROR_INVALID_HANDLE": b"invalid resource handle",
    "CUDA_ERROR_NOT_READY": b"device not ready",
    "CUDA_ERROR_ILLEGAL_ADDRESS": b"an illegal memory access was encountered",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": b"operation not permitted when stream is capturing",
}  # fmt: skip
_stack: list[Any] = []  # contexts, current one last
_ready: list[bool] = []  # one for each cuInit
_pinned: dict[int, Any] = {}
_freed: list[Any] = []  # host memory that was freed, kept so that nothing else gets its address
_times: dict[int, float | None] = {}  # when each event happened, and the stream that it waits in
_streams: dict[int, int] = {}


def _number(self: Any) -> int:
    return int(vars(self).get("_address", id(self)))


class CUdevice:
    __int__ = _number


class CUcontext:
    __int__ = _number


class CUstream:
    __int__ = _number


class CUevent:
    __int__ = _number


class CUdeviceptr:
    __int__ = _number


def _ended(name: str, *given: Any) -> tuple[Any, ...]:
    result = getattr(CUresult, name)
    return (result, *(given if name == "CUDA_SUCCESS" else (None for _ in given)))


def _refusal(*, captured: bool = True) -> str | None:
    """Why what needs a context is refused; unless ``captured``, also what is not allowed in a capture."""
    if not _stack:
        return "CUDA_ERROR_INVALID_CONTEXT"
    if _memory.lost:
        return "CUDA_ERROR_ILLEGAL_ADDRESS"
    if _memory.capturing() and not captured:
        return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
    return None


def _wait(stream: int | None = None) -> tuple[Any, ...]:
    refusal = _refusal(captured=False)
    if refusal is None:
        _memory.wait(stream)
    return _ended(refusal or _refusal() or "CUDA_SUCCESS")


def cuInit(Flags: int) -> tuple[Any, ...]:
    if _memory.faulty("nodriver"):  # as cuda-python does on a host without a driver
        text = '"cuda" is an NVIDIA driver library and can only be found via system search. '
        raise RuntimeError(f"{text}Ensure the NVIDIA display driver is installed.")
    if _memory.faulty("nogpu"):
        return _ended("CUDA_ERROR_NO_DEVICE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != hard:  # CUDA reserves addresses for all memory that there is
        return _ended("CUDA_ERROR_OUT_OF_MEMORY")
    _ready.append(True)
    return _ended("CUDA_SUCCESS")


def cuGetErrorString(error: Any) -> tuple[Any, ...]:
    text = _TEXTS.get(error.name)
    return _ended("CUDA_SUCCESS" if text else "CUDA_ERROR_INVALID_VALUE", text)


def cuDriverGetVersion() -> tuple[Any, ...]:
    return _ended("CUDA_SUCCESS", 12090)


def cuDeviceGetCount() -> tuple[Any, ...]:
    return _ended("CUDA_SUCCESS" if _ready else "CUDA_ERROR_NOT_INITIALIZED", 1)


def cuDeviceGet(ordinal: int) -> tuple[Any, ...]:
    if not _ready:
        return _ended("CUDA_ERROR_NOT_INITIALIZED", None)
    return _ended("CUDA_ERROR_INVALID_DEVICE" if ordinal else "CUDA_SUCCESS", CUdevice.make(_address=0))


def cuDeviceGetName(length: int, dev: Any) -> tuple[Any, ...]:
    return _ended("CUDA_SUCCESS", f"{_memory.NAME}\0".encode().ljust(length)[:length])


def cuDeviceGetAttribute(attrib: Any, dev: Any) -> tuple[Any, ...]:
    known = {"COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 0}
    value = known.get(attrib.name.removeprefix("CU_DEVICE_ATTRIBUTE_"))
    return _ended("CUDA_ERROR_INVALID_VALUE" if value is None else "CUDA_SUCCESS", value)


def cuDeviceTotalMem(dev: Any) -> tuple[Any, ...]:
    return _ended("CUDA_SUCCESS", _memory.TOTAL)


def cuDevicePrimaryCtxRetain(dev: Any) -> tuple[Any, ...]:
    return _ended("CUDA_SUCCESS", CUcontext.make())


def cuCtxPushCurrent(ctx: Any) -> tuple[Any, ...]:
    _stack.append(ctx)
    return _ended("CUDA_SUCCESS")


def cuCtxPopCurrent() -> tuple[Any, ...]:
    return _ended("CUDA_SUCCESS", _stack.pop()) if _stack else _ended("CUDA_ERROR_INVALID_CONTEXT", None)


def cuCtxGetCurrent() -> tuple[Any, ...]:
    return _ended("CUDA_SUCCESS", _stack[-1] if _stack else CUcontext.make(_address=0))


def cuCtxSynchronize() -> tuple[Any, ...]:
    return _wait()


def cuStreamCreate(Flags: int) -> tuple[Any, ...]:
    made = CUstream.make()
    _streams[int(made)] = 0
    return _ended(_refusal() or "CUDA_SUCCESS", made)


def cuStreamSynchronize(hStream: Any) -> tuple[Any, ...]:
    return _wait(int(hStream)) if int(hStream) in _streams else _ended("CUDA_ERROR_INVALID_HANDLE")


def cuStreamDestroy(hStream: Any) -> tuple[Any, ...]:
    known = _streams.pop(int(hStream), None)
    return _ended("CUDA_ERROR_INVALID_HANDLE" if known is None else "CUDA_SUCCESS")


def cuEventCreate(Flags: int) -> tuple[Any, ...]:
    made = CUevent.make(_stream=0)
    _times[int(made)] = None
    return _ended(_refusal() or "CUDA_SUCCESS", made)


def cuEventRecord(hEvent: Any, hStream: Any) -> tuple[Any, ...]:
    event = int(hEvent)
    _times[event], hEvent._stream = None, int(hStream)
    _memory.enqueue(int(hStream), lambda: _times.update({event: time.perf_counter()}))
    return _ended("CUDA_SUCCESS")


def cuEventSynchronize(hEvent: Any) -> tuple[Any, ...]:
    return _wait(hEvent._stream)


def cuEventElapsedTime(hStart: Any, hEnd: Any) -> tuple[Any, ...]:
    start, end = _times[int(hStart)], _times[int(hEnd)]
    if start is None or end is None:
        return _ended("CUDA_ERROR_NOT_READY", None)
    return _ended("CUDA_SUCCESS", max(1e-3, (end - start) * 1e3))


def cuEventDestroy(hEvent: Any) -> tuple[Any, ...]:
    known = _times.pop(int(hEvent), 0.0)
    return _ended("CUDA_ERROR_INVALID_HANDLE" if known == 0.0 else "CUDA_SUCCESS")


def cuMemAlloc(bytesize: int) -> tuple[Any, ...]:
    refusal = _refusal(captured=False)
    if refusal is None and _memory.faulty("oom"):
        refusal = "CUDA_ERROR_OUT_OF_MEMORY"
    if refusal is None and bytesize <= 0:
        refusal = "CUDA_ERROR_INVALID_VALUE"
    if refusal is not None:
        return _ended(refusal, None)
    return _ended("CUDA_SUCCESS", CUdeviceptr.make(_address=_memory.allocate(bytesize)))


def cuMemFree(dptr: Any) -> tuple[Any, ...]:
    if int(dptr) not in _memory._live:
        return _ended("CUDA_ERROR_INVALID_VALUE")
    _memory.free(int(dptr))
    return _ended("CUDA_SUCCESS")


def cuMemHostAlloc(bytesize: int, Flags: int) -> tuple[Any, ...]:
    refusal = _refusal(captured=False) or ("CUDA_ERROR_INVALID_VALUE" if bytesize <= 0 else None)
    if refusal is not None:
        return _ended(refusal, None)
    buffer = ctypes.create_string_buffer(bytesize)
    _pinned[ctypes.addressof(buffer)] = buffer
    return _ended("CUDA_SUCCESS", ctypes.addressof(buffer))


def cuMemFreeHost(p: Any) -> tuple[Any, ...]:
    if p not in _pinned:
        return _ended("CUDA_ERROR_INVALID_VALUE")
    _freed.append(_pinned.pop(p))
    return _ended("CUDA_SUCCESS")


def _copy(stream: Any, copy: Callable[[], None]) -> tuple[Any, ...]:
    refusal = _refusal()
    if refusal is None:
        _memory.enqueue(int(stream), copy)
    return _ended(refusal or "CUDA_SUCCESS")


def cuMemcpyHtoDAsync(dstDevice: Any, srcHost: int, ByteCount: int, hStream: Any) -> tuple[Any, ...]:
    def copy() -> None:
        _memory.write(int(dstDevice), ctypes.string_at(srcHost, ByteCount), "the destination of a copy")

    return _copy(hStream, copy)


def cuMemcpyDtoHAsync(dstHost: int, srcDevice: Any, ByteCount: int, hStream: Any) -> tuple[Any, ...]:
    def copy() -> None:
        ctypes.memmove(dstHost, _memory.read(int(srcDevice), ByteCount, "the source of a copy"), ByteCount)

    return _copy(hStream, copy)
