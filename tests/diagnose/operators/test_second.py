"""Two causes in one cell: both places are told, first the one that is computed first."""

from typing import Any, NamedTuple

import pytest
from onnxscript import opset18 as op

from conformance.results.records.location import places_of
from tests.diagnose.operators.test_refused import as_double, lowering, symbolic
from tests.diagnose.operators.test_rewrites import CLIPPED, fused_as
from tests.kit.cases import Bench, case_of, details, say, verdict
from tests.kit.planting import planted, untyped
from tests.plants.edits import Edit, behind, exchanged, plus, times
from tests.plants.planting import exported

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
WAVE_OF_SINE = exchanged("Sin", "Cos")
TWO = {
    "one operator": Two((WAVE,), COS), "one operator at two calls": Two((HALF,), TANH),
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
def test_two_places_are_told_in_the_order_in_which_they_are_computed(bench, name):
    row = TWO[name]
    record = located(bench, *row.edits)
    second = record.operator.get("second") or {}
    assert (record.operator["line"], second.get("line")) == (row.first, row.second), record.operator
    said = [line for line in details(record) if line.startswith("with that put right, ")]
    assert len(said) == (row.second is not None)
    how = f" is wrong as well{row.when}: its inputs agree; "
    assert all(f"{row.second}  " in line and how in line for line in said), said
    files = [place for place in places_of(record) if place[0] == "beside.py"]
    assert files == [("beside.py", int(line.partition(":")[2])) for line in (row.first, row.second) if line]


@pytest.mark.parametrize("forward, edit, first, second", [
    pytest.param("F.hardswish(torch.sin(x) * 3)", WAVE_OF_SINE, ("aten.sin", "value"), ("aten.hardswish", "dtype"),
                 id="a dtype at last"),
    pytest.param("(F.hardswish(x), torch.tanh(x))", HALF, ("aten.hardswish", "dtype"), ("aten.tanh", "value"),
                 id="a dtype at first"),
])  # fmt: skip
def test_a_dtype_and_values_are_told_both(bench, forward, edit, first, second):
    with planted(symbolic(as_double), exported(untyped(edit))):
        record = bench.run(case_of(forward))
    told = record.operator or {}
    assert (told["operator"], told["how"]) == first, told
    assert (told["second"]["operator"], told["second"]["how"]) == second, told["second"]


def test_an_order_that_pytorch_leaves_open_with_other_inputs_is_no_second_place(bench):
    """Of equal values the graph names others than PyTorch does, at every input."""
    forward = "torch.topk(torch.zeros_like(x), 2)[1] + 0 * torch.exp(x)[:, :2] + torch.exp(x).sum()"
    with planted(exported(untyped(GROWS)), exported(untyped(behind("TopK", plus(1, "int64"), 1)))):
        record = bench.run(case_of(forward, x="[batch, 4]"))
    assert record.operator is not None and "second" not in record.operator, record.operator


def gate(x: Any) -> Any:
    return op.HardSigmoid(x)


@pytest.mark.thorough
def test_what_a_pass_makes_wrong_is_told_beside_a_wrong_translation(bench):
    with planted(lowering(gate, "tanh")), fused_as("Max"):
        record = bench.run(say(CLIPPED, "export: {dynamo: [18]}"))
    first = record.operator or {}
    second = first["second"]
    assert (first["stage"], first["passes"]) == ("optimizer", ["FuseSuccessiveReluClip"]), first
    assert (second["operator"], second["stage"], second.get("passes")) == ("aten.tanh", "translation", None), second
