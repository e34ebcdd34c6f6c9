"""Sound engines pass on every version of TensorRT, and their session measures and cleans up."""

import numpy as np
import pytest

from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import build as building
from conformance.runtimes.tensorrt.build_options import Build
from tests.kit.cases import PASSED, say, verdict
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, LINEAR, PRECISIONS, run, saved


def test_a_sound_engine_passes_in_every_precision_and_says_how_it_computes(bench, double, version):
    double(version)
    for precision in ("fp32", "fp16", "int8"):
        record = run(bench, say(LINEAR, PRECISIONS), precision=precision)
        assert verdict(record) == PASSED and record.examples > 20, record.reason
        told = record.arithmetic
        assert told["provider"].startswith(f"TensorRT {version}") and "double" in told["gpu"]
        assert told["tf32"] is False
        assert told["arithmetic"] == ("chosen by the builder" if version == "8.6.0" else "as the model says")


def test_the_engine_check_passes_and_notes_layers_times_and_throughput(bench, double, version, driver):
    double(version, driver=driver)
    record = run(bench, check="engine")
    assert verdict(record) == PASSED, record.reason
    assert len(record.engine["layers"]) >= 1 and {"name", "ms"} == record.engine["layers"][0].keys()
    assert [one["batch"] for one in record.engine["times"]] == [1, 4]  # 16 is beyond the case's dims
    assert all(one["with_transfers"] > 0 and one["rows"] > 0 for one in record.engine["times"])


def forward(expression: str, x: str, dims: str) -> str:
    """A case of one expression for TensorRT."""
    inputs = f"inputs: {{x: {x}}}\ndims: {{{dims}}}"
    return say(f"forward: {expression}", inputs, "runtimes: tensorrt", "export: {torchscript: [17]}")


def integers(low: int, high: int) -> str:
    return f'{{type: "int64[batch, 3]", values: {{integers: {{low: {low}, high: {high}}}}}}}'


def test_integers_that_8_6_has_no_dtype_for_are_cast_and_told(bench, double):
    body = forward("x * 2 - 1", integers(-9, 9), "batch: 1..4")
    double("8.6.0")
    record = run(bench, body, "")
    assert verdict(record) == PASSED, record.reason
    assert record.arithmetic["casts"][0] == "x: int64 as int32" and len(record.arithmetic["casts"]) == 2
    double("10.12.0")
    assert run(bench, body, "").arithmetic["casts"] == []


def test_a_value_beyond_what_8_6_can_take_is_an_error_and_not_a_wrong_answer(bench, double):
    double("8.6.0")
    record = run(bench, forward("x * 2", integers(4_000_000_000, 4_000_000_009), "batch: 1..4"), "")
    assert (record.status, record.stage, record.error) == ("failed", "run", "ValueError")
    assert "beyond int32" in record.reason


@pytest.mark.smoke
def test_an_output_whose_shape_depends_on_values_goes_through_an_allocator(bench, double, version, driver):
    double(version, driver=driver)
    record = run(bench, forward("torch.masked_select(x, x > 0)", '"float32[n]"', "n: 2..40"), "")
    assert verdict(record) == PASSED, record.reason


def test_layers_are_measured_where_contexts_cannot_share_a_profile(double, version, tmp_path):
    """As in TensorRT 8.6; afterwards the session runs as before."""
    double(version)
    with runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES) as session:
        x = np.ones((3, 3), np.float32)
        before = session.run({"x": x})
        assert {layer["name"] for layer in session.layers({"x": x})} == {"y", "z"}
        assert np.array_equal(session.run({"x": x})[0], before[0])


def test_what_a_session_has_on_the_device_goes_with_it(double, version, driver, tmp_path):
    """Though somebody holds it, as a traceback does."""
    double(version, driver=driver)
    import device_memory as _memory

    with runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES) as session:
        session.run({"x": np.ones((3, 3), np.float32)})
        assert _memory._live
    assert not _memory._live
    if version == "8.6.0":  # which has no bfloat16
        return
    unknown = saved(tmp_path, "(bfloat16[2] x) => (float[2] y) { y = Cast<to=1>(x) }")
    with (
        pytest.raises(RuntimeError, match="NumPy has no dtype for") as held,
        runtime.open_model(unknown, (), Build({})),
    ):
        pass
    assert held.tb
    assert not _memory._live


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
