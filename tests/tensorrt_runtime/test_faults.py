"""What is wrong with an engine, a build or a device is found, and stays with its cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.records import text
from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import build as building
from conformance.runtimes.tensorrt.device import Memory
from conformance.runtimes.tensorrt.options import Build
from tests.support import details, run_suite, say, verdict, write_case
from tests.tensorrt_runtime.support import DOUBLES, LINEAR, PRECISIONS, PYTHON, run, saved


def test_a_wrong_answer_is_the_runtimes_fault_since_onnxruntime_agrees_with_pytorch(bench, double):
    double(fault="wrong")
    record = run(bench)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert any("optimizer off: agrees with PyTorch" in line for line in details(record))


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_wrong_answer_of_a_converted_model_is_found(bench, double, precision):
    double(fault="wrong")
    record = run(bench, say(LINEAR, PRECISIONS), precision=precision)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


def test_rows_that_differ_though_they_are_equal_are_found(bench, double):
    double(fault="rows")
    assert verdict(run(bench, check="engine")) == ("failed", "compare", "RowsDiffer", "runtime")


def test_a_second_build_that_answers_otherwise_is_found(bench, double):
    double(fault="rebuild")
    assert verdict(run(bench, check="engine")) == ("failed", "compare", "RebuildDiffers", "runtime")


def test_an_engine_that_cannot_be_built_stops_at_load(bench, double):
    double(fault="build")
    record = run(bench)
    assert (record.status, record.stage, record.error) == ("failed", "load", "BuildFailed")


def test_an_operator_that_the_parser_does_not_know_stops_at_load_with_the_node_and_the_parsers_words(
    bench, double, version
):
    double(version, unsupported="Relu")
    record = run(bench)
    assert (record.status, record.stage, record.error) == ("failed", "load", "UnsupportedModel")
    assert "(Relu /Relu)" in record.reason
    assert "Relu" in record.reason.split("): ", 1)[1]
    declared = "fails: [{when: {runtime: tensorrt}, stage: load, error: UnsupportedModel, because: it has no Relu}]"
    assert run(bench, say(LINEAR, declared)).status == "xfailed"


def test_no_memory_on_the_device_is_told(bench, double):
    double(fault="oom")
    record = run(bench)
    assert record.status == "failed"
    assert "memory" in record.reason.lower()


def test_no_memory_for_an_output_whose_shape_depends_on_values_is_told(double, version, tmp_path, monkeypatch):
    double(version)
    model = saved(tmp_path, "(float[5] x) => (int64[1,M] y) { y = NonZero(x) }")
    give = Memory.at_least

    def refuse(self: Memory, name: str, size: int) -> Any:
        if name == "y":
            raise MemoryError("cuMemAlloc failed: out of memory")
        return give(self, name, size)

    with runtime.open_model(model, (), Build({"x": ((5,), (5,), (5,))})) as session:
        assert session.run({"x": np.zeros(5, np.float32)})[0].shape == (1, 0)
        monkeypatch.setattr(Memory, "at_least", refuse)
        with pytest.raises(RuntimeError, match="no memory for y: cuMemAlloc failed: out of memory"):
            session.run({"x": np.ones(5, np.float32)})
        monkeypatch.setattr(Memory, "at_least", give)
        assert session.run({"x": np.ones(5, np.float32)})[0].shape == (1, 5)


@pytest.mark.parametrize("version, node", [("8.6.0", "node 1 (If branch)"), ("10.12.0", "node 0 (Relu inner)")])
def test_an_unknown_operator_in_the_body_of_another_is_told_as_the_parser_tells_it(double, version, node, tmp_path):
    double(version, unsupported="Relu")
    model = saved(
        tmp_path,
        """(float[2] x, bool c) => (float[2] y) {
        [first] a = Abs(x)
        [branch] y = If(c) <
            then_branch = t () => (float[2] p) { [inner] p = Relu(a) },
            else_branch = e () => (float[2] q) { [other] q = Neg(a) }
        >
    }""",
    )
    with (
        pytest.raises(building.UnsupportedModel, match="No importer registered for op: Relu") as refused,
        runtime.open_model(model, (), Build({})),
    ):
        pass
    assert node in str(refused.value)
    assert "Abs" not in str(refused.value)


def test_an_error_that_ends_cuda_for_the_process_is_the_verdict_of_its_cell_alone(tmp_path):
    """What comes after it gets a new process, and no smaller example is made up."""
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    write_case(tmp_path / "cases", LINEAR.replace("module: beside.Small", "forward: torch.tanh(x)"), name="atfirst")
    done = run_suite(
        tmp_path, "--runtime", "tensorrt", PYTHONPATH=str(DOUBLES), CONFORMANCE_DOUBLE_ILLEGAL="Tanh"
    )  # fmt: skip
    lost, engine = (
        done.records[f"{check}[atfirst-torchscript-op17-tensorrt-fp32]"] for check in ("accuracy", "engine")
    )
    assert (lost["status"], lost["stage"], lost["signal"]) == ("failed", "run", "SIGABRT")
    assert any("an illegal memory access was encountered" in line for line in text.details(lost))
    assert engine["signal"] == "SIGABRT"
    others = [one for one in done.records.values() if one["case"] == "planted"]
    assert {one["check"] for one in others} >= {"accuracy", "engine"}
    assert {one["status"] for one in others} == {"passed"}


@pytest.mark.parametrize("fault, signal", [("crash", "SIGABRT"), ("hang", "timeout after 30 s")])
def test_an_engine_that_ends_or_hangs_the_process_is_the_verdict_of_its_cell(tmp_path, fault, signal):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(
        tmp_path, "--runtime", "tensorrt,onnxruntime", "--cell-timeout", "30", PYTHONPATH=str(DOUBLES),
        CONFORMANCE_DOUBLE_FAULT=fault,
    )  # fmt: skip
    records = done.records
    broken = records["accuracy[planted-torchscript-op17-tensorrt-fp32]"]
    assert (broken["status"], broken["signal"], broken["stage"]) == ("failed", signal, "run")
    assert records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]["status"] == "passed"
    assert done.code == 1


@pytest.mark.parametrize("check", ["accuracy", "engine"])
@pytest.mark.parametrize("given, error", [
    ({"unsupported": "Relu"}, "UnsupportedModel"), ({"fault": "build"}, "BuildFailed"),
    ({"fault": "oom"}, "MemoryError"),
])  # fmt: skip
def test_what_tensorrt_and_cuda_refuse_is_no_mistake_of_the_harness(bench, double, check, given, error):
    double(**given)
    record = run(bench, check=check)
    assert (record.status, record.error, record.fault) == ("failed", error, "runtime")
    assert not any("mistake in the harness" in line for line in details(record))
