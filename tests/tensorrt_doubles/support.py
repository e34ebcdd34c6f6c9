"""Where the doubles are, what it takes to get answers through them, and models to get them for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import parser

DOUBLES = Path(__file__).parent.parent / "doubles"
VERSIONS = ("8.6", "10.12", "11.0")

Load = Callable[..., "Bench"]


class Log(list[str]):
    """The messages of a logger, worst first letter in front."""

    def __contains__(self, text: object) -> bool:
        return any(str(text) in line for line in self)


class Bench:
    """A freshly imported double, and what it takes to get from a model to answers through it."""

    def __init__(self) -> None:
        self.trt = importlib.import_module("tensorrt")
        self.log = log = Log()
        trt = self.trt

        class Logger(trt.ILogger):
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, msg: str) -> None:
                log.append(f"{severity.name[0]}: {msg}")

        self.logger = Logger()

    @property
    def cuda(self) -> Any:
        driver = importlib.import_module("pycuda.driver")
        if driver.Context.get_current() is None:
            driver.init()
            driver.Device(0).retain_primary_context().push()
        return driver

    def parse(self, model: onnx.ModelProto | bytes, *flags: str) -> tuple[Any, Any]:
        """The network, None where the parser refused, and the parser."""
        builder = self.trt.Builder(self.logger)
        known = self.trt.NetworkDefinitionCreationFlag
        wanted = flags or (("EXPLICIT_BATCH",) if hasattr(known, "EXPLICIT_BATCH") else ())
        network = builder.create_network(sum(1 << int(getattr(known, one)) for one in wanted if one != "none"))
        onnx_parser = self.trt.OnnxParser(network, self.logger)
        data = model if isinstance(model, bytes) else model.SerializeToString()
        return (network if onnx_parser.parse(data) else None), onnx_parser

    def plan(
        self,
        model: onnx.ModelProto,
        profile: Mapping[str, Any] = {},
        flags: Sequence[str] = (),
        typed: bool = False,
    ) -> bytes | None:
        """The engine's bytes; the profile says min, opt and max for each input, of values where it is a shape."""
        network, onnx_parser = self.parse(model, *(("STRONGLY_TYPED",) if typed else ()))
        assert network is not None, [onnx_parser.get_error(i).desc() for i in range(onnx_parser.num_errors)]
        builder = self.trt.Builder(self.logger)
        config = builder.create_builder_config()
        for flag in flags:
            config.set_flag(getattr(self.trt.BuilderFlag, flag))
        if profile:
            one = builder.create_optimization_profile()
            inputs = {network.get_input(i).name: network.get_input(i) for i in range(network.num_inputs)}
            for name, three in profile.items():
                (one.set_shape_input if inputs[name].is_shape_tensor else one.set_shape)(name, *three)
            assert config.add_optimization_profile(one) == 0
        made = builder.build_serialized_network(network, config)
        return None if made is None else bytes(made)

    def engine(self, plan: bytes | None) -> Any:
        assert plan is not None, self.log
        return self.trt.Runtime(self.logger).deserialize_cuda_engine(plan)

    def run(self, engine: Any, inputs: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
        """The answers, through name-based addresses; an allocator where a shape is only known at run time."""
        cuda, trt = self.cuda, self.trt
        context = context or engine.create_execution_context()
        stream, held, grown = cuda.Stream(), {}, {}

        class Allocator(trt.IOutputAllocator):
            def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
                held[name] = cuda.mem_alloc(max(1, size))
                return int(held[name])

            def notify_shape(self, name: str, shape: Any) -> None:
                grown[name] = tuple(shape)

        for name, array in inputs.items():
            assert context.set_input_shape(name, array.shape), self.log[-1]
            if engine.is_shape_inference_io(name):
                assert context.set_tensor_address(name, array.ctypes.data)
                continue
            held[name] = cuda.mem_alloc(max(1, array.nbytes))
            cuda.memcpy_htod_async(held[name], array, stream)
            assert context.set_tensor_address(name, held[name])
        assert context.infer_shapes() == []
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        outputs = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT]
        keep = Allocator()
        for name in outputs:
            shape, item = tuple(context.get_tensor_shape(name)), engine.get_tensor_dtype(name).itemsize
            if -1 in shape:
                context.set_output_allocator(name, keep)
            else:
                held[name] = cuda.mem_alloc(max(1, trt.volume(shape) * int(item)))
                context.set_tensor_address(name, held[name])
        assert context.execute_async_v3(stream.handle), self.log
        answers = {}
        for name in outputs:
            shape = grown.get(name) or tuple(context.get_tensor_shape(name))
            answers[name] = np.zeros(shape, trt.nptype(engine.get_tensor_dtype(name)))
            cuda.memcpy_dtoh_async(answers[name], held[name], stream)
        stream.synchronize()
        for one in held.values():
            one.free()
        return answers


def model(text: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')


AFFINE = model(
    "(float[N,3] x) => (float[N,3] y, float[N,3] z) <float[3] w = {1, 2, 3}> { y = Mul(x, w)  z = Neg(y) }"
)
BATCHES = {"x": ((1, 3), (2, 3), (4, 3))}
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
HALF = model("(float16[2] x) => (float16[2] y) { y = Add(x, x) }")
QUANTIZED = model(
    "(float[2] x) => (float[2] y) <float s = {0.5}, int8 o = {0}> "
    "{ q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }"
)
