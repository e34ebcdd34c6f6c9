"""Exceptions that are hard to tell of, and streams that are lost: whoever is at fault is still named."""

from __future__ import annotations

import pytest

from conformance.errors import LONGEST
from tests.kit.cases import Bench, case_of, verdict, with_symbolic

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
def test_a_text_that_cannot_be_made_or_is_long_is_whoevers_raised_it(bench: Bench, error: str, said: str) -> None:
    record = bench.run(CASE, RAISES.format(error=error))
    assert verdict(record) == ("failed", "declare", error.partition("(")[0], "case")
    assert said in str(record.reason) and len(str(record.reason)) <= LONGEST


def test_a_stream_that_the_case_has_taken_away_is_its_own_fault(bench: Bench) -> None:
    python = """
        import sys

        def symbolic(g, x):
            sys.stdout = None
            print("to nobody")
            sys.stdout.write("to nobody")
    """
    record = bench.run(case_of("torch.relu(x)", with_symbolic("aten::relu")), python)
    assert (record.status, record.fault) == ("failed", "case")
    assert "sys.stdout = None" in str(record.reason)
