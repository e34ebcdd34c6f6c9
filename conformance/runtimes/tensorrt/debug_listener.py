"""What TensorRT calls with each tensor inside of an engine, and that copies them (``IDebugListener``)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import attempt
from conformance.runtimes.tensorrt.build_options import DTYPES
from conformance.runtimes.tensorrt.device import download
from conformance.runtimes.tensorrt.driver import load_driver


def make_listener(trt: Any, stream: Any) -> Any:
    """A listener whose ``arrays`` are the tensors that it was given, by name, and whose ``error`` is why one could
    not be copied, if one could not. Tensors of dtypes that NumPy does not have are passed over."""

    class Listener(trt.IDebugListener):
        def __init__(self) -> None:
            trt.IDebugListener.__init__(self)
            self.arrays: dict[str, Array] = {}
            self.error: Exception | None = None

        def process_debug_tensor(
            self, addr: Any, location: Any, type: Any, shape: Any, name: str, stream: int
        ) -> bool:
            if type.name not in DTYPES:
                return True
            array = np.empty(tuple(shape), DTYPES[type.name])
            on_host = location == trt.TensorLocation.HOST
            error = attempt(lambda: _copy(array, addr, on_host, waits_on))
            if isinstance(error, Exception):  # TensorRT would only print what is raised here
                self.error = error
            else:
                self.arrays[name] = array
            return True

    waits_on = stream
    return Listener()


def _copy(array: Array, address: Any, on_host: bool, stream: Any) -> None:
    """Copy a tensor that is only there while TensorRT waits for this call."""
    load_driver().Context.synchronize()  # TensorRT may compute on streams of its own besides
    if on_host:
        ctypes.memmove(array.ctypes.data, _number(address), array.nbytes)
        return
    download(array, _number(address), stream)
    stream.synchronize()


def _number(address: object) -> int:
    """An address as a number, which the binding declares to be a capsule."""
    if isinstance(address, int):
        return address
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(address, None) or 0)
