"""From an engine's bytes to answers. Public names must be recorded, with the recorded parameters."""
# ruff: noqa: F821 (the recorded classes are put into this module by recorded.install)

import hashlib
import json
import os
import threading
import time
import weakref
from typing import Any

import device_memory as _memory
import numpy as np

from tensorrt._common import MAJOR, TAG, check_driver, complain, say
from tensorrt._model import Model


class Runtime:
    def __init__(self, logger: Any) -> None:
        self._logger = logger
        check_driver(self)

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        data = bytes(serialized_engine)
        place = "stdArchiveReader.cpp::StdArchiveReader"
        if not data.startswith(TAG):
            return complain(
                self, place, 1, "Serialization assertion magicTagRead == kMAGIC_TAG failed.Magic tag does not match"
            )
        first, _, model = data[len(TAG) :].partition(b"\n")
        header = json.loads(first)
        if header["sha256"] != hashlib.sha256(model).hexdigest():
            return complain(self, place, 1, "Serialization assertion postDeserializationCheck() failed.")
        read = Model(model, MAJOR)
        return ICudaEngine.make(
            _logger=self._logger, _model=read, _header=header, _data=data, _session=read.session(),
            _contexts=weakref.WeakSet(), _held=_memory.Held(len(data)),
        )  # fmt: skip


class ICudaEngine:
    @property
    def num_io_tensors(self) -> int:
        return len(self._names)

    @property
    def _profiles(self) -> list[dict[str, Any]]:
        return self._header["profiles"] or [{}]

    @property
    def _inputs(self) -> list[str]:
        return [one.name for one in self._model.inputs]

    @property
    def _names(self) -> list[str]:
        return [*self._inputs, *(one.name for one in self._model.graph.output)]

    def _known(self, name: str) -> bool:
        if name not in self._names:
            complain(self, "runtime/api/engine", 3, f"given invalid tensor name: {name}.")
        return name in self._names

    def get_tensor_name(self, index: int) -> str:
        return str(self._names[index])

    def get_tensor_mode(self, name: str) -> Any:
        if not self._known(name):
            return TensorIOMode.NONE
        return TensorIOMode.INPUT if name in self._inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return getattr(DataType, self._model.dtype(name)) if self._known(name) else DataType.FLOAT

    def get_tensor_shape(self, name: str) -> Any:
        return Dims(self._model.shape(name)) if self._known(name) else Dims([-1])

    def create_execution_context(self, strategy: Any = None, runtime_config: Any = None) -> Any:
        profile = 0
        if MAJOR < 10 and self._header["profiles"] and any(one._profile == 0 for one in self._contexts):
            text = "Profile 0 has been chosen by another IExecutionContext. Use another profileIndex or destroy "
            text += "the IExecutionContext that use this profile."
            complain(self, "engine.cpp::setOptimizationProfileInternal", 3, text)
            text = "Could not set default profile 0 for execution context. Profile index must be set explicitly."
            say(self, "WARNING", text)
            profile = -1
        made = IExecutionContext.make(
            _logger=self._logger, _engine=self, _profile=profile, _shapes={}, _addresses={}, _allocators={}
        )
        self._contexts.add(made)
        return made

    def serialize(self) -> Any:
        return IHostMemory.make(self._data)


class IExecutionContext:
    name = ""
    profiler = None
    unfused_tensors_debug_state = False

    def set_debug_listener(self, listener: Any) -> bool:
        self._listener = listener
        return True

    @property
    def _watches(self) -> bool:
        # nobody can set a listener where the version has no such tensors
        on = vars(self).get("_listener") is not None and bool(self.unfused_tensors_debug_state)
        return on and bool(self._engine._header["watched"])

    def _show(self, stream: int) -> None:
        """Gives the listener each tensor inside, where it is in device memory for as long as the call takes."""
        for name, array in self._engine._model.inside(self._arrays()).items():
            held = _memory.Held(array.nbytes)
            _memory.write(held._address, array.tobytes(), f"debug tensor {name}")
            kind = getattr(DataType, self._engine._model.dtype(name))
            self._listener.process_debug_tensor(
                held._address, TensorLocation.DEVICE, kind, Dims(array.shape), name, stream
            )

    def set_input_shape(self, name: str, shape: Any) -> bool:
        place = "runtime/api/executionContext.cpp::setInputShape"
        if name not in self._engine._inputs:
            complain(self, place, 3, f"given invalid tensor name: {name}")
            return False
        if self._profile < 0:
            complain(self, place, 3, "Parameter check failed, condition: mOptimizationProfile >= 0")
            return False
        given, declared = tuple(map(int, shape)), self._engine._model.shape(name)
        low, _, high = self._engine._profiles[self._profile].get(name) or [declared] * 3
        fits = len(given) == len(declared)
        if not fits or not all(a <= b <= c or a == -1 for a, b, c in zip(low, given, high, strict=True)):
            text = f"Supplied binding dimension {list(given)} for {name} exceed min ~ max range "
            text += f"{list(low)} ~ {list(high)}"
            complain(self, place, 3, text)
            return False
        self._shapes[name] = given
        return True

    def _input_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._shapes.get(name, self._engine._model.shape(name)))

    def infer_shapes(self) -> list[str]:
        return [name for name in self._engine._inputs if -1 in self._input_shape(name)]

    def _arrays(self) -> dict[str, Any]:
        """The inputs as they are now in device memory; zeros where no address is set."""
        found = {}
        for name in self._engine._inputs:
            dtype, shape = np.dtype(nptype(self._engine.get_tensor_dtype(name))), self._input_shape(name)
            size, address = int(np.prod(shape)) * dtype.itemsize, self._addresses.get(name)
            data = _memory.read(address, size, f"input {name}") if address else bytes(size)
            found[name] = np.frombuffer(data, dtype).reshape(shape)
        return found

    def _output_shapes(self) -> dict[str, Any]:
        if self.infer_shapes():
            return {one.name: self._engine._model.shape(one.name) for one in self._engine._model.graph.output}
        return self._engine._model.output_shapes(self._arrays(), self._engine._session)

    def get_tensor_shape(self, name: str) -> Any:
        if name in self._engine._inputs:
            return Dims(self._input_shape(name))
        return Dims(self._output_shapes()[name]) if self._engine._known(name) else Dims([-1])

    def set_tensor_address(self, name: str, memory: int) -> bool:
        if not self._engine._known(name):
            return False
        if int(memory) % _memory.ALIGNMENT:
            complain(
                self, "executionContext.cpp::setTensorAddress", 3, f"the address of {name} is not 256-byte aligned"
            )
            return False
        self._addresses[name] = int(memory)
        return True

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        known = self._engine._known(name) and name not in self._engine._inputs
        if known:
            self._allocators[name] = output_allocator
        return bool(known)

    def execute_async_v3(self, stream_handle: int) -> bool:
        place, names = "runtime/api/executionContext.cpp::enqueueV3", self._engine._names
        missing = self.infer_shapes()
        for name in [] if missing else names:
            if not self._addresses.get(name) and not self._allocators.get(name):
                complain(self, place, 3, f"Parameter check failed: no address and no allocator of {name}")
                return False
        if missing:
            complain(self, place, 3, f"Not all dimensions of dynamic inputs are specified: {', '.join(missing)}")
            return False
        operators = {one.op_type for one in self._engine._model.graph.node}
        if _memory.faulty("crash", operators):
            os.abort()
        if _memory.faulty("hang", operators):
            threading.Event().wait()
        shapes = self._output_shapes()
        later = all(-1 not in shapes[one.name] for one in self._engine._model.graph.output)
        later = later and not self._allocators and self.profiler is None and not self._watches
        for name in self._engine._inputs:
            size = int(np.prod(self._input_shape(name))) * nptype(self._engine.get_tensor_dtype(name))().itemsize
            _memory.check(self._addresses[name], size, f"input {name}")
        for name, shape in shapes.items():
            if not self._allocators.get(name):
                if -1 in shape:
                    complain(self, place, 3, f"the shape of {name} depends on data: set an IOutputAllocator for it")
                    return False
                size = int(np.prod(shape)) * nptype(self._engine.get_tensor_dtype(name))().itemsize
                _memory.check(self._addresses[name], size, f"output {name}")
        if not later and _memory.capturing():
            complain(self, place, 1, "Cuda Runtime (operation not permitted when stream is capturing)")
            return False
        if later:
            _memory.enqueue(int(stream_handle), lambda: self._compute(int(stream_handle)) and None)
            return True
        _memory.wait(int(stream_handle))
        return self._compute(int(stream_handle))

    def _compute(self, stream: int) -> bool:
        illegal = {one for one in os.environ.get("CONFORMANCE_DOUBLE_ILLEGAL", "").split(",") if one}
        if illegal & {one.op_type for one in self._engine._model.graph.node}:
            _memory.lost.append("an illegal memory access was encountered")
            return True
        if self._watches:
            self._show(stream)
        start = time.perf_counter()
        answers = self._engine._model.run(self._arrays(), self._engine._session)
        milliseconds = (time.perf_counter() - start) * 1e3
        outputs = [one.name for one in self._engine._model.graph.output]
        for index, (name, answer) in enumerate(zip(outputs, answers, strict=True)):
            answer = _spoiled(answer, self._engine._header["noise"], last=index == len(outputs) - 1)
            allocator, address = self._allocators.get(name), self._addresses.get(name, 0)
            if allocator is not None:
                size = answer.nbytes  # of an empty output none, and yet it takes an address
                if hasattr(allocator, "reallocate_output_async") and MAJOR >= 10:
                    address = allocator.reallocate_output_async(name, address, size, _memory.ALIGNMENT, stream)
                else:
                    address = allocator.reallocate_output(name, address, size, _memory.ALIGNMENT)
                if not address:
                    text = f"IOutputAllocator returned nullptr for allocation request of {size} bytes."
                    complain(self, "executionContext.cpp::enqueueV3", 3, text)
                    return False
                allocator.notify_shape(name, Dims(answer.shape))
            if answer.nbytes:
                _memory.write(int(address), answer.tobytes(), f"output {name}")
        nodes = self._engine._model.graph.node
        for one in nodes if self.profiler is not None else ():
            self.profiler.report_layer_time(one.name or one.output[0], milliseconds / len(nodes))
        return True


def _spoiled(answer: Any, noise: float, last: bool) -> Any:
    """An output with the planted faults in it."""
    answer = np.array(answer)
    if noise and answer.dtype.kind == "f":
        answer = (answer * (1 + noise)).astype(answer.dtype)
    if _memory.faulty("wrong") and last and answer.size:
        answer.flat[0] = _off(answer.flat[0])
    if _memory.faulty("rows") and answer.ndim and answer.shape[0] > 1 and answer[1].size:
        row = answer[1:2].reshape(-1)
        answer[1] = np.array([_off(one) for one in row], answer.dtype).reshape(answer[1].shape)
    return answer


def _off(value: Any) -> Any:
    """10 % more; 0.1 for zero, 1 for whole numbers, the other truth value."""
    if value.dtype.kind == "b":
        return not value
    if value.dtype.kind == "f":
        return value * value.dtype.type(1.1) if value else value.dtype.type(0.1)
    return value + 1
