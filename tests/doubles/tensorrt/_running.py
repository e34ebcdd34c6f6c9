"""From an engine's bytes to answers. Public names must be recorded, with the recorded parameters."""
# ruff: noqa: F821 (the recorded classes are put into this module by recorded.install)

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import weakref
from typing import Any

import numpy as np
from pycuda import _memory

from tensorrt._common import MAJOR, RECORDING, TAG, check_driver, complain, gpu, say
from tensorrt._model import Model


class Runtime:
    max_threads = 1

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        check_driver(self)

    @property
    def logger(self) -> Any:
        return self._logger

    def get_plugin_registry(self) -> Any:
        return IPluginRegistry.make()

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        data = bytes(serialized_engine)
        place = "stdArchiveReader.cpp::StdArchiveReader"
        if not data.startswith(b"TensorRT double "):
            return complain(
                self, place, 1, "Serialization assertion magicTagRead == kMAGIC_TAG failed.Magic tag does not match"
            )
        if not data.startswith(TAG):
            built = data.split(b"\n")[0].split()[-1].decode(errors="replace")
            text = f"Version tag does not match. Note: Current Version: {RECORDING['version']}, "
            text += f"Serialized Engine Version: {built}"
            return complain(
                self, place, 1, f"Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.{text}"
            )
        first, _, model = data[len(TAG) :].partition(b"\n")
        try:
            header = json.loads(first)
        except ValueError:
            header = {}
        if header.get("sha256") != hashlib.sha256(model).hexdigest():
            return complain(self, place, 1, "Serialization assertion postDeserializationCheck() failed.")
        if header["gpu"] != gpu():
            text = "The engine plan file is generated on an incompatible device, expecting compute"
            return complain(
                self, "engine.cpp::deserialize", 10, f"{text} of {gpu()} got {header['gpu']}, please rebuild."
            )
        read = Model(model, MAJOR)
        return ICudaEngine.make(
            _logger=self._logger, _model=read, _header=header, _data=data, _session=read.session(),
            _contexts=weakref.WeakSet(), _held=_memory.Held(len(data)),
        )  # fmt: skip


class ICudaEngine:
    device_memory_size = device_memory_size_v2 = 0

    @property
    def name(self) -> str:
        return str(self._header["name"])

    @property
    def num_io_tensors(self) -> int:
        return len(self._names)

    @property
    def num_layers(self) -> int:
        return len(self._model.graph.node)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._profiles)

    @property
    def _profiles(self) -> list[dict[str, Any]]:
        return self._header["profiles"] or [{"shapes": {}, "values": {}}]

    @property
    def _inputs(self) -> list[str]:
        return [one.name for one in self._model.inputs]

    @property
    def _names(self) -> list[str]:
        return [*self._inputs, *(one.name for one in self._model.graph.output)]

    def _known(self, name: str) -> bool:
        if name not in self._names:
            complain(
                self,
                "runtime/api/engine",
                3,
                f"Parameter check failed, condition: given invalid tensor name: {name}.",
            )
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

    def get_tensor_location(self, name: str) -> Any:
        return TensorLocation.HOST if name in self._model.shape_inputs else TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        return name in self._model.shape_inputs

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Any]:
        three = self._profiles[profile_index]["shapes"].get(name) or [self._model.shape(name)] * 3
        return [Dims(one) for one in three]

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
            _logger=self._logger, _engine=self, _profile=profile, _shapes={}, _addresses={}, _allocators={}, _times=[]
        )
        self._contexts.add(made)
        return made

    def create_engine_inspector(self) -> Any:
        return EngineInspector.make(_engine=self)

    def serialize(self) -> Any:
        return IHostMemory.make(self._data)


class EngineInspector:
    def get_engine_information(self, format: Any) -> str:
        model, layers = self._engine._model, []
        for node in model.graph.node:
            name = node.name or node.output[0]
            typed = [{"Name": one, "Format/Datatype": model.dtype(one)} for one in node.output if model.element(one)]
            detailed = {"Name": name, "LayerType": node.op_type, "Outputs": typed}
            layers.append(detailed if self._engine._header["detailed"] else name)
        if format == LayerInformationFormat.ONELINE:
            return "Layers:\n" + "\n".join(map(str, layers)) + "\n"
        return json.dumps({"Layers": layers, "I/O Tensors" if MAJOR >= 11 else "Bindings": self._engine._names})


class IExecutionContext:
    enqueue_emits_profile = True
    name = ""
    profiler = None

    @property
    def engine(self) -> Any:
        return self._engine

    @property
    def active_optimization_profile(self) -> int:
        return int(self._profile)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        if not 0 <= profile_index < len(self._engine._profiles):
            complain(
                self,
                "executionContext.cpp::setOptimizationProfileAsync",
                3,
                f"no optimization profile {profile_index}",
            )
            return False
        self._profile = profile_index
        self._shapes.clear()
        return True

    def set_input_shape(self, name: str, shape: Any) -> bool:
        place = "runtime/api/executionContext.cpp::setInputShape"
        if name not in self._engine._inputs:
            complain(
                self, place, 3, f"given invalid tensor name: {name}. Get valid tensor names with getIOTensorName()"
            )
            return False
        if self._profile < 0:
            complain(self, place, 3, "Parameter check failed, condition: mOptimizationProfile >= 0")
            return False
        given, declared = tuple(map(int, shape)), self._engine._model.shape(name)
        low, _, high = self._engine._profiles[self._profile]["shapes"].get(name) or [declared] * 3
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
        model = self._engine._model
        return [n for n in self._engine._inputs if -1 in self._input_shape(n) or (
            n in model.shape_inputs and n not in self._addresses)]  # fmt: skip

    def _arrays(self) -> dict[str, Any]:
        """The inputs as they are now: shape inputs from the host, others from device memory where it is set."""
        found = {}
        for name in self._engine._inputs:
            dtype, shape = np.dtype(nptype(self._engine.get_tensor_dtype(name))), self._input_shape(name)
            size, address = int(np.prod(shape)) * dtype.itemsize, self._addresses.get(name)
            if name in self._engine._model.shape_inputs:
                import ctypes

                data = ctypes.string_at(address, size)
            else:
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
        if int(memory) % _memory.ALIGNMENT and name not in self._engine._model.shape_inputs:
            complain(
                self, "executionContext.cpp::setTensorAddress", 3, f"the address of {name} is not 256-byte aligned"
            )
            return False
        self._addresses[name] = int(memory)
        return True

    def get_tensor_address(self, name: str) -> int:
        return int(self._addresses.get(name, 0))

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        known = self._engine._known(name) and name not in self._engine._inputs
        if known:
            self._allocators[name] = output_allocator
        return bool(known)

    def get_output_allocator(self, name: str) -> Any:
        return self._allocators.get(name)

    def report_to_profiler(self) -> bool:
        times, self._times = self._times, []
        for name, ms in times:
            self.profiler.report_layer_time(name, ms)
        return bool(times)

    def execute_async_v3(self, stream_handle: int) -> bool:
        place, names = "runtime/api/executionContext.cpp::enqueueV3", self._engine._names
        missing = self.infer_shapes()
        for name in [] if missing else names:
            if not self._addresses.get(name) and not self._allocators.get(name):
                text = (
                    "mContext.profileObliviousBindings.at(profileObliviousIndex) || getPtrOrNull(mOutputAllocators, "
                )
                complain(self, place, 3, f"Parameter check failed, condition: {text}profileObliviousIndex) ({name})")
                return False
        if missing:
            complain(self, place, 3, f"Not all dimensions of dynamic inputs are specified: {', '.join(missing)}")
            return False
        if _memory.faulty("crash"):
            os.abort()
        if _memory.faulty("hang"):
            threading.Event().wait()
        shapes = self._output_shapes()
        later = all(-1 not in shapes[one.name] for one in self._engine._model.graph.output)
        later = later and not self._allocators and self.profiler is None
        for name in self._engine._inputs:
            if name not in self._engine._model.shape_inputs:
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
        if self.profiler is not None:
            nodes = self._engine._model.graph.node
            self._times = [(one.name or one.output[0], milliseconds / len(nodes)) for one in nodes]
            if self.enqueue_emits_profile:
                self.report_to_profiler()
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
