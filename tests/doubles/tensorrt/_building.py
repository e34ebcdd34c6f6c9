"""From an ONNX model to an engine's bytes. Public names must be recorded, with the recorded parameters."""
# ruff: noqa: F821 (the recorded classes are put into this module by recorded.install)

from __future__ import annotations

import hashlib
import itertools
import json
import os
from typing import Any

from google.protobuf.message import DecodeError
from pycuda import _memory

from tensorrt._common import MAJOR, TAG, check_driver, complain, gpu, say
from tensorrt._model import Model, Refusal, shape_of

_builds = itertools.count(1)
# Numbers the builds of this process: each is 0.1 % further off, so that no two agree within any tolerance by chance.

_LAYERS = {
    "Conv": "CONVOLUTION", "ConvTranspose": "DECONVOLUTION", "MatMul": "MATRIX_MULTIPLY", "Gemm": "MATRIX_MULTIPLY",
    "Relu": "ACTIVATION", "Sigmoid": "ACTIVATION", "Tanh": "ACTIVATION", "Add": "ELEMENTWISE", "Sub": "ELEMENTWISE",
    "Mul": "ELEMENTWISE", "Div": "ELEMENTWISE", "Softmax": "SOFTMAX", "Concat": "CONCATENATION", "Shape": "SHAPE",
    "Reshape": "SHUFFLE", "Transpose": "SHUFFLE", "Gather": "GATHER", "Slice": "SLICE", "Constant": "CONSTANT",
    "Cast": "CAST", "Identity": "IDENTITY", "QuantizeLinear": "QUANTIZE", "DequantizeLinear": "DEQUANTIZE",
    "NonZero": "NON_ZERO", "MaxPool": "POOLING", "AveragePool": "POOLING", "Where": "SELECT", "Resize": "RESIZE",
}  # fmt: skip
"""Of operators that are one layer; others are told as UNARY, which is true only of some of them."""


class ITensor:
    @property
    def name(self) -> str:
        return self._name

    @property
    def shape(self) -> Any:
        return Dims(self._network._model.shape(self._name))

    @property
    def dtype(self) -> Any:
        return getattr(DataType, self._network._model.dtype(self._name))

    @property
    def is_shape_tensor(self) -> bool:
        return self._name in self._network._model.shape_inputs

    @property
    def is_network_input(self) -> bool:
        return self._name in [one.name for one in self._network._model.inputs]

    @property
    def is_network_output(self) -> bool:
        return self._name in [one.name for one in self._network._model.graph.output]


class ILayer:
    @property
    def name(self) -> str:
        return self._node.name or f"(Unnamed Layer* {self._index}) [{self.type.name.title()}]"

    @property
    def type(self) -> Any:
        return getattr(LayerType, _LAYERS.get(self._node.op_type, "UNARY"))

    @property
    def num_inputs(self) -> int:
        return len(self._node.input)

    @property
    def num_outputs(self) -> int:
        return len(self._node.output)

    def get_input(self, index: int) -> Any:
        return ITensor.make(_network=self._network, _name=self._node.input[index])

    def get_output(self, index: int) -> Any:
        return ITensor.make(_network=self._network, _name=self._node.output[index])


class INetworkDefinition:
    name = ""

    @property
    def num_inputs(self) -> int:
        return len(self._model.inputs) if self._model else 0

    @property
    def num_outputs(self) -> int:
        return len(self._model.graph.output) if self._model else 0

    @property
    def num_layers(self) -> int:
        return len(self._model.graph.node) if self._model else 0

    @property
    def has_implicit_batch_dimension(self) -> bool:
        return MAJOR == 8 and not self._flag("EXPLICIT_BATCH")

    def _flag(self, name: str) -> bool:
        member = getattr(NetworkDefinitionCreationFlag, name, None)
        return member is not None and bool(self._flags >> int(member) & 1)

    @property
    def _strongly_typed(self) -> bool:
        return MAJOR >= 11 or self._flag("STRONGLY_TYPED")

    def get_flag(self, flag: Any) -> bool:
        return bool(self._flags >> int(flag) & 1)

    def get_input(self, index: int) -> Any:
        return ITensor.make(_network=self, _name=self._model.inputs[index].name)

    def get_output(self, index: int) -> Any:
        return ITensor.make(_network=self, _name=self._model.graph.output[index].name)

    def get_layer(self, index: int) -> Any:
        return ILayer.make(_network=self, _node=self._model.graph.node[index], _index=index)

    def __getitem__(self, arg0: int) -> Any:
        return self.get_layer(arg0)

    def __len__(self) -> int:
        return int(self.num_layers)

    def mark_output(self, tensor: Any) -> None:
        self._model.add_output(tensor.name)

    def unmark_output(self, tensor: Any) -> None:
        outputs = self._model.graph.output
        outputs.remove(next(one for one in outputs if one.name == tensor.name))


class IOptimizationProfile:
    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self._set(self._shapes, input, min, opt, max)

    def set_shape_input(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self._set(self._values, input, min, opt, max)

    def _set(self, where: dict[str, Any], input: str, *three: Any) -> None:
        low, best, high = ([int(one) for one in shape] for shape in three)
        fine = len(low) == len(best) == len(high)
        if not fine or not all(0 <= a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
            raise ValueError(
                f"Shape provided for {(where is self._values and 'values of ') or ''}{input} is inconsistent"
            )
        where[input] = [low, best, high]

    def get_shape(self, input: str) -> list[Any]:
        return [Dims(one) for one in self._shapes.get(input, [])]

    def get_shape_input(self, input: str) -> list[list[int]]:
        return list(self._values.get(input, []))

    def __bool__(self) -> bool:
        return True  # real: inconsistent shapes are refused when they are set


class ITimingCache:
    def serialize(self) -> Any:
        return IHostMemory.make(TAG + json.dumps([gpu(), *self._known]).encode())

    def reset(self) -> bool:
        self._known.clear()
        return True

    def combine(self, input_cache: Any, ignore_mismatch: bool) -> bool:
        self._known.extend(one for one in input_cache._known if one not in self._known)
        return self._usable or ignore_mismatch


class IBuilderConfig:
    builder_optimization_level = 3
    avg_timing_iterations = 1
    max_aux_streams = -1
    profile_stream = 0
    hardware_compatibility_level = "NONE"
    profiling_verbosity = "LAYER_NAMES_ONLY"

    @property
    def flags(self) -> int:
        return sum(1 << one for one in self._flags)

    @flags.setter
    def flags(self, value: int) -> None:
        self._flags = {one for one in range(64) if value >> one & 1}

    def set_flag(self, flag: Any) -> None:
        self._flags.add(int(flag))

    def clear_flag(self, flag: Any) -> None:
        self._flags.discard(int(flag))

    def get_flag(self, flag: Any) -> bool:
        return int(flag) in self._flags

    def _has(self, name: str) -> bool:
        flag = getattr(BuilderFlag, name, None)
        return flag is not None and int(flag) in self._flags

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        self._pools[int(pool)] = int(pool_size)

    def get_memory_pool_limit(self, pool: Any) -> int:
        return int(self._pools.get(int(pool), _memory.TOTAL))

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        self._tactics = int(tactic_sources)
        return True

    def get_tactic_sources(self) -> int:
        return int(vars(self).get("_tactics", 24))

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        self._features[int(feature)] = bool(enable)

    def get_preview_feature(self, feature: Any) -> bool:
        return bool(self._features.get(int(feature), False))

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._profiles)

    def add_optimization_profile(self, profile: Any) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: Any) -> Any:
        data = bytes(serialized_timing_cache)
        known = json.loads(data[len(TAG) :]) if data.startswith(TAG) else [None]
        usable = not data or known[0] == gpu()
        return ITimingCache.make(_usable=usable, _known=list(known[1:]))

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        if not (cache._usable or ignore_mismatch):
            say(self, "WARNING", "The timing cache does not match this TensorRT version or GPU.")
            return False
        self._cache = cache
        return True

    def get_timing_cache(self) -> Any:
        return self._cache


class Builder:
    max_threads = 1
    platform_has_fast_fp16 = platform_has_fast_int8 = platform_has_tf32 = True

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        check_driver(self)

    @property
    def logger(self) -> Any:
        return self._logger

    def create_network(self, flags: int = 0) -> Any:
        return INetworkDefinition.make(_logger=self._logger, _flags=int(flags), _model=None)

    def create_builder_config(self) -> Any:
        tf32 = {int(BuilderFlag.TF32)}
        cache = ITimingCache.make(_usable=True, _known=[])
        return IBuilderConfig.make(
            _logger=self._logger, _flags=tf32, _pools={}, _features={}, _profiles=[], _cache=cache
        )

    def create_optimization_profile(self) -> Any:
        return IOptimizationProfile.make(_shapes={}, _values={})

    def get_plugin_registry(self) -> Any:
        return IPluginRegistry.make()

    def is_network_supported(self, network: Any, config: Any) -> bool:
        return not self._problems(network, config)

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        problems = ["the fault that was planted"] if _memory.faulty("build") else self._problems(network, config)
        session = None
        if not problems:
            try:
                session = network._model.session()
            except Exception as error:
                problems = [f"Could not find any implementation for the network: {error}"]
        if session is None:
            complain(self, "network.cpp::validate", 4, problems[0])
            text = "Assertion engine != nullptr failed. "
            say(self, "ERROR", f"2: [builder.cpp::buildSerializedNetwork] Error Code 2: Internal Error ({text})")
            return None
        model = network._model.proto.SerializeToString()
        digest = hashlib.sha256(model).hexdigest()
        if config._cache is not None and digest not in config._cache._known:
            config._cache._known.append(digest)
        header = {
            "gpu": gpu(),
            "sha256": digest,
            "name": network.name,
            "profiles": [{"shapes": one._shapes, "values": one._values} for one in config._profiles],
            "detailed": config.profiling_verbosity == ProfilingVerbosity.DETAILED,
            "noise": 1e-3 * next(_builds) if _memory.faulty("rebuild") else 0.0,
        }
        return IHostMemory.make(TAG + json.dumps(header).encode() + b"\n" + model)

    def _problems(self, network: Any, config: Any) -> list[str]:
        """Why the network cannot be built, in TensorRT's words."""
        if not network.num_outputs:
            return ["Network must have at least one output"]
        model, found = network._model, []
        needs = {
            "FP16": (model.half, "fp16 precision has been set for a layer or layer output, but fp16 is not "
                     "configured in the builder"),
            "INT8": (model.quantized, "INT8 mode needs to be enabled for networks with INT8 "
                     "QuantizeLayer/DequantizeLayer layers."),
        }  # fmt: skip
        for flag, (wanted, text) in needs.items():
            if network._strongly_typed and config._has(flag):
                found.append(f"BuilderFlag.{flag} is set, but a strongly typed network has its types from the model")
            elif wanted and not network._strongly_typed and not config._has(flag):
                found.append(text)
        for one in model.inputs:
            shape, values = shape_of(one), one.name in model.shape_inputs
            if not config._profiles and (-1 in shape or values):
                return ["Network has dynamic or shape inputs, but no optimization profile has been defined.", *found]
            for index, profile in enumerate(config._profiles):
                ranges = profile._values.get(one.name) if values else profile._shapes.get(one.name)
                if ranges is None and (-1 in shape or values):
                    found.append(f"{one.name}: dynamic input is missing dimensions in profile {index}.")
                elif ranges and not values and (
                    len(shape) != len(ranges[0])
                    or any(want not in (-1, has) for three in ranges for want, has in zip(shape, three, strict=True))
                ):  # fmt: skip
                    found.append(
                        f"{one.name}: profile {index} has {ranges}, which the shape {list(shape)} does not allow"
                    )
        return found


class ParserError:
    def code(self) -> Any:
        return getattr(ErrorCode, self._refusal.code)

    def desc(self) -> str:
        return str(self._refusal.text)

    def file(self) -> str:
        return "ModelImporter.cpp"

    def line(self) -> int:
        return 0

    def func(self) -> str:
        return str(self._refusal.function)

    def node(self) -> int:
        return int(self._refusal.node)

    def node_name(self) -> str:
        return self._node.name if self._node else ""

    def node_operator(self) -> str:
        return self._node.op_type if self._node else ""

    def __repr__(self) -> str:
        return f"In node {self.node()} ({self.func()}): {self._refusal.code}: {self.desc()}"

    __str__ = __repr__


class OnnxParser:
    def __init__(self, network: Any, logger: Any) -> None:
        self._network, self._logger, self._errors = network, logger, []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        return self._errors[index]

    def clear_errors(self) -> None:
        self._errors.clear()

    def parse(self, model: Any, path: str | None = None) -> bool:

        if self._network.has_implicit_batch_dimension:
            text = (
                'Assertion failed: !mImporterCtx.network()->hasImplicitBatchDimension() && "This version of the ONNX '
                "parser only supports TensorRT INetworkDefinitions with an explicit batch dimension. Please ensure "
                'the network was created using the EXPLICIT_BATCH NetworkDefinitionCreationFlag."'
            )
            return self._refuse([Refusal("INVALID_VALUE", -1, "parse", text)])
        try:
            read = Model(bytes(model), MAJOR)
        except DecodeError:
            text = (
                'Assertion failed: (model->ParseFromCodedStream(&coded_input)) && "Failed to parse the ONNX model."'
            )
            return self._refuse([Refusal("MODEL_DESERIALIZE_FAILED", -1, "parseModel", text)])
        if read.opset > 17 and MAJOR == 8:
            say(self, "WARNING", f"The model has opset {read.opset}; this parser was made for opsets up to 17.")
        narrowed = any(one.data_type == 7 for one in read.graph.initializer) and not read.int64
        for weights, there, kind, to in (
            ("double-typed", read.cast_weights, "double", "float"),
            ("INT64", narrowed, "INT64", "INT32"),
        ):
            if there:
                text = f"Your ONNX model has been generated with {weights} weights, while TensorRT does not natively "
                say(self, "WARNING", f"{text}support {kind}. Attempting to cast down to {to}.")
        unsupported = os.environ.get("CONFORMANCE_DOUBLE_UNSUPPORTED", "").split(",")
        refusals = list(read.refusals(unsupported))
        if refusals:
            return self._refuse(refusals)
        self._network._model = read
        return True

    def _refuse(self, refusals: list[Any]) -> bool:
        for one in refusals:
            node = one.proto
            if node is not None:
                say(self, "ERROR", f'While parsing node number {one.node} [{node.op_type} -> "{node.output[0]}"]:')
            self._errors.append(ParserError.make(_refusal=one, _node=node))
            say(self, "ERROR", f"ERROR: ModelImporter.cpp In function {one.function}:\n{one.text}")
        return False

    def supports_operator(self, op_name: str) -> bool:
        import onnx

        refused = os.environ.get("CONFORMANCE_DOUBLE_UNSUPPORTED", "").split(",")
        return op_name not in refused and onnx.defs.has(op_name)
