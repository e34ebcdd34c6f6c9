"""What a user is told to do about what stops."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.records.advice import advice
from tests.kit.cases import case_of, module_of, say

pytestmark = pytest.mark.smoke


def stopped(exporter: str, reason: str, **more: Any) -> dict[str, Any]:
    return {"exporter": exporter, "stage": "export", "fault": "exporter", "error": "Error", "reason": reason, **more}


@pytest.mark.parametrize("record, words", [
    (stopped("torchscript", "Exporting the operator 'aten::bessel' to ONNX", error="UnsupportedOperatorError"),
     'torchscript: {symbolics: {"aten::bessel": '),
    (stopped("dynamo", "No ONNX function found for <OpOverload(op='own.gate', overload='default')>"), "translations"),
    (stopped("dynamo", "No ONNX function found for <OpOverload(op='aten.bessel', overload='default')>"),
     'dynamo: {translations: {"aten::bessel": '),
    (stopped("dynamo", "GuardOnDataDependentSymNode: Could not guard"), "torch.cond"),
    (stopped("torchscript", "", stage="compare", operator={"how": "path"}), "script: true"),
    (stopped("dynamo", "DefaultCPUAllocator: can't allocate memory", stage="declare"), "smaller ranges"),
    (stopped("dynamo", "TypeError: another mistake"), ""),
    (stopped("dynamo", "", stage="compare", operator={"how": "value"}), ""),
], ids=lambda value: value["reason"][:24] if isinstance(value, dict) else None)  # fmt: skip
def test_what_stops_an_export_says_what_can_be_done(record: dict[str, Any], words: str) -> None:
    said = list(advice(record))
    assert bool(said) == bool(words)
    assert all(words in line for line in said)


IN_A_SCRIPT = """
import torch
@torch.jit.script
def both(x, y):
    z = x + 1
    return torch.cat([z, y])
class Net(torch.nn.Module):
    def forward(self, x):
        return both(x, x[0])
"""
BRANCHES = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x
"""


def test_an_error_of_the_interpreter_says_why_and_where(bench: Any) -> None:
    record = bench.run(module_of("Net"), IN_A_SCRIPT)
    assert record.stage == "declare"
    assert "same number of dimensions" in record.reason and "(beside.py:6)" in record.reason


def test_what_the_exporter_warns_of_is_in_the_record(bench: Any) -> None:
    record = bench.run(module_of("Net"), BRANCHES)
    (warning,) = (one for one in record.warnings if one["name"] == "export")
    assert "Python boolean" in warning["text"] and "(beside.py:5)" in warning["text"]
    assert bench.run(say(case_of("x.relu()"))).warnings == []
