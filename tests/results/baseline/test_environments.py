"""What the hosts of two runs explain of the differences between them, latencies above all."""

import pytest

from conformance.results.baseline.baseline_file import load
from conformance.results.baseline.change_causes import environment_changes
from conformance.results.baseline.run_comparison import compare_runs
from tests.results.baseline.support import (
    HEADER,
    beside,
    environment,
    kinds,
    latency,
    of_one,
    record,
    run,
    worst,
    written,
)


@pytest.mark.parametrize("changes, said", [
    ({"versions": {"torch": "2.16.0", "onnx": "1.23.2"}}, "torch 2.15.0 -> 2.16.0"),
    ({"versions": {**HEADER["environment"]["versions"], "tensorrt": "8.6.0"}}, "tensorrt not installed -> 8.6.0"),
    ({"cpu": {"name": "B", "instructions": ["avx2", "avx512f"]}}, "cpu A -> B"),
    ({"cpu": {"name": "A", "instructions": ["avx2"]}}, "cpu instructions: now without avx512f"),
    ({"gpu": {"name": "H200"}}, "gpu none -> H200"),
    ({"flags": ["conformance", "--examples", "2"]}, "arguments: conformance -> conformance --examples 2"),
])  # fmt: skip
def test_what_explains_changes_is_told(changes, said):
    assert said in environment_changes(run(), run(environment=environment(**changes)))


def test_equal_environments_have_nothing_to_tell_but_that_a_run_did_not_finish():
    assert environment_changes(run(), run()) == []
    header, records = run()
    del header["seconds"]
    (line,) = environment_changes(run(), (header, records))
    assert "did not finish" in line


def test_on_another_processor_an_error_that_is_larger_by_rounding_is_told_and_gates_nothing():
    """Its kernels sum in another order; a cell that then fails is a regression all the same."""
    other = environment(cpu={"name": "another", "instructions": ["avx2"]})
    before = run(record(**worst(0.2)), environment=environment(cpu={"name": "one", "instructions": ["avx512f"]}))
    rounded = {"worst": {"output": 0, "ratio": 0.6, "rounding": 0.2}}
    (change,) = compare_runs(before, run(record(**rounded), environment=other))
    assert (change.kind, change.regression) == ("accuracy worse", False) and change.cause in change.text
    (change,) = compare_runs(before, run(record(status="failed"), environment=other))
    assert (change.kind, change.regression) == ("newly failing", True)


@pytest.mark.parametrize("other", [{"cpu": {"name": "B"}}, {"gpu": "H200"}])
def test_latencies_of_another_processor_are_not_compared(other):
    before = run(record(**latency(1e-3, 0.9e-3, 1.1e-3)))
    after = run(record(**latency(9e-3, 8.9e-3, 9.1e-3)), environment=environment(**other))
    assert compare_runs(before, after) == []
    assert "latencies are not comparable: other processor" in environment_changes(before, after)


def test_what_a_record_keeps_of_a_measurement_is_enough_to_compare(tmp_path):
    change = of_one(beside(1e-3, 2e-3), beside(1.4e-3, 2e-3))
    assert (change.kind, change.before, change.after) == ("slower", 1e-3, 1.4e-3)
    assert change.text == "median 1.4 ms, was 1 ms (1.40 times); pytorch fp32 beside it 2 ms, was 2 ms"
    baseline = load(written(tmp_path, record(**beside(1e-3, 2e-3))))
    assert kinds(baseline, run(record(**beside(1.4e-3, 2e-3)))) == ["slower"]
    assert kinds(baseline, run(record(**beside(1.4e-3, 2.8e-3)))) == []


@pytest.mark.parametrize("after, expected", [
    (beside(2e-3, 4e-3), []), (beside(2e-3, 3e-3), ["slower"]), (beside(1e-3, 1e-3), []),
    (beside(0.5e-3, 2e-3), ["faster"]), (beside(2e-3, 4e-3, "tensorrt fp16"), ["slower"]),
])  # fmt: skip
def test_a_host_that_slows_both_sides_is_no_slower_runtime(after, expected):
    assert kinds(run(record(**beside(1e-3, 2e-3))), run(record(**after))) == expected


def test_a_few_samples_support_nothing():
    few = [{"latency": {"own": {"median": median, "samples": [median] * 5}}} for median in (1e-3, 9e-3)]
    assert compare_runs(*(run(record(**one)) for one in few)) == []
