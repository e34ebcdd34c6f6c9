"""What a record says of an error inside of TorchScript, and of what the exporter warned of."""

from __future__ import annotations

from typing import Any

from tests.kit.cases import case_of, module_of, say

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
