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


def test_an_exception_whose_text_cannot_be_made_is_whoevers_raised_it(bench: Bench) -> None:
    record = bench.run(CASE, RAISES.format(error="Awkward()"))
    assert verdict(record) == ("failed", "declare", "Awkward", "case")
    assert "its text cannot be made: RuntimeError" in str(record.reason)


@pytest.mark.parametrize("error", ["ValueError('x' * 100_000)", "ValueError(' '.join(['word'] * 100_000))"])
def test_a_long_text_is_shortened(bench: Bench, error: str) -> None:
    record = bench.run(CASE, RAISES.format(error=error))
    assert verdict(record) == ("failed", "declare", "ValueError", "case")
    assert len(str(record.reason)) <= LONGEST


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
