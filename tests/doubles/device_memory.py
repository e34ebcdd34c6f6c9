"""Device memory as host memory, and streams that compute when waited for: what stands behind the doubles."""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

ALIGNMENT = 256  # cuMemAlloc's
NAME = "TensorRT double (no GPU)"
TOTAL = 1 << 34
FAULTS = {"wrong", "rows", "rebuild", "crash", "hang", "build", "nogpu", "nodriver", "olddriver", "oom"}

_live: dict[int, tuple[int, Any]] = {}
"""Size and buffer of each allocation, by address."""
_freed: deque[Any] = deque(maxlen=256)
"""Kept for a while, so that the same address is not handed out again at once and a stale pointer is noticed."""
_pending: dict[int, list[Callable[[], None]]] = {}
"""What streams still have to do; 0 is the default stream."""
_capturing: dict[int, list[Callable[[], None]]] = {}
"""What streams were given while they were captured as CUDA graphs."""
lost: list[str] = []
"""Why this process can do nothing more with CUDA; an error of a kernel cannot be got rid of."""


def faulty(name: str, operators: Collection[str] = ()) -> bool:
    """Whether this fault is planted, through CONFORMANCE_DOUBLE_FAULT (names parted by commas); ``name:Operator``
    plants it in engines that have the operator alone."""
    planted = {}
    for one in os.environ.get("CONFORMANCE_DOUBLE_FAULT", "").split(","):
        fault, _, operator = one.partition(":")
        if fault and fault not in FAULTS:
            raise ValueError(f"CONFORMANCE_DOUBLE_FAULT={one}: the faults are {', '.join(sorted(FAULTS))}")
        planted[fault] = operator
    return name in planted and (not planted[name] or planted[name] in operators)


def allocate(size: int) -> int:
    buffer = ctypes.create_string_buffer(size + ALIGNMENT)
    start = ctypes.addressof(buffer)
    address = start + -start % ALIGNMENT
    _live[address] = (size, buffer)
    return address


def free(address: int) -> None:
    _freed.append(_live.pop(address)[1])


def check(address: int, size: int, what: str) -> None:
    """RuntimeError where the bytes are not all inside one live allocation."""
    for start, (length, _) in _live.items():
        if start <= address < start + length:
            room = start + length - address
            if size > room:
                raise RuntimeError(f"{what} takes {size} bytes, but its allocation has room for {room}")
            return
    raise RuntimeError(f"{what} is at {address:#x}, which is in no live allocation: freed, or never made")


def read(address: int, size: int, what: str) -> bytes:
    check(address, size, what)
    return ctypes.string_at(address, size)


def write(address: int, data: bytes, what: str) -> None:
    check(address, len(data), what)
    ctypes.memmove(address, data, len(data))


class Held:
    """Device memory of an object of TensorRT, given back when that goes."""

    def __init__(self, size: int) -> None:
        self._address = allocate(max(1, size))

    def __del__(self) -> None:
        free(self._address)


def enqueue(stream: int, task: Callable[[], None]) -> None:
    (_capturing if stream in _capturing else _pending).setdefault(stream, []).append(task)


def capturing() -> bool:
    """Whether a stream is being captured, when nothing may be waited for, allocated or freed."""
    return bool(_capturing)


def begin_capture(stream: int) -> None:
    _capturing[stream] = []


def end_capture(stream: int) -> list[Callable[[], None]]:
    return _capturing.pop(stream)


def wait(stream: int | None = None) -> None:
    """Does what a stream, or every stream, still has to do."""
    for handle in [stream] if stream is not None else list(_pending):
        tasks = _pending.get(handle, [])
        while tasks:
            tasks.pop(0)()
