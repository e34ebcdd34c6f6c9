"""The faults that can be planted in the doubles do what they are named after."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.tensorrt_doubles.support import AFFINE, BATCHES, DOUBLES, VERSIONS, Load, X, model


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
