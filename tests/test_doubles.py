"""The doubles of TensorRT and pycuda: right answers, the refusals of the real ones, the faults that are planted."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

DOUBLES = Path(__file__).parent / "doubles"
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


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports the doubles anew, as a version and with planted faults; afterwards they are gone."""

    def forget() -> None:
        for name in [one for one in sys.modules if one.partition(".")[0] in ("tensorrt", "pycuda", "recorded")]:
            del sys.modules[name]  # not through monkeypatch, which would put it back

    def fresh(version: str = "8.6", fault: str = "", **variables: str) -> Bench:
        forget()
        monkeypatch.setenv("CONFORMANCE_DOUBLE_TENSORRT", version)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", fault)
        for name, value in variables.items():
            monkeypatch.setenv(f"CONFORMANCE_DOUBLE_{name}", value)
        return Bench()

    monkeypatch.syspath_prepend(str(DOUBLES))
    yield fresh
    forget()


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


# Right answers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dynamic_batch_gives_the_right_numbers(load: Load, version: str) -> None:
    bench = load(version)
    engine = bench.engine(bench.plan(AFFINE, BATCHES))
    for batch in (X, X[:1], np.concatenate([X, X])):
        answers = bench.run(engine, {"x": batch})
        assert np.array_equal(answers["y"], batch * np.array([1, 2, 3], np.float32))
        assert np.array_equal(answers["z"], -answers["y"])


@pytest.mark.parametrize(("version", "dtype"), [("8.6", np.int32), ("10.12", np.int64), ("11.0", np.int64)])
def test_int64_is_int32_where_there_is_no_int64(load: Load, version: str, dtype: type) -> None:
    bench = load(version)
    engine = bench.engine(bench.plan(model("(int64[2] x) => (int64[2] y) { y = Neg(x) }")))
    assert bench.trt.nptype(engine.get_tensor_dtype("x")) is dtype
    answer = bench.run(engine, {"x": np.array([5, -6], dtype)})["y"]
    assert answer.dtype == dtype
    assert answer.tolist() == [-5, 6]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_shape_that_depends_on_data_takes_an_allocator(load: Load, version: str) -> None:
    bench = load(version)
    engine = bench.engine(bench.plan(model("(float[5] x) => (int64[1,M] y) { y = NonZero(x) }")))
    assert tuple(engine.get_tensor_shape("y")) == (1, -1)
    values = np.array([0, 1, 0, 2, 3], np.float32)
    assert bench.run(engine, {"x": values})["y"].tolist() == [[1, 3, 4]]
    context, memory = engine.create_execution_context(), bench.cuda.mem_alloc(40)
    for name in ("x", "y"):
        context.set_tensor_address(name, memory)
    assert not context.execute_async_v3(0)
    assert "depends on data" in bench.log


def test_an_input_that_is_a_shape_comes_from_the_host(load: Load) -> None:
    bench = load()
    one = model("(float[N] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }")
    assert bench.plan(one, {"x": ((1,), (4,), (9,))}) is None
    assert "s: dynamic input is missing dimensions" in bench.log
    engine = bench.engine(bench.plan(one, {"x": ((1,), (4,), (9,)), "s": ((1, 1), (2, 2), (9, 9))}))
    assert engine.is_shape_inference_io("s")
    assert engine.get_tensor_location("s") == bench.trt.TensorLocation.HOST
    answer = bench.run(engine, {"s": np.array([3, 2], np.int32), "x": np.arange(6, dtype=np.float32)})["y"]
    assert answer.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_shapes_computed_from_shapes_are_known(load: Load) -> None:
    bench = load()
    one = model("(float[N,3] x) => (float[M] y) <int64[1] k = {-1}> { y = Reshape(x, k) }")
    engine = bench.engine(bench.plan(one, BATCHES))
    context = engine.create_execution_context()
    assert tuple(context.get_tensor_shape("y")) == (-1,)
    assert context.infer_shapes() == ["x"]
    context.set_input_shape("x", (4, 3))
    assert tuple(context.get_tensor_shape("y")) == (12,)


def test_answers_arrive_when_the_stream_is_waited_for(load: Load) -> None:
    """Code that forgets to wait reads what was there before."""
    cuda = load().cuda
    memory, stream, back = cuda.mem_alloc(X.nbytes), cuda.Stream(), np.zeros_like(X)
    cuda.memcpy_htod_async(memory, X, stream)
    cuda.memcpy_dtoh_async(back, memory, stream)
    assert not back.any()
    stream.synchronize()
    assert np.array_equal(back, X)


def test_events_measure(load: Load) -> None:
    cuda = load().cuda
    stream, first, last = cuda.Stream(), cuda.Event(), cuda.Event()
    first.record(stream)
    with pytest.raises(cuda.LogicError, match="not ready"):
        first.time_till(first)
    last.record(stream).synchronize()
    assert first.time_till(last) > 0


def test_empty_and_0d_tensors_are_carried(load: Load) -> None:
    bench = load()
    engine = bench.engine(bench.plan(AFFINE, {"x": ((0, 3), (2, 3), (4, 3))}))
    assert bench.run(engine, {"x": X[:0]})["y"].shape == (0, 3)
    engine = bench.engine(bench.plan(model("(float x) => (float y) { y = Neg(x) }")))
    answer = bench.run(engine, {"x": np.array(2, np.float32)})["y"]
    assert (answer.shape, answer.item()) == ((), -2)


def test_copies_take_contiguous_arrays(load: Load) -> None:
    cuda = load().cuda
    memory, back = cuda.mem_alloc(48), np.zeros((3, 4), np.float32, order="F")
    cuda.memcpy_htod(memory, np.arange(12, dtype=np.float32))
    cuda.memcpy_dtoh(back, memory)
    assert back[:, 0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="not contiguous"):
        cuda.memcpy_htod(memory, back[::2])
    with pytest.raises(ValueError, match="not contiguous"):
        cuda.memcpy_dtoh(back[::2], memory)


def test_plugins_can_be_asked_for(load: Load, tmp_path: Path) -> None:
    bench = load()
    assert bench.trt.init_libnvinfer_plugins(bench.logger, "")
    registry, library = bench.trt.get_plugin_registry(), tmp_path / "libown.so"
    assert registry.load_library(str(library)) is None
    library.write_bytes(b"")
    assert registry.load_library(str(library)) is not None
    assert registry.load_library(str(library)) is None  # its plugins are registered already


def test_plugins_need_a_logger_that_stays(load: Load) -> None:
    bench = load()
    bench.trt.init_libnvinfer_plugins(bench.trt.Logger(), "")
    with pytest.raises(RuntimeError, match="leads nowhere"):
        bench.trt.init_libnvinfer_plugins(bench.logger, "")


def test_an_engine_offers_its_bytes_and_no_more(load: Load) -> None:
    bench = load()
    kept = bench.engine(bench.plan(AFFINE, BATCHES)).serialize()
    assert kept.nbytes == len(bytes(kept)) == memoryview(kept).nbytes
    assert bench.engine(kept) is not None
    with pytest.raises(TypeError):
        len(kept)
    with pytest.raises(AttributeError):
        kept.hex()


def test_intermediate_tensors_can_be_marked(load: Load) -> None:
    bench = load()
    network, _ = bench.parse(model("(float[2] x) => (float[2] y) { a = Abs(x)  y = Neg(a) }"))
    assert network.num_layers == len(network) == 2
    network.mark_output(network.get_layer(0).get_output(0))
    builder = bench.trt.Builder(bench.logger)
    engine = bench.engine(bytes(builder.build_serialized_network(network, builder.create_builder_config())))
    answers = bench.run(engine, {"x": np.array([-1, 2], np.float32)})
    assert (answers["a"].tolist(), answers["y"].tolist()) == ([1, 2], [-1, -2])


def test_layers_are_reported_and_told(load: Load) -> None:
    bench = load()
    trt = bench.trt
    times = []

    class Profiler(trt.IProfiler):
        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times.append(layer_name)

    engine = bench.engine(bench.plan(AFFINE, BATCHES))
    context = engine.create_execution_context()
    with pytest.raises(TypeError, match=r"IProfiler.__init__\(\) must be called"):
        type("Careless", (trt.IProfiler,), {"__init__": lambda self: None})()
    context.profiler = Profiler()
    bench.run(engine, {"x": X}, context)
    told = json.loads(engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON))
    assert times == told["Layers"] == ["y", "z"]
    assert told["Bindings"] == ["x", "y", "z"]


def test_a_timing_cache_grows_and_fits_only_where_it_was_made(load: Load) -> None:
    bench = load()
    builder = bench.trt.Builder(bench.logger)
    config = builder.create_builder_config()
    cache = config.create_timing_cache(b"")
    assert config.set_timing_cache(cache, False)
    empty = bytes(cache.serialize())
    network, _ = bench.parse(HALF)
    config.set_flag(bench.trt.BuilderFlag.FP16)
    builder.build_serialized_network(network, config)
    kept = bytes(config.get_timing_cache().serialize())
    assert len(kept) > len(empty)
    assert config.set_timing_cache(config.create_timing_cache(kept), False)
    for version, gpu in (("8.6", "another GPU"), ("10.12", "TensorRT double (no GPU)")):
        other = load(version, GPU=gpu)
        config = other.trt.Builder(other.logger).create_builder_config()
        assert not config.set_timing_cache(config.create_timing_cache(kept), False)


# Refusals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(double[2] x) => (float[2] y) { y = Cast<to=1>(x) }", "Failed to convert ONNX date type"),
        (
            "(float[2] x) => (float[2] y) { a = Cast<to=11>(x)  y = Cast<to=1>(a) }",
            "Unsupported data type for the Cast",
        ),
        (
            "(float[2] x) => (float[2] y) <float s = {0.5}, int8 o = {3}> "
            "{ q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }",
            "only supports symmetric quantization",
        ),
        (
            "(float[2] x) => (float[2] y) <float s = {0.5}, uint8 o = {0}> "
            "{ q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }",
            "only supports symmetric quantization",
        ),
    ],
)
def test_the_parser_refuses(load: Load, text: str, words: str) -> None:
    network, onnx_parser = load().parse(model(text))
    assert network is None
    assert words in onnx_parser.get_error(0).desc()


def test_float64_weights_are_cast_with_a_warning(load: Load) -> None:
    bench = load()
    one = model("(float[2] x) => (float[2] y) { c = Cast<to=1>(w)  y = Add(x, c) }")
    one.graph.initializer.append(numpy_helper.from_array(np.array([0.5, 1.5]), "w"))
    engine = bench.engine(bench.plan(one))
    assert "W: Your ONNX model has been generated with double-typed weights" in bench.log
    assert bench.run(engine, {"x": np.zeros(2, np.float32)})["y"].tolist() == [0.5, 1.5]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_operator_is_a_parser_error_with_its_node(load: Load, version: str) -> None:
    custom = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[2] x) => (float[2] y) '
        "{ a = Abs(x)  y = own.Mine(a) }"
    )
    custom.graph.node[1].name = "the_node"
    bench = load(version)
    network, onnx_parser = bench.parse(custom)
    assert network is None
    assert onnx_parser.num_errors == 1
    error = onnx_parser.get_error(0)
    assert "No importer registered for op: Mine" in error.desc()
    assert (error.node(), error.code()) == (1, bench.trt.ErrorCode.UNSUPPORTED_NODE)
    assert 'While parsing node number 1 [Mine -> "y"]' in bench.log
    if version == "8.6":
        assert not hasattr(error, "node_name")
    else:
        assert (error.node_name(), error.node_operator()) == ("the_node", "Mine")
    onnx_parser.clear_errors()
    assert onnx_parser.num_errors == 0


def test_operators_can_be_made_unsupported(load: Load) -> None:
    network, onnx_parser = load(UNSUPPORTED="Erf,Neg").parse(AFFINE)
    assert network is None
    assert "No importer registered for op: Neg" in onnx_parser.get_error(0).desc()


def test_what_is_no_model_is_refused(load: Load) -> None:
    network, onnx_parser = load().parse(b"\xffno model")
    assert network is None
    assert "Failed to parse the ONNX model" in onnx_parser.get_error(0).desc()


def test_8_6_needs_an_explicit_batch(load: Load) -> None:
    network, onnx_parser = load().parse(AFFINE, "none")
    assert network is None
    assert "EXPLICIT_BATCH" in onnx_parser.get_error(0).desc()
    assert load("10.12").parse(AFFINE, "none")[0] is not None


def test_an_opset_after_17_is_only_warned_of(load: Load) -> None:
    bench = load()
    assert bench.parse(model("(float[2] x) => (float[2] y) { y = Abs(x) }", 18))[0] is not None
    assert "W: The model has opset 18" in bench.log


@pytest.mark.parametrize(
    ("one", "flag", "words"),
    [(HALF, "FP16", "fp16 precision has been set for"), (QUANTIZED, "INT8", "INT8 mode needs to be enabled")],
    ids=["fp16", "int8"],
)
def test_weak_typing_needs_the_flag_of_the_precision(load: Load, one: Any, flag: str, words: str) -> None:
    for version in ("8.6", "10.12"):
        bench = load(version)
        assert bench.plan(one) is None
        assert f"E: 4: [network.cpp::validate] Error Code 4: Internal Error ({words}" in bench.log
        assert bench.plan(one, flags=[flag]) is not None
    assert bench.plan(one, typed=True) is not None
    assert bench.plan(one, typed=True, flags=[flag]) is None
    assert load("11.0").plan(one) is not None


def test_a_dynamic_input_needs_a_profile_that_fits(load: Load) -> None:
    bench = load()
    assert bench.plan(AFFINE) is None
    assert "no optimization profile has been defined" in bench.log
    assert bench.plan(AFFINE, {"x": ((1, 2), (1, 2), (1, 2))}) is None
    assert "which the shape [-1, 3] does not allow" in bench.log
    with pytest.raises(ValueError, match="inconsistent"):
        bench.plan(AFFINE, {"x": ((4, 3), (2, 3), (1, 3))})


def test_shapes_outside_the_profile_are_refused(load: Load) -> None:
    bench = load()
    context = bench.engine(bench.plan(AFFINE, BATCHES)).create_execution_context()
    assert not context.set_input_shape("x", (5, 3))
    assert not context.set_input_shape("x", (2, 4))
    assert not context.set_input_shape("x", (2,))
    assert not context.set_input_shape("nothing", (2, 3))
    assert context.set_input_shape("x", (4, 3))
    assert "min ~ max range [1, 3] ~ [4, 3]" in bench.log


def test_contexts_of_8_6_do_not_share_a_profile(load: Load) -> None:
    bench = load("8.6")
    engine = bench.engine(bench.plan(AFFINE, BATCHES))
    first, second = engine.create_execution_context(), engine.create_execution_context()
    assert "has been chosen by another IExecutionContext" in bench.log
    assert (first.active_optimization_profile, second.active_optimization_profile) == (0, -1)
    assert first.set_input_shape("x", (2, 3))
    assert not second.set_input_shape("x", (2, 3))
    del first, second
    assert engine.create_execution_context().set_input_shape("x", (2, 3))
    later = load("10.12")
    engine = later.engine(later.plan(AFFINE, BATCHES))
    contexts = [engine.create_execution_context() for _ in range(2)]
    assert all(one.set_input_shape("x", (2, 3)) for one in contexts)


def test_an_engine_has_memory_on_the_device_until_it_goes(load: Load) -> None:
    bench = load()
    free = bench.cuda.mem_get_info()[0]
    engine = bench.engine(bench.plan(AFFINE, BATCHES))
    context = engine.create_execution_context()
    assert bench.cuda.mem_get_info()[0] < free
    del engine
    assert bench.cuda.mem_get_info()[0] < free  # the context needs it
    del context
    assert bench.cuda.mem_get_info()[0] == free


def test_page_locked_memory_is_of_some_size_and_dimension(load: Load) -> None:
    cuda = load().cuda
    assert cuda.pagelocked_empty((2, 3), np.float32).shape == (2, 3)
    with pytest.raises(cuda.LogicError, match="cuMemHostAlloc failed: invalid argument"):
        cuda.pagelocked_empty((0, 3), np.float32)
    with pytest.raises(IndexError):
        cuda.pagelocked_empty((), np.float32)


def test_nothing_is_waited_for_or_allocated_while_a_stream_is_captured(load: Load) -> None:
    cuda = load().cuda
    from pycuda import _memory

    memory, stream, event = cuda.mem_alloc(X.nbytes), cuda.Stream(), cuda.Event()
    _memory.begin_capture(stream.handle)
    cuda.memcpy_htod_async(memory, X, stream)
    forbidden = [stream.synchronize, cuda.Context.synchronize, event.synchronize, lambda: cuda.mem_alloc(8)]
    for one in forbidden:
        with pytest.raises(cuda.LogicError, match="not permitted when stream is capturing"):
            one()
    (task,) = _memory.end_capture(stream.handle)
    stream.synchronize()
    back = np.zeros_like(X)
    cuda.memcpy_dtoh(back, memory)
    assert not back.any()  # what is captured has not been done
    _memory.enqueue(stream.handle, task)
    stream.synchronize()
    cuda.memcpy_dtoh(back, memory)
    assert np.array_equal(back, X)


def test_an_illegal_access_is_never_got_rid_of(load: Load) -> None:
    bench = load(ILLEGAL="Neg,Erf")
    cuda, context = bench.cuda, bench.engine(bench.plan(AFFINE, BATCHES)).create_execution_context()
    context.set_input_shape("x", (2, 3))
    memory, stream = {name: cuda.mem_alloc(24) for name in "xyz"}, cuda.Stream()
    for name, one in memory.items():
        context.set_tensor_address(name, one)
    assert context.execute_async_v3(stream.handle)  # the kernels have not run yet
    with pytest.raises(cuda.LogicError, match="cuStreamSynchronize failed: an illegal memory access"):
        stream.synchronize()
    for again in (cuda.Context.synchronize, cuda.Stream, lambda: cuda.mem_alloc(8)):
        with pytest.raises(cuda.LogicError, match="an illegal memory access was encountered"):
            again()


def test_executing_needs_shapes_and_addresses(load: Load) -> None:
    bench = load()
    context = bench.engine(bench.plan(AFFINE, BATCHES)).create_execution_context()
    assert not context.execute_async_v3(0)
    assert "Not all dimensions of dynamic inputs are specified: x" in bench.log
    context.set_input_shape("x", (2, 3))
    assert not context.execute_async_v3(0)
    assert "condition: mContext.profileObliviousBindings" in bench.log


def test_memory_must_be_there_and_large_enough(load: Load) -> None:
    bench = load()
    cuda, context = bench.cuda, bench.engine(bench.plan(AFFINE, BATCHES)).create_execution_context()
    context.set_input_shape("x", (2, 3))
    memory = {name: cuda.mem_alloc(24) for name in "xyz"}
    for name, one in memory.items():
        context.set_tensor_address(name, one)
    assert context.execute_async_v3(0)
    memory["y"].free()  # before the stream is waited for
    with pytest.raises(RuntimeError, match=r"output y is at .* in no live allocation"):
        cuda.Context.synchronize()
    with pytest.raises(RuntimeError, match="output y is at"):
        context.execute_async_v3(0)
    context.set_tensor_address("y", cuda.mem_alloc(23))
    with pytest.raises(RuntimeError, match="no live allocation"):
        context.execute_async_v3(0)
    small = cuda.mem_alloc(23)
    context.set_tensor_address("y", small)
    with pytest.raises(RuntimeError, match="output y takes 24 bytes, but its allocation has room for 23"):
        context.execute_async_v3(0)
    with pytest.raises(cuda.LogicError, match="invalid resource handle"):
        memory["y"].free()
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        cuda.mem_alloc(0)


def test_engines_of_others_and_broken_ones_are_refused(load: Load) -> None:
    bench = load()
    plan = bench.plan(AFFINE, BATCHES)
    assert plan is not None
    assert bench.engine(plan) is not None
    assert bench.engine(plan[:-1] + b"?") is None
    assert bench.engine(b"no engine") is None
    assert "E: 1: [stdArchiveReader.cpp" in bench.log
    other = load("10.12")
    assert other.engine(plan) is None
    assert "Version tag does not match" in other.log
    moved = load(GPU="another GPU")
    assert moved.engine(plan) is None
    assert "incompatible device" in moved.log


def test_errors_reach_the_error_recorder(load: Load) -> None:
    bench = load()
    trt, found = bench.trt, []

    class Recorder(trt.IErrorRecorder):
        def report_error(self, code: Any, desc: str) -> bool:
            found.append((code, desc))
            return True

    runtime = trt.Runtime(bench.logger)
    runtime.error_recorder = Recorder()
    assert runtime.deserialize_cuda_engine(b"no engine") is None
    assert found[0][0] == trt.ErrorCodeTRT.UNSPECIFIED_ERROR


# The surface


def test_what_is_not_recorded_is_refused(load: Load) -> None:
    bench = load()
    trt, builder = bench.trt, bench.trt.Builder(bench.logger)
    config = builder.create_builder_config()
    with pytest.raises(AttributeError, match="has no attribute 'max_workspace'"):
        config.max_workspace = 1
    with pytest.raises(AttributeError):
        builder.create_engine()
    with pytest.raises(AttributeError, match="INT64"):
        _ = trt.DataType.INT64
    with pytest.raises(AttributeError):
        _ = trt.numpy
    with pytest.raises(AttributeError, match=r"can't set|no setter"):
        builder.logger = bench.logger
    config.max_aux_streams = 2
    assert config.max_aux_streams == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda trt, builder: builder.create_network(flag=1),
        lambda trt, builder: builder.create_network(1, 2),
        lambda trt, builder: builder.build_serialized_network(builder.create_network()),
        lambda trt, builder: builder.create_builder_config().set_flag(0),
        lambda trt, builder: builder.create_builder_config().set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1e9),
        lambda trt, builder: builder.create_optimization_profile().set_shape("x", (1,), (1,)),
        lambda trt, builder: builder.create_optimization_profile().set_shape("x", (1.5,), (1,), (1,)),
        lambda trt, builder: trt.Runtime(None),
        lambda trt, builder: trt.INetworkDefinition(),
        lambda trt, builder: 1 << trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH,
        lambda trt, builder: trt.OnnxParser(builder.create_network(1), trt.Logger()).parse("text"),
    ],
)
def test_calls_must_fit_the_recorded_signature(load: Load, call: Callable[[Any, Any], Any]) -> None:
    bench = load()
    with pytest.raises(TypeError):
        call(bench.trt, bench.trt.Builder(bench.logger))


def test_what_is_recorded_but_not_implemented_says_so(load: Load) -> None:
    bench = load()
    network, _ = bench.parse(AFFINE)
    with pytest.raises(NotImplementedError, match=r"INetworkDefinition.add_identity"):
        network.add_identity(network.get_input(0))
    assert not issubclass(NotImplementedError, AttributeError)


def test_enums_are_pybind11s(load: Load) -> None:
    trt = load().trt
    assert (repr(trt.float32), str(trt.DataType.HALF), int(trt.int32)) == ("<DataType.FLOAT: 0>", "DataType.HALF", 3)
    assert trt.DataType.FLOAT != 0
    assert trt.Logger.ERROR < trt.Logger.WARNING
    with pytest.raises(TypeError):
        _ = trt.DataType.FLOAT < trt.DataType.HALF


@pytest.mark.parametrize("version", VERSIONS)
def test_the_surface_is_the_recording_of_its_version(load: Load, version: str) -> None:
    trt = load(version).trt
    recording = json.loads((DOUBLES / f"tensorrt-{version}.json").read_text(encoding="utf-8"))
    assert trt.__version__ == recording["version"]
    public = {name for name in vars(trt) if not name.startswith("_")} - {"DOUBLE"}
    expected = {*recording["classes"], *recording["functions"], *recording["constants"]}
    assert public == {name for name in expected if "." not in name}
    for path, says in recording["classes"].items():
        cls = trt
        for part in path.split("."):
            cls = getattr(cls, part)
        members = {*says.get("members", {}), *says.get("methods", {}), *says.get("properties", {})}
        assert members | set(says.get("constants", {})) <= set(dir(cls)), path
        own = {name for name in vars(cls) if not name.startswith("_")}
        nested = {name.rpartition(".")[2] for name in recording["classes"] if name.startswith(f"{path}.")}
        assert own - nested <= members | set(says.get("constants", {})), path


def test_an_implementation_of_what_no_version_has_is_refused(load: Load) -> None:
    load()
    recorded = importlib.import_module("recorded")
    recordings = [recorded.load(f"tensorrt-{one}.json") for one in VERSIONS]
    wrong = [
        {"Builder": type("Builder", (), {"make_it_fast": lambda self: None})},
        {"Builder": type("Builder", (), {"create_network": lambda self, flag=0: None})},
        {"Builder": type("Builder", (), {"max_threads": lambda self: 1})},
        {"Nothing": type("Nothing", (), {})},
        {"nothing": lambda: None},
    ]
    for one in wrong:
        with pytest.raises((AttributeError, TypeError), match="the double"):
            recorded.build(recordings[0], one, recordings[1:])


def _has(recording: dict[str, Any], path: str) -> bool:
    name, _, member = path.partition(".")
    cls = recording["classes"].get(name)
    kinds = ("members", "methods", "properties", "constants")
    return cls is not None and (not member or any(member in cls.get(kind, {}) for kind in kinds))


def test_the_recordings_agree_with_the_vendors_lists_of_changes() -> None:
    recordings = {v: json.loads((DOUBLES / f"tensorrt-{v}.json").read_text(encoding="utf-8")) for v in VERSIONS}
    changes = json.loads((DOUBLES / "changes.json").read_text(encoding="utf-8"))
    for version, change in ((key, one) for key, one in changes.items() if key != "about"):
        before, after = recordings[change["since"]], recordings[version]
        assert [one for one in change["removed"] if not _has(before, one)] == []
        assert [one for one in change["removed"] if _has(after, one)] == []
        assert [one for one in change["added"] if _has(before, one) or not _has(after, one)] == []


def test_it_is_plain_that_it_is_a_double(load: Load) -> None:
    bench = load()
    assert bench.trt.DOUBLE
    assert bench.cuda.Device(0).name() == "TensorRT double (no GPU)"
    found = {one.name: one.version for one in importlib.metadata.distributions(path=[str(DOUBLES)])}
    assert found == {"tensorrt": "0+double", "pycuda": "0+double"}


def test_differences_between_a_recording_and_a_package_are_named(load: Load) -> None:
    load()
    record = importlib.import_module("record")
    try:
        found = list(
            record.differences(
                {"version": "1", "classes": {"A": {"methods": {"f": ["(x)"], "g": ["()"]}}}},
                {"version": "1", "classes": {"A": {"methods": {"f": ["(y)"]}}, "B": {}}},
            )
        )
    finally:
        del sys.modules["record"]
    assert [one.partition(":")[0] for one in found] == ["classes.A.methods.f", "classes.A.methods.g", "classes.B"]
    assert "recorded ['(x)'], the package has ['(y)']" in found[0]


# Planted faults


def test_the_fault_wrong(load: Load) -> None:
    bench = load(fault="wrong")
    answers = bench.run(bench.engine(bench.plan(AFFINE, BATCHES)), {"x": X})
    assert np.array_equal(answers["y"], X * [1, 2, 3])
    assert answers["z"][0, 0] == pytest.approx(-1.1)
    assert np.array_equal(answers["z"].ravel()[1:], -answers["y"].ravel()[1:])


def test_the_fault_rows(load: Load) -> None:
    bench = load(fault="rows")
    engine = bench.engine(bench.plan(AFFINE, BATCHES))
    answers = bench.run(engine, {"x": X})
    assert np.array_equal(answers["y"][0], X[0] * [1, 2, 3])
    assert np.allclose(answers["y"][1], X[1] * [1, 2, 3] * 1.1)
    assert np.array_equal(bench.run(engine, {"x": X[1:]})["y"], X[1:] * [1, 2, 3])


def test_the_fault_rebuild(load: Load) -> None:
    bench = load(fault="rebuild")
    plans = [bench.plan(AFFINE, BATCHES) for _ in range(2)]
    first, second = (bench.run(bench.engine(one), {"x": X})["y"] for one in plans)
    again = bench.run(bench.engine(plans[0]), {"x": X})["y"]
    assert not np.array_equal(first, second)
    assert np.array_equal(first, again)
    assert np.allclose(first, X * [1, 2, 3], rtol=0.01)


def test_the_fault_build(load: Load) -> None:
    bench = load(fault="build")
    assert bench.plan(AFFINE, BATCHES) is None
    assert any(line.startswith("E") for line in bench.log)


def test_faults_of_the_driver(load: Load) -> None:
    bench = load(fault="nogpu")
    driver = importlib.import_module("pycuda.driver")
    with pytest.raises(driver.RuntimeError, match="cuInit failed: no CUDA-capable device"):
        driver.init()
    with pytest.raises(TypeError, match="factory function returned nullptr"):
        bench.trt.Builder(bench.logger)
    for version in VERSIONS:
        bench = load(version, fault="olddriver")
        assert bench.cuda.Device.count() == 1
        with pytest.raises(TypeError, match="factory function returned nullptr"):
            bench.trt.Builder(bench.logger)
        assert "W: CUDA initialization failure with error: 35" in bench.log
        with pytest.raises(BaseException, match="nullptr" if version != "8.6" else "CUDA does not start"):
            bench.trt.Runtime(bench.logger)
    cuda = load(fault="oom").cuda
    with pytest.raises(cuda.MemoryError, match="cuMemAlloc failed: out of memory"):
        cuda.mem_alloc(8)
    load(fault="nodriver")
    with pytest.raises(ImportError, match=r"libcuda.so.1: cannot open shared object file"):
        importlib.import_module("pycuda.driver")


def test_what_is_asked_of_the_double_must_exist(load: Load) -> None:
    with pytest.raises(ImportError, match=r"there are recordings of 8\.6, 10\.12, 11\.0"):
        load("9.2")
    with pytest.raises(ValueError, match="wrnog: the faults are build, crash"):
        load(fault="wrnog").cuda.init()


def test_memory_takes_a_context(load: Load) -> None:
    load()
    driver = importlib.import_module("pycuda.driver")
    with pytest.raises(driver.LogicError, match="initialization error"):
        driver.Device(0)
    driver.init()
    with pytest.raises(driver.LogicError, match="no currently active context"):
        driver.mem_alloc(8)


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_the_faults_that_end_a_process(load: Load, fault: str, tmp_path: Path) -> None:
    bench = load()
    plan = tmp_path / "plan"
    plan.write_bytes(bench.plan(model("(float[2] x) => (float[2] y) { y = Abs(x) }")) or b"")
    script = """
import sys
import pycuda.driver as cuda
import tensorrt as trt
cuda.init()
cuda.Device(0).make_context()
engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(open(sys.argv[1], "rb").read())
context, memory = engine.create_execution_context(), cuda.mem_alloc(8)
for name in ("x", "y"):
    context.set_tensor_address(name, int(memory))
print("executing", flush=True)
context.execute_async_v3(0)
print("done", flush=True)
"""
    environment = {**os.environ, "PYTHONPATH": str(DOUBLES), "CONFORMANCE_DOUBLE_FAULT": fault}
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(plan)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "executing\n"
    if fault == "crash":
        assert child.wait(60) == -6
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.kill()
    assert child.stdout.read() == ""
    child.stdout.close()
    child.wait(60)
