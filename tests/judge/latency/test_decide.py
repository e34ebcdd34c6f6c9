"""What a budget says, and deciding on it: what looks broken is opened and measured a second time."""

from contextlib import contextmanager

import numpy as np
import pytest

from conformance.case.files.time_budget import parse
from conformance.judge.latency.measure_latency import decide
from conformance.judge.latency.statistics import ratio_interval
from tests.kit.clock import Host, quiet

pytestmark = pytest.mark.smoke


@contextmanager
def opening(sides, opened):
    opened.append("opened")
    yield sides
    opened.append("closed")


def decided(ratios, text="1.10 x pytorch", **options):
    """The verdict where the own side is that many times slower each time it is opened, and what was opened."""
    simulated, opened, left = Host(quiet(np.random.default_rng(0))), [], list(ratios)

    def sides():
        other = None if parse(text).kind == "absolute" else simulated.side("other", 1e-3)
        return opening((simulated.side("own", 1e-3 * left.pop(0)), other), opened)

    options = {"max_seconds": 0.5, "warmup_seconds": 0.01, "clock": simulated.clock, **options}
    samples, judged = decide(parse(text), sides, seed=0, **options)
    return samples, judged, opened


def test_a_side_that_is_slow_whenever_it_is_opened_breaks_a_budget():
    _, judged, opened = decided([1.3, 1.2])
    assert judged.verdict == "broken"
    assert opened == ["opened", "closed"] * 2
    assert judged.interval.low < 1.21 and judged.interval.high > 1.29


def test_a_side_that_is_slow_only_the_first_time_does_not():
    samples, judged, _ = decided([1.3, 1.0])
    assert judged.verdict == "inconclusive"
    assert ratio_interval(samples).low > 1.1


def test_what_holds_is_not_measured_twice():
    _, judged, opened = decided([1.0])
    assert (judged.verdict, opened) == ("holds", ["opened", "closed"])


def test_a_percentile_in_seconds_is_decided_from_single_calls():
    samples, judged, _ = decided([0.01], "20 us", percentile=90)
    assert samples.iterations[0] == 1 and samples.other is None
    assert (judged.verdict, judged.percentile) == ("holds", 90)
    assert decided([0.01], "20 us")[0].iterations[0] > 1


@pytest.mark.parametrize("text, kind, limit, runtime, precision", [
    ("1.2 x pytorch", "relation", 1.2, "pytorch", None),
    ("1.0 x tensorrt fp16", "relation", 1.0, "tensorrt", "fp16"),
    ("  .5x  onnxruntime   int8-minmax ", "relation", 0.5, "onnxruntime", "int8-minmax"),
    ("2 × onnx-reference", "relation", 2.0, "onnx-reference", None), ("5 ms", "absolute", 5e-3, None, None),
    ("800 µs", "absolute", 8e-4, None, None), ("0.2 s", "absolute", 0.2, None, None),
])  # fmt: skip
def test_a_budget_is_a_relation_or_a_time(text, kind, limit, runtime, precision):
    found = parse(text)
    assert (found.kind, found.runtime, found.precision) == (kind, runtime, precision)
    assert found.limit == pytest.approx(limit, rel=1e-12) and parse(str(found)) == found


@pytest.mark.parametrize("text, said", [
    ("1.2 x pytroch", "did you mean 'pytorch'"),
    ("1.2 x cuda", "known: onnx-reference, onnxruntime, onnxruntime-coreml, onnxruntime-cuda, "),
    ("1 x tensorrt fp15", "did you mean 'fp16'"), ("1.2 pytorch", "lacks an x: '1.2 x pytorch'"),
    ("5", "'5' has no unit"), (5, "5 has no unit"), ("5 MS", "did you mean 'ms'"),
    ("-1 ms", "a finite number above 0"), ("", "is no budget"), ("1.2 x pytorch fp16 please", "is no budget"),
])  # fmt: skip
def test_what_is_no_budget_is_refused_with_a_remedy(text, said):
    with pytest.raises(ValueError) as found:
        parse(text)
    assert said in str(found.value)
