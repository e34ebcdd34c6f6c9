"""What is wrong with an engine, a build or a device is found, and stays with its cell."""

import numpy as np
import pytest

from conformance.results.records import text
from conformance.results.records.record import Record
from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt.build_options import Build
from tests.kit.cases import details, say, verdict, write_case
from tests.kit.runs import run_suite
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, DOUBLES, LINEAR, PRECISIONS, PYTHON, run, saved


@pytest.mark.parametrize("fault, check, precision, error", [
    ("wrong", "accuracy", "fp32", "WrongValue"), ("wrong", "accuracy", "fp16", "WrongValue"),
    ("wrong", "accuracy", "int8", "WrongValue"),
    ("rows", "engine", "fp32", "RowsDiffer"), ("rebuild", "engine", "fp32", "RebuildDiffers"),
])  # fmt: skip
def test_what_an_engine_computes_wrongly_is_found(bench, double, fault, check, precision, error):
    double(fault=fault)
    record = run(bench, say(LINEAR, PRECISIONS), check=check, precision=precision)
    assert verdict(record) == ("failed", "compare", error, "runtime")


def test_an_operator_that_the_parser_does_not_know_stops_at_load_with_the_node_and_the_parsers_words(
    bench, double, version
):
    double(version, unsupported="Relu")
    record = run(bench)
    assert (record.status, record.stage, record.error) == ("failed", "load", "UnsupportedModel")
    assert "node Relu /Relu: UNSUPPORTED_NODE: " in record.reason and "Relu" in record.reason.split("NODE: ", 1)[1]
    declared = "fails: [{when: {runtime: tensorrt}, stage: load, error: UnsupportedModel, because: it has no Relu}]"
    assert run(bench, say(LINEAR, declared)).status == "xfailed"


def test_no_memory_for_an_output_whose_shape_depends_on_values_is_told(double, version, tmp_path, monkeypatch):
    double(version)
    model = saved(tmp_path, "(float[5] x) => (int64[1,M] y) { y = NonZero(x) }")
    with runtime.open_model(model, (), Build({"x": ((5,), (5,), (5,))})) as session:
        assert session.run({"x": np.zeros(5, np.float32)})[0].shape == (1, 0)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", "oom")
        with pytest.raises(RuntimeError, match="no memory for y: cuMemAlloc failed: out of memory"):
            session.run({"x": np.ones(5, np.float32)})
        monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", "")
        assert session.run({"x": np.ones(5, np.float32)})[0].shape == (1, 5)


@pytest.mark.thorough
def test_an_engine_that_ends_or_hangs_its_process_is_the_verdict_of_its_cell_alone(tmp_path):
    """What comes after it gets a new process, and no smaller example is made up."""
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    for name in ("sin", "cos", "tanh"):
        write_case(tmp_path / "cases", LINEAR.replace("module: beside.Net", f"forward: torch.{name}(x)"), name=name)
    done = run_suite(
        tmp_path, "--runtime", "tensorrt", "--cell-timeout", "6", own_process=True, PYTHONPATH=str(DOUBLES),
        CONFORMANCE_DOUBLE_FAULT="crash:Sin,hang:Cos", CONFORMANCE_DOUBLE_ILLEGAL="Tanh",
    )  # fmt: skip
    assert done.code == 1
    records = {(one["case"], one["check"]): one for one in done.records.values()}
    for name, signal in {"sin": "SIGABRT", "cos": "timeout after 6 s", "tanh": "SIGABRT"}.items():
        broken, engine = records[name, "accuracy"], records[name, "engine"]
        assert (broken["status"], broken["stage"], broken["signal"]) == ("failed", "run", signal)
        assert (engine["status"], engine["signal"]) == ("failed", signal)
    lost = records["tanh", "accuracy"]
    assert any("an illegal memory access was encountered" in line for line in text.details(Record.from_dict(lost)))
    others = [one for (case, _), one in records.items() if case == "planted"]
    assert {one["check"] for one in others} >= {"accuracy", "engine"}
    assert {one["status"] for one in others} == {"passed"}


@pytest.mark.parametrize("check", ["accuracy", "engine"])
@pytest.mark.parametrize("given, error", [
    ({"unsupported": "Relu"}, "UnsupportedModel"), ({"fault": "build"}, "BuildFailed"),
    ({"fault": "oom"}, "MemoryError"), ({"fault": "oom", "driver": "cuda-python"}, "MemoryError"),
])  # fmt: skip
def test_what_tensorrt_and_cuda_refuse_is_no_mistake_of_the_harness(bench, double, check, given, error):
    double(**given)
    record = run(bench, check=check)
    assert (record.status, record.error, record.fault) == ("failed", error, "runtime")
    assert record.stage == "load" or error == "MemoryError"
    assert not any("mistake in the harness" in line for line in details(record))


def test_kept_timings_that_are_refused_do_not_explain_a_build_that_fails(double, tmp_path, monkeypatch):
    double("8.6.0", fault="build")
    import tensorrt

    made = tensorrt.IBuilderConfig.create_timing_cache

    def refusing(config, serialized_timing_cache):
        config._logger.log(tensorrt.ILogger.Severity.ERROR, "Myelin error from unknown graph")
        return made(config, serialized_timing_cache)

    monkeypatch.setattr(tensorrt.IBuilderConfig, "create_timing_cache", refusing)
    build = Build(BATCHES.shapes, store=tmp_path / "engines")
    with pytest.raises(RuntimeError) as raised, runtime.open_model(saved(tmp_path, AFFINE), (), build):
        pass
    assert "planted" in str(raised.value) and "Myelin" not in str(raised.value)
