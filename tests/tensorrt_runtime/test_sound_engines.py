"""Sound engines pass on every version of TensorRT, and their session measures and cleans up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import build as building
from conformance.runtimes.tensorrt import session as running
from conformance.runtimes.tensorrt.options import Build
from tests.support import PASSED, say, verdict
from tests.tensorrt_runtime.support import AFFINE, BATCHES, LINEAR, PRECISIONS, run, saved


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_sound_engine_passes_on_every_version_and_says_how_it_computes(bench, double, version, precision):
    double(version)
    record = run(bench, say(LINEAR, PRECISIONS), precision=precision)
    assert verdict(record) == PASSED, record.reason
    assert record.examples > 20
    told = record.arithmetic
    assert told["provider"].startswith(f"TensorRT {version}")
    assert "double" in told["gpu"]
    assert told["tf32"] is False
    assert told["arithmetic"] == ("chosen by the builder" if version == "8.6.0" else "as the model says")


def test_the_engine_check_passes_and_notes_layers_times_and_throughput(bench, double, version):
    double(version)
    record = run(bench, check="engine")
    assert verdict(record) == PASSED, record.reason
    assert len(record.engine["layers"]) >= 1
    assert {"name", "ms"} == record.engine["layers"][0].keys()
    assert [one["batch"] for one in record.engine["times"]] == [1, 4]  # 16 is beyond the case's dims
    assert all(one["with_transfers"] > 0 and one["rows"] > 0 for one in record.engine["times"])


def test_integers_that_8_6_has_no_dtype_for_are_cast_and_told(bench, double):
    body = """
    forward: x * 2 - 1
    inputs: {x: {type: "int64[batch, 3]", values: {integers: {low: -9, high: 9}}}}
    dims: {batch: 1..4}
    runtimes: tensorrt
    export: {torchscript: [17]}
    """
    double("8.6.0")
    record = run(bench, body, "")
    assert verdict(record) == PASSED, record.reason
    assert (
        record.arithmetic["casts"] == ["x: int64 as int32", "output0: int64 as int32"]
        or len(record.arithmetic["casts"]) == 2
    )
    double("10.12.0")
    assert run(bench, body, "").arithmetic["casts"] == []


def test_a_value_beyond_what_8_6_can_take_is_an_error_and_not_a_wrong_answer(bench, double):
    double("8.6.0")
    record = run(
        bench,
        """
        forward: x * 2
        inputs: {x: {type: "int64[batch]", values: {integers: {low: 4000000000, high: 4000000009}}}}
        dims: {batch: 1..4}
        runtimes: tensorrt
        export: {torchscript: [17]}
        """,
        "",
    )
    assert (record.status, record.stage, record.error) == ("failed", "run", "ValueError")
    assert "beyond int32" in record.reason


def test_an_output_whose_shape_depends_on_values_goes_through_an_allocator(bench, double, version):
    double(version)
    record = run(
        bench,
        """
        forward: torch.masked_select(x, x > 0)
        inputs: {x: "float32[n]"}
        dims: {n: 2..40}
        runtimes: tensorrt
        export: {torchscript: [17]}
        """,
        "",
    )
    assert verdict(record) == PASSED, record.reason


SCALAR = "(float x, float[N,3] a) => (float y, float[N,3] b) { y = Neg(x)  b = Neg(a) }"


def test_layers_are_measured_where_contexts_cannot_share_a_profile(double, version, tmp_path):
    """As in TensorRT 8.6; afterwards the session runs as before."""
    double(version)
    with runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES) as session:
        x = np.ones((3, 3), np.float32)
        before = session.run({"x": x})
        assert {layer["name"] for layer in session.layers({"x": x})} == {"y", "z"}
        assert np.array_equal(session.run({"x": x})[0], before[0])


def test_a_layer_that_is_reported_twice_a_run_has_the_time_of_both(double, tmp_path, monkeypatch):
    double()
    with runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES) as session:

        def report(inputs: Any) -> None:
            profiler = session._context.profiler
            for _ in range(2 if profiler is not None else 0):
                profiler.report_layer_time("loop", 1.5)

        monkeypatch.setattr(session, "run", report)
        assert session.layers({}, rounds=4) == [{"name": "loop", "ms": 3.0}]


@pytest.mark.parametrize("transfers", [False, True])
def test_empty_and_0d_tensors_are_timed(double, version, transfers, tmp_path):
    double(version)
    build = Build({"x": ((), (), ()), "a": ((0, 3), (2, 3), (4, 3))})
    inputs = {"x": np.array(2, np.float32), "a": np.zeros((0, 3), np.float32)}
    with (
        runtime.open_model(saved(tmp_path, SCALAR), (), build) as session,
        session.stopwatch(inputs, transfers=transfers) as once,
    ):
        assert once() > 0


def test_what_a_session_has_on_the_device_goes_with_it(double, version, tmp_path):
    """Though somebody holds it, as a traceback does."""
    double(version)
    from pycuda import _memory

    with runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES) as session:
        session.run({"x": np.ones((3, 3), np.float32)})
        assert _memory._live
    assert not _memory._live
    with pytest.raises(RuntimeError, match="NumPy has no dtype for") as held:
        _open_with_unknown_dtypes(tmp_path)
    assert held.tb
    assert not _memory._live


def _open_with_unknown_dtypes(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "DTYPES", {})
        with runtime.open_model(saved(folder, AFFINE), (), BATCHES):
            pass


def test_plugins_always_have_a_logger_to_speak_to(double, tmp_path):
    double()
    for _ in range(2):
        with runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES):
            pass


def test_a_reason_is_not_that_of_an_engine_before(double, tmp_path, monkeypatch):
    double()
    model = saved(tmp_path, AFFINE)
    with runtime.open_model(model, (), BATCHES) as session, pytest.raises(ValueError, match="is built for"):
        session.run({"x": np.ones((9, 3), np.float32)})
    monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", "build")  # in the same process, which has one logger
    with (
        pytest.raises(building.BuildFailed, match="the fault that was planted") as failed,
        runtime.open_model(model, (), BATCHES),
    ):
        pass
    assert "exceed" not in str(failed.value)
