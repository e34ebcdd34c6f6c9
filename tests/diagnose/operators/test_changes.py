"""The change of one node that makes right what an operator's nodes compute: found where a node was planted wrong, and
told only where it holds for other inputs too."""

import os
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.diagnose.operators import named
from tests.kit.cases import Bench, details, say
from tests.kit.planting import planted, untyped
from tests.plants.edits import Edit, attribute, exchanged, swapped
from tests.plants.planting import exported

pytestmark = pytest.mark.own_store


def constant(kind: str, slot: int, value: Any, place: int = 0) -> Edit:
    """One of the nodes of an operator reads a constant."""

    def edit(model: onnx.ModelProto) -> int:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), "planted"))
        node = [one for one in model.graph.node if one.op_type == kind][place]
        node.input[slot] = "planted"
        return 1

    return edit


def located(bench: Bench, forward: str, *edits: Edit) -> Any:
    """The record of a cell whose exporter plants something wrong."""
    body = f'forward: {forward}\ninputs: {{x: "float32[batch, 5]"}}\ndims: {{batch: 2..9}}'
    export = "dynamo: [20]" if forward in BY_DYNAMO else "torchscript: [17]"
    with planted(*(exported(untyped(edit)) for edit in edits)):
        return bench.run(say(body, f"export: {{{export}}}"))


ROLL = "torch.roll(torch.sin(x), 2, 1)"
FLAT = "torch.cos(torch.roll(torch.sin(x), 2))"
SILU = "torch.cos(F.silu(torch.sin(x)))"
BATCH = "torch.roll(torch.sin(x), 1, 0)"
BY_DYNAMO = (FLAT, BATCH)
"""What TorchScript exports without sizes that are computed."""


@pytest.mark.parametrize("forward, edit, kind, change", [
    pytest.param(ROLL, attribute("Concat", axis=0), "Concat", "its axis 1 instead of 0", id="attribute"),
    pytest.param(ROLL, swapped("Concat"), "Concat", "its inputs 0 and 1 the other way round", id="inputs"),
    pytest.param(ROLL, constant("Slice", 1, np.array([1])), "Slice", "its input 1 [3] instead of [1]", id="integer"),
    pytest.param(FLAT, constant("Mod", 0, np.array([-1])), "Mod", "its input 0 [-2] instead of [-1]", id="size",
                 marks=pytest.mark.thorough),
    pytest.param(SILU, exchanged("Sigmoid", "Tanh"), "Tanh", "Sigmoid instead of Tanh", id="operator"),
    pytest.param("torch.cos(F.softsign(torch.sin(x)))", constant("Add", 1, np.float32(2)), "Add", "1.0", id="number"),
    # at the failing batch another number does as well as the size that was baked in
    pytest.param(BATCH, constant("Slice", 2, np.array([2]), 1), "Slice", "its input 2 val_1 instead of planted",
                 id="right for other inputs too", marks=pytest.mark.thorough),
])  # fmt: skip
def test_the_planted_node_is_named_with_the_change_that_takes_it_back(bench, forward, edit, kind, change):
    record = located(bench, forward, edit)
    assert record.operator is not None, record.as_dict()
    told = record.operator
    assert told["type"] == kind and change in told["change"], told
    assert f"  a change that makes it right: {told['change']}" in details(record)


def test_where_no_change_is_right_the_last_node_is_named_and_the_others_told(bench):
    told = located(bench, SILU, exchanged("Sigmoid", "Erf"), exchanged("Mul", "Max")).operator
    assert told["type"] == "Max" and "change" not in told, told
    assert [name.split()[0] for name in told["among"]] == ["Erf", "Max"]


def test_a_runtime_that_crashes_at_a_change_costs_the_change_alone(bench, monkeypatch):
    monkeypatch.setattr(named, "mended", lambda *_: os.abort())
    told = located(bench, SILU, exchanged("Sigmoid", "Tanh")).operator
    assert (told["operator"], told["type"]) == ("aten.silu", "Mul") and "change" not in told, told


@pytest.mark.thorough
def test_of_nodes_that_cannot_be_computed_the_first_is_named(bench):
    """Right for two rows alone, at both ends of a roll of all elements."""
    told = located(bench, FLAT, constant("Reshape", 1, np.array([10]))).operator
    assert (told["how"], told["type"]) == ("stops", "Reshape") and "change" not in told, told
    assert told["among"][0] == f"Reshape {told['node']}" and len(told["among"]) > 1
