"""From an ONNX model to an engine's bytes. Public names must be recorded, with the recorded parameters."""
# ruff: noqa: F821 (the recorded classes are put into this module by recorded.install)

import hashlib
import itertools
import json
import os
from typing import Any

import device_memory as _memory

from tensorrt._common import MAJOR, TAG, check_driver, complain, say
from tensorrt._model import Refusal, read, shape_of

_builds = itertools.count(1)
# Numbers the builds of this process: each is 0.1 % further off, so that no two agree within any tolerance by chance.


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


class INetworkDefinition:
    name = ""

    @property
    def num_inputs(self) -> int:
        return len(self._model.inputs) if self._model else 0

    @property
    def num_outputs(self) -> int:
        return len(self._model.graph.output) if self._model else 0

    @property
    def has_implicit_batch_dimension(self) -> bool:
        return MAJOR == 8 and not self._flag("EXPLICIT_BATCH")

    def _flag(self, name: str) -> bool:
        member = getattr(NetworkDefinitionCreationFlag, name, None)
        return member is not None and bool(self._flags >> int(member) & 1)

    @property
    def _strongly_typed(self) -> bool:
        return MAJOR >= 11 or self._flag("STRONGLY_TYPED")

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        self._watched = True
        return True

    def get_input(self, index: int) -> Any:
        return ITensor.make(_network=self, _name=self._model.inputs[index].name)


class IOptimizationProfile:
    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        shapes = [[int(one) for one in shape] for shape in (min, opt, max)]
        for name, shape in zip(("min", "opt", "max"), shapes, strict=True):
            if any(size < 0 for size in shape) or len(shape) != len(shapes[0]):
                raise RuntimeError(f"Shape provided for {name} is inconsistent with other shapes.")
        self._shapes[input] = shapes

    def __bool__(self) -> bool:
        return not self._disordered()

    def _disordered(self) -> list[str]:
        """The inputs whose shapes are out of order, which nobody hears of until the profile is added."""
        return [name for name, three in self._shapes.items()
                if not all(a <= b <= c for a, b, c in zip(*three, strict=True))]  # fmt: skip


class ITimingCache:
    def serialize(self) -> Any:
        return IHostMemory.make(TAG + json.dumps(self._known).encode())


class IBuilderConfig:
    builder_optimization_level = 3
    max_aux_streams = -1
    hardware_compatibility_level = "NONE"
    profiling_verbosity = "LAYER_NAMES_ONLY"

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

    def add_optimization_profile(self, profile: Any) -> int:
        disordered = profile._disordered()
        if disordered:
            text = (
                f"Invalid optimization profiles for input tensors {', '.join(disordered)}, please ensure that the "
                "optimization profiles satisfy MIN<=OPT<=MAX."
            )
            complain(self, "IOptimizationProfile::isValid", 4, text)
            return -1
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: Any) -> Any:
        data = bytes(serialized_timing_cache)
        return ITimingCache.make(_known=json.loads(data[len(TAG) :]) if data.startswith(TAG) else [])

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return True


class Builder:
    def __init__(self, logger: Any) -> None:
        self._logger = logger
        check_driver(self)

    @property
    def logger(self) -> Any:
        return self._logger

    def create_network(self, flags: int = 0) -> Any:
        return INetworkDefinition.make(_logger=self._logger, _flags=int(flags), _model=None, _watched=False)

    def create_builder_config(self) -> Any:
        tf32 = {int(BuilderFlag.TF32)}
        cache = ITimingCache.make(_known=[])
        return IBuilderConfig.make(
            _logger=self._logger, _flags=tf32, _pools={}, _features={}, _profiles=[], _cache=cache
        )

    def create_optimization_profile(self) -> Any:
        return IOptimizationProfile.make(_shapes={})

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
            "gpu": _memory.NAME,
            "sha256": digest,
            "name": network.name,
            "profiles": [one._shapes for one in config._profiles],
            "flags": sorted(name for name, one in BuilderFlag.__members__.items() if config.get_flag(one)),
            "typed": network._strongly_typed,
            "watched": network._watched,
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
            shape = shape_of(one)
            if not config._profiles and -1 in shape:
                return ["Network has dynamic or shape inputs, but no optimization profile has been defined.", *found]
            for index, profile in enumerate(config._profiles):
                ranges = profile._shapes.get(one.name)
                if ranges is None and -1 in shape:
                    found.append(f"{one.name}: dynamic input is missing dimensions in profile {index}.")
                elif ranges and (
                    len(shape) != len(ranges[0])
                    or any(want not in (-1, has) for three in ranges for want, has in zip(shape, three, strict=True))
                ):
                    found.append(
                        f"{one.name}: profile {index} has {ranges}, which the shape {list(shape)} does not allow"
                    )
        return found


class _Unnamed:
    """An error code of 8.6's parser, whose ``name`` is a method without a use (seen with TensorRT 8.6.0)."""

    def __init__(self, code: Any) -> None:
        self._text = f"<ErrorCode.{code.name}: {int(code)}>"

    def __repr__(self) -> str:
        return self._text

    def name(self) -> str:
        raise TypeError("incompatible function arguments")


class ParserError:
    def code(self) -> Any:
        code = getattr(ErrorCode, self._refusal.code)
        return _Unnamed(code) if MAJOR < 10 else code

    def desc(self) -> str:
        return str(self._refusal.text)

    def node(self) -> int:
        return int(self._refusal.node)

    def node_name(self) -> str:
        return self._node.name if self._node else ""

    def node_operator(self) -> str:
        return self._node.op_type if self._node else ""

    def file(self) -> str:
        return str(self._refusal.file)

    def func(self) -> str:
        return str(self._refusal.function)

    def local_function_stack(self) -> list[str]:
        return [*self._refusal.inside]

    def local_function_stack_size(self) -> int:
        return len(self._refusal.inside)


class OnnxParser:
    def __init__(self, network: Any, logger: Any) -> None:
        self._network, self._logger, self._errors = network, logger, []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        return self._errors[index]

    def parse(self, model: Any, path: str | None = None) -> bool:
        if self._network.has_implicit_batch_dimension:
            text = "Assertion failed: !mImporterCtx.network()->hasImplicitBatchDimension()"
            return self._refuse([Refusal("INVALID_VALUE", -1, "parse", text)])
        model = read(bytes(model), MAJOR)
        if isinstance(model, Refusal):
            return self._refuse([model])
        unsupported = os.environ.get("CONFORMANCE_DOUBLE_UNSUPPORTED", "").split(",")
        refusals = list(model.refusals(unsupported))
        if refusals:
            return self._refuse(refusals)
        self._network._model = model
        return True

    def _refuse(self, refusals: list[Any]) -> bool:
        for one in refusals:
            node = one.proto
            if node is not None:
                say(self, "ERROR", f'While parsing node number {one.node} [{node.op_type} -> "{node.output[0]}"]:')
            self._errors.append(ParserError.make(_refusal=one, _node=node))
            say(self, "ERROR", f"ERROR: ModelImporter.cpp In function {one.function}:\n{one.text}")
        return False
