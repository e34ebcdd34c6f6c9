"""The doubles give right answers, with the interfaces that the real packages have for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.tensorrt_doubles.support import AFFINE, BATCHES, HALF, VERSIONS, Load, X, model


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
