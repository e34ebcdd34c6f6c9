"""The doubles refuse what the real packages refuse, in the same way."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

from tests.tensorrt_doubles.support import AFFINE, BATCHES, HALF, QUANTIZED, VERSIONS, Load, X, model


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
