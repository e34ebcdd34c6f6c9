"""Memory for outputs whose shape depends on values, so that only a running engine knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.errors import attempt
from conformance.runtimes.tensorrt.device import Memory


def make_allocator(trt: Any, memory: Memory) -> Any:
    """An allocator that takes memory for an output from ``memory``, and keeps the shape that the output got.

    TensorRT 10 asks it by another name than 8.6. ``error`` is why there was no memory, if there was none.
    """

    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shape: tuple[int, ...] = ()
            self.error: Exception | None = None

        def reallocate_output(self, tensor_name: str, memory_: int, size: int, alignment: int) -> int:
            # CUDA aligns to 256 bytes, TensorRT asks no more
            address = attempt(lambda: int(memory.at_least(tensor_name, size)))
            if isinstance(address, Exception):  # TensorRT would only print what is raised here
                self.error = address
                return 0
            return address

        def reallocate_output_async(
            self, tensor_name: str, memory_: int, size: int, alignment: int, stream: int
        ) -> int:
            return self.reallocate_output(tensor_name, memory_, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Sequence[int]) -> None:
            self.shape = tuple(shape)

    return Allocator()
