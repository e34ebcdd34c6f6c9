"""A loaded engine: running it, measuring it, and what it says of itself; memory for outputs whose shape only a
running engine knows; and its work on a stream as one launch.

Capturing a stream takes calls of the CUDA driver itself (CUDA Driver API, "Graph Management"), as pycuda has none.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import Unavailable, attempt
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.tensorrt.absence import absence
from conformance.runtimes.tensorrt.build import (
    check_cuda,
    load_plugins,
    make_engine,
    make_log,
    recipe,
    strongly_typed,
)
from conformance.runtimes.tensorrt.build_options import DTYPES, Build
from conformance.runtimes.tensorrt.debug_listener import make_listener
from conformance.runtimes.tensorrt.device import (
    Memory,
    current_device,
    download,
    ending_if_lost,
    facts,
    pinned,
    upload,
)
from conformance.runtimes.tensorrt.driver import load_driver
from conformance.runtimes.tensorrt.engines import Engines
from conformance.runtimes.tensorrt.trtexec import trtexec, typing_options


@contextlib.contextmanager
def open_model(model: Path, libraries: Sequence[str], build: Build) -> Iterator[TensorRTSession]:
    """Build an engine, or take it from the store, and load it.

    Raises Unavailable where this host has no TensorRT that can use its GPU; UnsupportedModel, ShapeInput, BuildFailed
    or what TensorRT raises where the engine cannot be built or loaded. ``libraries``, which are ONNX Runtime's, play
    no part; TensorRT's plugins are in ``build``.
    """
    missing = absence()
    if missing is not None:
        raise Unavailable(missing)
    import tensorrt

    with contextlib.ExitStack() as stack:
        stack.enter_context(current_device())
        session = TensorRTSession(tensorrt, model, build)
        stack.callback(session.close)
        yield session


class TensorRTSession:
    """One engine with one execution context, one stream, and buffers that grow as they are needed."""

    def __init__(self, trt: Any, model: Path, build: Build) -> None:

        self._trt, self._model, self._build = trt, model, build
        self._log = make_log(trt)
        self._log.forget()
        self._engine: Any = None
        self._context: Any = None
        self._allocators: dict[str, Any] = {}
        self._memory = Memory()
        self.built_seconds: float | None = None
        """Seconds that building took, or None where the engine came from the store."""
        check_cuda(trt, self._log)
        # The runtime has to live as long as its engine.
        self._runtime = trt.Runtime(self._log)
        self._stream = load_driver().Stream()
        load_plugins(trt, self._log, build)
        graph = read_graph(model).graph
        try:
            self._engine, size = self._load()
            self._renew_context()
            self._describe(graph, size)
        except BaseException:  # also Ctrl-C: nobody else gives the memory back
            self.close()
            raise

    def _describe(self, graph: Any, size: int) -> None:
        """Read names and dtypes; ``arithmetic`` gets what the record says of the engine, which has ``size`` bytes."""
        trt, build = self._trt, self._build
        self._outputs = [output.name for output in graph.output]
        self._inputs = [name for name in self._names() if self._mode(name) == trt.TensorIOMode.INPUT]
        declared = {value.name: _numpy_dtype(value) for value in (*graph.input, *graph.output)}
        self._declared = {name: declared[name] for name in (*self._inputs, *self._outputs)}
        self._dtypes = {name: self._dtype(name) for name in self._declared}
        cast = {name: dtype for name, dtype in self._dtypes.items() if dtype != declared[name]}
        self.arithmetic: Mapping[str, object] = {
            "provider": f"TensorRT {trt.__version__}",
            "gpu": (facts() or {}).get("name"),
            "optimizer": True,
            "storage": {"fp16": "float16", "int8": "int8"}.get(build.model_precision, "float32"),
            # Before TensorRT 10 the builder may choose float32 where the model says float16.
            "arithmetic": "as the model says" if strongly_typed(trt) else "chosen by the builder",
            "tf32": build.options.tf32,
            "casts": [f"{name}: {declared[name]} as {dtype}" for name, dtype in cast.items()],
            "options": build.options.as_dict(),
            "engine": {"bytes": size, "built": self.built_seconds},
            "command": trtexec(self._model, build, graph, typing_options(trt, graph)),
        }

    # ---- the engine ----------------------------------------------------------------------------------

    def _load(self) -> tuple[Any, int]:
        """The engine and its size in bytes: from the store where TensorRT takes it, else built now."""
        depends = depends_on(self._trt, self._model, self._build)
        cache = Engines(self._build.store) if self._build.store is not None else None
        kept = cache.get(depends) if cache is not None else None
        engine = None if kept is None else self._runtime.deserialize_cuda_engine(kept)
        if kept is not None and engine is not None:
            return engine, len(kept)
        data, self.built_seconds = make_engine(self._trt, self._log, self._model, self._build, cache, depends)
        engine = self._runtime.deserialize_cuda_engine(data)
        if engine is None:
            raise RuntimeError(f"the engine cannot be loaded: {self._log.errors()}")
        if cache is not None:
            cache.put(depends, data)
        return engine, len(data)

    def _renew_context(self) -> None:
        """Replace the execution context. The old context goes first: in TensorRT 8.6 no two contexts can have the
        engine's only profile."""
        self._context = None
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise RuntimeError(f"no execution context: {self._log.errors()}")

    def _names(self) -> list[str]:
        return [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]

    def _mode(self, name: str) -> Any:
        return self._engine.get_tensor_mode(name)

    def _dtype(self, name: str) -> str:
        said = self._engine.get_tensor_dtype(name)
        if said.name not in DTYPES:
            raise RuntimeError(f"{name} is {said.name}, which NumPy has no dtype for")
        return DTYPES[said.name]

    # ---- running -------------------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        with ending_if_lost():
            return self._run(inputs)

    def _run(self, inputs: Mapping[str, Array]) -> list[Array]:
        arrays = self._set_inputs(inputs)
        for name, array in arrays.items():
            upload(self._memory.at_least(name, array.nbytes), array, self._stream)
        self._set_outputs()
        self._execute(self._context)
        outputs = []
        for name in self._outputs:
            array = np.empty(self._output_shape(name), dtype=self._dtypes[name])
            download(array, self._memory.at_least(name, 0), self._stream)
            outputs.append(array)
        self._stream.synchronize()
        return [
            array if str(array.dtype) == self._declared[name] else array.astype(self._declared[name])
            for name, array in zip(self._outputs, outputs, strict=True)
        ]

    def _set_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Set the inputs' shapes and addresses, and return the arrays as the engine takes them."""
        missing = [name for name in self._inputs if name not in inputs]
        if missing:
            raise ValueError(f"the model has inputs that nothing is given for: {', '.join(missing)}")
        arrays = {name: _as(inputs[name], self._dtypes[name], name) for name in self._inputs}
        for name, array in arrays.items():
            if not self._context.set_input_shape(name, array.shape):
                low, _, high = self._build.shapes[name]
                raise ValueError(f"{name} has shape {array.shape}, the engine is built for {low} to {high}")
            address = int(self._memory.at_least(name, array.nbytes))
            if not self._context.set_tensor_address(name, address):
                raise RuntimeError(f"the address of {name} is refused: {self._log.errors()}")
        return arrays

    def _set_outputs(self) -> None:
        missing = self._context.infer_shapes()
        if missing:
            raise RuntimeError(f"the shapes do not follow from the inputs: {', '.join(missing)} is missing")
        for name in self._outputs:
            shape = tuple(self._context.get_tensor_shape(name))
            if any(size < 0 for size in shape):  # the shape is known only once the values are
                if name not in self._allocators:
                    self._allocators[name] = make_allocator(self._trt, self._memory)
                self._allocators[name].error = None
                taken = self._context.set_output_allocator(name, self._allocators[name])
            else:
                size = int(np.prod(shape, dtype=np.int64)) * np.dtype(self._dtypes[name]).itemsize
                taken = self._context.set_tensor_address(name, int(self._memory.at_least(name, size)))
            if not taken:
                raise RuntimeError(f"the memory of {name} is refused: {self._log.errors()}")

    def _execute(self, context: Any) -> None:
        if context.execute_async_v3(self._stream.handle):
            return
        for name, allocator in self._allocators.items():
            if allocator.error is not None:
                raise RuntimeError(f"no memory for {name}: {allocator.error}") from allocator.error
        raise RuntimeError(f"the engine does not run: {self._log.errors()}")

    def _output_shape(self, name: str) -> tuple[int, ...]:
        shape = tuple(self._context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            self._stream.synchronize()
            return tuple(self._allocators[name].shape)
        return shape

    def inside(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs, and the tensors inside that no fusion removes, by name, of an engine that is ``watched``."""
        listener = make_listener(self._trt, self._stream)
        if not self._context.set_debug_listener(listener):
            raise RuntimeError(f"the tensors inside cannot be looked at: {self._log.errors()}")
        self._context.unfused_tensors_debug_state = True
        try:
            outputs = self.run(inputs)
        finally:
            self._renew_context()  # without the listener
        if listener.error is not None:
            raise RuntimeError(f"a tensor inside cannot be copied: {listener.error}") from listener.error
        return {**listener.arrays, **dict(zip(self._outputs, outputs, strict=True))}

    # ---- measuring -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def stopwatch(self, inputs: Mapping[str, Array], *, transfers: bool = False) -> Iterator[Callable[[], float]]:
        """A function that runs ``inputs`` once and gives the seconds that the device took, by CUDA events.

        With ``transfers`` the copies of inputs and outputs count, from and to page-locked memory.
        """
        cuda = load_driver()
        arrays = self._set_inputs(inputs)
        self.run(inputs)  # allocates memory, which a capture as a CUDA graph could not
        sources = {name: pinned(array) for name, array in arrays.items()}
        results = {name: pinned(np.empty(self._output_shape(name), self._dtypes[name])) for name in self._outputs}
        first, last = cuda.Event(), cuda.Event()
        with contextlib.ExitStack() as stack:
            stack.enter_context(ending_if_lost())
            launch: Callable[[], None] = lambda: self._execute(self._context)  # noqa: E731
            if self._build.options.cuda_graph:
                launch = stack.enter_context(captured(self._stream.handle, launch))

            def once() -> float:
                first.record(self._stream)
                if transfers:
                    for name, array in sources.items():
                        upload(self._memory.at_least(name, 0), array, self._stream)
                launch()
                if transfers:
                    for name, array in results.items():
                        download(array, self._memory.at_least(name, 0), self._stream)
                last.record(self._stream)
                last.synchronize()
                return float(first.time_till(last)) / 1e3

            yield once

    def layers(self, inputs: Mapping[str, Array], rounds: int = 10) -> list[dict[str, str | float]]:
        """Milliseconds by layer, slowest first: the mean of ``rounds`` runs in a context of their own."""
        trt = self._trt

        class Profiler(trt.IProfiler):  # type: ignore[name-defined]  # the module is a value here
            def __init__(self) -> None:
                trt.IProfiler.__init__(self)
                self.spent: dict[str, list[float]] = {}

            def report_layer_time(self, layer_name: str, ms: float) -> None:
                self.spent.setdefault(layer_name, []).append(ms)

        self._renew_context()
        try:
            profiler = Profiler()
            self.run(inputs)  # the first run takes longer than the others
            self._context.profiler = profiler
            for _ in range(rounds):
                self.run(inputs)
        finally:
            self._renew_context()  # without a profiler
        layers = [(name, sum(spent) / rounds) for name, spent in profiler.spent.items()]
        return [{"name": name, "ms": ms} for name, ms in sorted(layers, key=lambda layer: -layer[1])]

    def close(self) -> None:
        """Free all that the session has on the device, though a traceback may hold the session itself."""
        try:
            self._stream.synchronize()
        finally:
            self._context = None
            self._engine = None
            self._runtime = None
            self._allocators.clear()
            self._memory.free()


def depends_on(trt: Any, model: Path, build: Build) -> dict[str, object]:
    """All that an engine depends on."""
    return {
        "model": hashlib.sha256(model.read_bytes()).hexdigest(),
        "build": build.as_dict(),
        "plugins": {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in build.options.plugins},
        "gpu": facts(),
        "tensorrt": str(trt.__version__),
        "recipe": recipe(),
    }


def _as(array: Array, dtype: str, name: str) -> Array:
    """The array in the dtype that the engine takes, in C order. Raises ValueError where a value does not fit."""
    converted = np.asarray(array, dtype=dtype, order="C")
    if array.dtype.kind in "iu" and not np.array_equal(converted, array):
        raise ValueError(f"{name} has values beyond {dtype}, which is what TensorRT takes for {array.dtype}")
    return converted


def _numpy_dtype(value: Any) -> str:
    from onnx import helper

    return str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


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


THREAD_LOCAL = 1
"""CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do meanwhile does not matter."""


@contextlib.contextmanager
def captured(stream: int, enqueue: Callable[[], None], driver: Any = None) -> Iterator[Callable[[], None]]:
    """Capture what ``enqueue`` puts on the stream, and give a function that launches it there.

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
