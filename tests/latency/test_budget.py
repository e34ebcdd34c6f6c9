"""What a budget says: a relation to another runtime, or a time."""

from __future__ import annotations

import pytest

from conformance.case.time_budget import parse


@pytest.mark.parametrize("text, kind, limit, runtime, precision", [
    ("1.2 x pytorch", "relation", 1.2, "pytorch", None),
    ("1.0 x tensorrt fp16", "relation", 1.0, "tensorrt", "fp16"),
    ("  .5x  onnxruntime   int8-minmax ", "relation", 0.5, "onnxruntime", "int8-minmax"),
    ("2 × onnx-reference", "relation", 2.0, "onnx-reference", None),
    ("5 ms", "absolute", 5e-3, None, None),
    ("800 µs", "absolute", 8e-4, None, None),
    ("0.2 s", "absolute", 0.2, None, None),
])  # fmt: skip
def test_a_budget_is_a_relation_or_a_time(text, kind, limit, runtime, precision):
    found = parse(text)
    assert (found.kind, found.runtime, found.precision) == (kind, runtime, precision)
    assert found.limit == pytest.approx(limit, rel=1e-12)
    assert parse(str(found)) == found


@pytest.mark.parametrize("text, said", [
    ("1.2 x pytroch", "did you mean 'pytorch'"),
    ("1.2 x cuda", "known: onnx-reference, onnxruntime, onnxruntime-coreml, onnxruntime-cuda, "),
    ("1 x tensorrt fp15", "did you mean 'fp16'"),
    ("1.2 pytorch", "lacks an x: '1.2 x pytorch'"),
    ("5", "'5' has no unit"),
    (5, "5 has no unit"),
    ("5 MS", "did you mean 'ms'"),
    ("-1 ms", "a finite number above 0"),
    ("", "is no budget"),
    ("1.2 x pytorch fp16 please", "is no budget"),
])  # fmt: skip
def test_what_is_no_budget_is_refused_with_a_remedy(text, said):
    with pytest.raises(ValueError) as found:
        parse(text)
    assert said in str(found.value)
