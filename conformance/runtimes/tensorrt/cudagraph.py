"""A whole engine in one launch: its work on a stream, captured as a CUDA graph.

pycuda has no stream capture, so these are calls of the CUDA driver itself (CUDA Driver API, "Graph Management").
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do meanwhile does not matter."""


@contextlib.contextmanager
def captured(stream: int, enqueue: Callable[[], None], driver: Any = None) -> Iterator[Callable[[], None]]:
    """Captures what ``enqueue`` puts on the stream, and gives a function that launches it there.

    ``stream`` is the handle of a CUDA stream, ``driver`` the CUDA driver library. Raises RuntimeError where something
    on the stream cannot be captured, such as an output whose shape depends on values.
    """
    cuda = ctypes.CDLL("libcuda.so.1") if driver is None else driver
    handle, graph, launchable = ctypes.c_void_p(stream), ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuStreamBeginCapture_v2(handle, THREAD_LOCAL), "the stream cannot be captured")
    try:
        enqueue()
    finally:  # a stream that is left capturing can be used for nothing else
        ended = cuda.cuStreamEndCapture(handle, ctypes.byref(graph))
    _check(ended, "what the engine does cannot be captured as a CUDA graph")
    try:
        _check(
            cuda.cuGraphInstantiateWithFlags(ctypes.byref(launchable), graph, ctypes.c_ulonglong(0)), "no CUDA graph"
        )
        try:
            yield lambda: _check(cuda.cuGraphLaunch(launchable, handle), "the CUDA graph does not run")
        finally:
            cuda.cuGraphExecDestroy(launchable)
    finally:
        cuda.cuGraphDestroy(graph)


def _check(result: int, text: str) -> None:
    if result:
        raise RuntimeError(f"{text}: CUDA error {result}")
