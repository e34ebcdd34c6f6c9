"""PyTorch's own float32: called wrong where no rounding explains it, and ill-conditioned where rounding does."""

from __future__ import annotations

import pytest

from benchmarks.culprits.reference import plants
from benchmarks.planted import walk
from conformance.records.findings import key_of
from tests.kit.cases import Bench, say

VECTOR = "inputs: {x: 'float32[batch, 16]'}\ndims: {batch: 1..4}"


@pytest.mark.parametrize("name, operator", [
    ("an error function one part in a thousand off", "aten.erf"),
    ("a softmax with a sum in half precision", "aten._softmax"),
])  # fmt: skip
def test_the_operator_that_is_wrong_in_pytorch_makes_one_finding_of_all_cases(name: str, operator: str) -> None:
    (plant,) = (plant for plant in plants() if plant.name == name)
    (seen,) = walk("benchmarks.culprits.reference", [plant], True)
    assert seen.record["fault"] == "reference"
    assert seen.record["operator"]["operator"] == operator
    assert key_of(seen.record)[2:4] == ("operator", operator)


@pytest.mark.parametrize("forward", [
    "torch.floor(x / 0.1)",
    "(x * x).sum(1) - x.sum(1) ** 2 / 16",
    "x.exp() / (1 + x.exp())",
    "F.glu(x)",  # below float32's normal numbers, its sigmoid is zero by one form and not by another
])  # fmt: skip
def test_rounding_and_overflow_are_no_wrong_reference(bench: Bench, forward: str) -> None:
    """On every regime: jumps at ties, cancellation of offsets, exponentials beyond float32."""
    record = bench.run(say(f"forward: {forward}", VECTOR))
    assert record.fault != "reference"
    assert record.error != "WrongReference"
