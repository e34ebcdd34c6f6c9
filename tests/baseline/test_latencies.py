"""Latencies of two runs: which of them are compared, and when a runtime is slower."""

from __future__ import annotations

import pytest

from conformance.baseline import compare_runs, environment_changes, load
from tests.baseline.support import beside, environment, kinds, latency, of_one, record, run, written


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


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (beside(2e-3, 4e-3), []),
        (beside(2e-3, 3e-3), ["slower"]),
        (beside(2e-3, 1e-3), ["slower"]),
        (beside(1e-3, 1e-3), []),
        (beside(0.5e-3, 1e-3), []),
        (beside(0.5e-3, 2e-3), ["faster"]),
        (beside(2e-3, 4e-3, "tensorrt fp16"), ["slower"]),
    ],
)
def test_a_host_that_slows_both_sides_is_no_slower_runtime(after, expected):
    assert kinds(run(record(**beside(1e-3, 2e-3))), run(record(**after))) == expected


def test_a_few_samples_support_nothing():
    few = [{"latency": {"own": {"median": median, "samples": [median] * 5}}} for median in (1e-3, 9e-3)]
    assert compare_runs(*(run(record(**one)) for one in few)) == []
