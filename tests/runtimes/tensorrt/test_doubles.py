"""The doubles of TensorRT and pycuda: the recorded surface, and refusals on which the tests of the runtime rest."""

import ast
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from tests.kit.models import model_of
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, DOUBLES

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


def recording(release: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOUBLES / f"tensorrt-{release}.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def load(double: Callable[..., None]) -> Callable[..., Any]:
    """``load(version)``: import the double of TensorRT, with a context of CUDA."""

    def load_(version: str = "8.6.0") -> Any:
        double(version)
        driver = importlib.import_module("pycuda.driver")
        driver.init()
        driver.Device(0).retain_primary_context().push()
        return importlib.import_module("tensorrt")

    return load_


def engine_of(trt: Any) -> Any:
    """Return an engine of AFFINE, built with nothing but what TensorRT offers."""
    builder = trt.Builder(trt.Logger())
    network = builder.create_network(1)
    assert trt.OnnxParser(network, builder.logger).parse(model_of(f"g {AFFINE}").SerializeToString())
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    profile.set_shape("x", *BATCHES.shapes["x"])
    config.add_optimization_profile(profile)
    return trt.Runtime(builder.logger).deserialize_cuda_engine(builder.build_serialized_network(network, config))


def test_the_surface_is_the_recording_of_its_version(load, version):
    trt, recorded = load(version), recording(version.removesuffix(".0"))
    assert trt.__version__ == recorded["version"]
    public = {name for name in vars(trt) if not name.startswith("_")} - {"DOUBLE"}
    expected = {*recorded["classes"], *recorded["functions"], *recorded["constants"]}
    assert public == {name for name in expected if "." not in name}
    for path, says in recorded["classes"].items():
        cls = trt
        for part in path.split("."):
            cls = getattr(cls, part)
        members = {name for kind in ("members", "methods", "properties", "constants") for name in says.get(kind, {})}
        assert members <= set(dir(cls)), path
        nested = {name.rpartition(".")[2] for name in recorded["classes"] if name.startswith(f"{path}.")}
        assert {name for name in vars(cls) if not name.startswith("_")} - nested <= members, path


@pytest.mark.parametrize("call", [
    lambda trt, builder: builder.create_network(flag=1),
    lambda trt, builder: builder.create_builder_config().set_flag(0),
    lambda trt, builder: builder.create_optimization_profile().set_shape("x", (1.5,), (1,), (1,)),
    lambda trt, builder: trt.INetworkDefinition(),
    lambda trt, builder: 1 << trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH,
])  # fmt: skip
def test_calls_must_fit_the_recorded_signature(load, call):
    trt = load()
    with pytest.raises(TypeError):
        call(trt, trt.Builder(trt.Logger()))


def test_what_is_not_recorded_is_refused_and_what_is_not_implemented_says_so(load):
    trt = load()
    builder = trt.Builder(trt.Logger())
    with pytest.raises(AttributeError, match="has no attribute 'max_workspace'"):
        builder.create_builder_config().max_workspace = 1
    with pytest.raises(AttributeError, match="INT64"):
        _ = trt.DataType.INT64
    with pytest.raises(NotImplementedError, match=r"INetworkDefinition.add_identity"):
        builder.create_network(1).add_identity(trt.ITensor.make())


def names_in(value: Any) -> set[str]:
    """Return every name of a recording: classes, functions, methods, properties, members."""
    if isinstance(value, dict):
        return {*value, *(name for inner in value.values() for name in names_in(inner))}
    return {name for inner in value for name in names_in(inner)} if isinstance(value, list) else {str(value)}


def test_the_runtime_uses_no_name_that_a_later_version_removed():
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in Path(runtime.__file__).parent.glob("*.py")]
    used = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    shared = used & names_in(recording("8.6"))
    assert len(shared) > 40  # it does look at the right names
    for release in ("10.12", "11.0"):
        removed = shared - names_in(recording(release))
        # free is device memory's; reallocate_output is our own method, which 8.6 calls and 10 calls by another name
        assert removed <= {"free", "reallocate_output"}, f"{release} has no {sorted(removed)}"


def test_answers_arrive_when_the_stream_is_waited_for(load):
    """Code that forgets to wait reads what was there before."""
    load()
    from pycuda import driver as cuda

    memory, stream, back = cuda.mem_alloc(X.nbytes), cuda.Stream(), np.zeros_like(X)
    cuda.memcpy_htod_async(memory, X, stream)
    cuda.memcpy_dtoh_async(back, memory, stream)
    assert not back.any()
    stream.synchronize()
    assert np.array_equal(back, X)


def test_contexts_of_8_6_do_not_share_a_profile(load):
    for version, shares in (("8.6.0", False), ("10.12.0", True)):
        engine = engine_of(load(version))
        first, second = engine.create_execution_context(), engine.create_execution_context()
        assert first.set_input_shape("x", (2, 3)) and second.set_input_shape("x", (2, 3)) is shares


def test_memory_must_be_there_and_large_enough(load):
    context = engine_of(load()).create_execution_context()
    from pycuda import driver as cuda

    assert not context.execute_async_v3(0), "there is no shape"
    context.set_input_shape("x", (2, 3))
    assert not context.execute_async_v3(0), "there are no addresses"
    memory = {name: cuda.mem_alloc(24) for name in "xyz"}
    for name, one in memory.items():
        context.set_tensor_address(name, one)
    assert context.execute_async_v3(0)
    memory["y"].free()  # before the stream is waited for
    with pytest.raises(RuntimeError, match=r"output y is at .* in no live allocation"):
        cuda.Context.synchronize()
    small = cuda.mem_alloc(23)
    context.set_tensor_address("y", small)
    with pytest.raises(RuntimeError, match="output y takes 24 bytes, but its allocation has room for 23"):
        context.execute_async_v3(0)
