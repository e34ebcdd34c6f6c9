"""Two causes in one cell: both places are told, first the one that is computed first."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from benchmarks.culprits.edits import Edit, behind, exchanged, times
from benchmarks.culprits.planting import exported
from conformance.records.location import places_of
from tests.kit.cases import Bench, details, say, verdict
from tests.kit.planting import planted, untyped

pytestmark = pytest.mark.own_store

PYTHON = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        x = torch.cos(x)
        x = torch.tanh(x) * 16
        x = torch.exp(x / 4)
        return torch.tanh(x) + x
"""
CASE = 'module: beside.Net\ninputs: {x: "float32[batch, 4]"}\ndims: {batch: 1..4}'
COS, TANH, EXP = "beside.py:5", "beside.py:6", "beside.py:7"
LITTLE = times(1 + 1.6e-5)
"""Less than what an operator is tried for at once, and more than the cell allows."""


class Two(NamedTuple):
    """What the exporter's graph is changed by, and the places that are told."""

    edits: tuple[Edit, ...]
    first: str
    second: str | None = None
    when: str = ""


HALF, WAVE, FLAT, GROWS = (exchanged(*both) for both in (
    ("Tanh", "HardSigmoid"), ("Cos", "Sin"), ("Cos", "Cosh"), ("Exp", "Softplus"),
))  # fmt: skip
"""Wrong for the cosine of 0, but for ``FLAT``."""
TWO = {
    "one operator": Two((WAVE,), COS),
    "one operator at two calls": Two((HALF,), TANH),
    "two operators": Two((WAVE, GROWS), COS, EXP),
    "two operators of which one is called twice": Two((HALF, GROWS), TANH, EXP),
    "one that the failing input hides": Two((FLAT, GROWS), EXP, COS, ", with other inputs"),
    "little at first": Two((behind("Cos", LITTLE), GROWS), COS, EXP),
    "little at last": Two((WAVE, behind("Exp", LITTLE)), COS, EXP),
}  # fmt: skip


def located(bench: Bench, *edits: Edit, export: str = "torchscript: [17]") -> Any:
    with planted(*(exported(untyped(edit)) for edit in edits)):
        record = bench.run(say(CASE, f"export: {{{export}}}"), PYTHON)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    return record


@pytest.mark.parametrize("name", TWO)
def test_two_places_are_told_in_the_order_in_which_they_are_computed(bench: Bench, name: str) -> None:
    row = TWO[name]
    record = located(bench, *row.edits)
    second = record.operator.get("second") or {}
    assert (record.operator["line"], second.get("line")) == (row.first, row.second), record.operator
    said = [line for line in details(record) if line.startswith("with that put right, ")]
    assert len(said) == (row.second is not None)
    how = f" is wrong as well{row.when}: its inputs agree; "
    assert all(f"{row.second}  " in line and how in line for line in said), said
    files = [place for place in places_of(record.as_dict()) if place[0] == "beside.py"]
    assert files == [("beside.py", int(line.partition(":")[2])) for line in (row.first, row.second) if line]
