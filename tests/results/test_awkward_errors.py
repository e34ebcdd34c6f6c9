"""Exceptions that are hard to tell of, and streams that are lost: whoever is at fault is still named."""

import pytest

from conformance.process.errors import LONGEST
from tests.kit.cases import case_of, module_of, say, verdict, with_symbolic
from tests.kit.modules import net_of

RAISES = """
    import torch
    class Awkward(Exception):
        def __str__(self):
            raise RuntimeError("no text")
    class Net(torch.nn.Module):
        def forward(self, x):
            raise {error}
"""
CASE = 'module: beside.Net\ninputs: {x: "float32[2]"}'


@pytest.mark.parametrize("error, said", [
    ("Awkward()", "its text cannot be made: RuntimeError"), ("ValueError('x' * 100_000)", ""),
    ("ValueError(' '.join(['word'] * 100_000))", ""),
])  # fmt: skip
def test_a_text_that_cannot_be_made_or_is_long_is_whoevers_raised_it(bench, error, said):
    record = bench.run(CASE, RAISES.format(error=error))
    assert verdict(record) == ("failed", "declare", error.partition("(")[0], "case")
    assert said in str(record.reason) and len(str(record.reason)) <= LONGEST


def test_a_stream_that_the_case_has_taken_away_is_its_own_fault(bench):
    python = """
        import sys
        def symbolic(g, x):
            sys.stdout = None
            print("to nobody")
            sys.stdout.write("to nobody")
    """
    record = bench.run(case_of("torch.relu(x)", with_symbolic("aten::relu")), python)
    assert (record.status, record.fault) == ("failed", "case") and "sys.stdout = None" in str(record.reason)


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


def test_an_error_of_the_interpreter_says_why_and_where(bench):
    record = bench.run(module_of("Net"), IN_A_SCRIPT)
    assert record.stage == "declare"
    assert "same number of dimensions" in record.reason and "(beside.py:6)" in record.reason


def test_what_the_exporter_warns_of_is_in_the_record(bench):
    record = bench.run(module_of("Net"), net_of("-x", "if x.sum() > 0:", "    return x"))
    (warning,) = (one for one in record.warnings if one["name"] == "export")
    assert "Python boolean" in warning["text"] and "(beside.py:8)" in warning["text"]
    assert bench.run(say(case_of("x.relu()"))).warnings == []
