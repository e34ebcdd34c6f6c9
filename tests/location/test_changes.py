"""The change of one node that makes right what an operator's nodes compute: found where a node was planted wrong, and
told only where it holds for other inputs too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.align.operators.changes import Scene, changes
from tests.support import Bench, details, say


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


def node(model: onnx.ModelProto, kind: str, place: int = 0) -> onnx.NodeProto:
    return [one for one in model.graph.node if one.op_type == kind][place]


def attribute(model: onnx.ModelProto, kind: str, name: str, value: int) -> None:
    (found,) = (one for one in node(model, kind).attribute if one.name == name)
    found.i = value


def constant(model: onnx.ModelProto, kind: str, slot: int, value: Any) -> None:
    array = np.asarray(value)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "planted"))
    node(model, kind).input[slot] = "planted"


def swapped(model: onnx.ModelProto, kind: str, left: int, right: int) -> None:
    inputs = node(model, kind).input
    inputs[left], inputs[right] = inputs[right], inputs[left]


def replaced(model: onnx.ModelProto, kind: str, other: str) -> None:
    node(model, kind).op_type = other


def located(bench: Bench, monkeypatch: pytest.MonkeyPatch, forward: str, plant: Callable[[Any], None]) -> Any:
    """The record of a cell whose exporter plants something wrong."""
    from conformance.checks import models

    original = models.export

    def planted(*arguments: Any, **options: Any) -> Any:
        exported = original(*arguments, **options)
        plant(exported.model)
        del exported.model.graph.value_info[:]  # which would contradict
        return type(exported)(exported.model, exported.usage)

    monkeypatch.setattr(models, "export", planted)
    return bench.run(say(f"""
        forward: {forward}
        inputs: {{x: "float32[batch, 5]"}}
        dims: {{batch: 2..9}}
        export: {{dynamo: [20]}}
    """))  # fmt: skip


ROLL = "torch.roll(torch.sin(x), 2, 1)"
FLAT = "torch.cos(torch.roll(torch.sin(x), 2))"


@pytest.mark.parametrize("forward, plant, kind, change", [
    (ROLL, lambda model: attribute(model, "Concat", "axis", 0), "Concat", "its axis 1 instead of 0"),
    (ROLL, lambda model: swapped(model, "Concat", 0, 1), "Concat", "its inputs 0 and 1 the other way round"),
    (ROLL, lambda model: constant(model, "Slice", 1, np.array([1])), "Slice", "its input 1 [0] instead of [1]"),
    (FLAT, lambda model: constant(model, "Mod", 0, np.array([-1])), "Mod", "its input 0 [-2] instead of [-1]"),
    ("torch.cos(F.silu(torch.sin(x)))", lambda model: replaced(model, "Sigmoid", "Tanh"), "Tanh",
     "Sigmoid instead of Tanh"),
    ("torch.cos(F.softsign(torch.sin(x)))", lambda model: constant(model, "Add", 1, np.float32(2)), "Add", "1.0"),
], ids=["attribute", "inputs", "whole number", "size", "operator", "number"])  # fmt: skip
def test_the_planted_node_is_named_with_the_change_that_takes_it_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, forward: str, plant: Any, kind: str, change: str
) -> None:
    record = located(bench, monkeypatch, forward, plant)
    assert record.operator is not None, record.as_dict()
    told = record.operator
    assert told["type"] == kind, told
    assert change in told["change"], told
    assert f"  a change that makes it right: {told['change']}" in details(record)


def test_where_no_change_is_right_the_last_node_is_named_and_the_others_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plant(model: onnx.ModelProto) -> None:  # two nodes at once
        replaced(model, "Sigmoid", "Erf")
        replaced(model, "Mul", "Max")

    told = located(bench, monkeypatch, "torch.cos(F.silu(torch.sin(x)))", plant).operator
    assert told["type"] == "Max" and "change" not in told, told
    assert [name.split()[0] for name in told["among"]] == ["Erf", "Max"]


def test_of_nodes_that_cannot_be_computed_the_first_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(model: onnx.ModelProto) -> None:  # right for two rows alone; both ends of a roll of all elements
        constant(model, "Reshape", 1, np.array([10]))

    told = located(bench, monkeypatch, FLAT, plant).operator
    assert (told["how"], told["type"]) == ("stops", "Reshape") and "change" not in told, told
    assert told["among"][0] == f"Reshape {told['node']}" and len(told["among"]) > 1


@pytest.mark.parametrize("others, change", [(5, "its input 2 val_1 instead of planted"), (0, "instead of [2]")])
def test_a_change_has_to_be_right_for_other_inputs_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, others: int, change: str
) -> None:
    """At the failing batch another number does as well as the size that was baked in."""
    from conformance.align.operators import mended

    def plant(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2]), "planted"))
        node(model, "Slice", 1).input[2] = "planted"

    monkeypatch.setattr(mended, "OTHERS", others)
    told = located(bench, monkeypatch, "torch.roll(torch.sin(x), 1, 0)", plant).operator
    assert change in told["change"], told


def test_changes_leave_the_graph_as_it_is_until_they_are_applied() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3] x) => (float[2, 6] y) {
            a = Constant <value = float[1] {2.0}> ()
            b = Mul (x, a)
            y = Concat <axis = 1> (b, x)
        }
    """)
    before = model.SerializeToString()
    x, a = np.ones((2, 3), np.float32), np.array([2.0], np.float32)
    values = {"x": x, "a": a, "b": x * a, "y": np.concatenate([x * a, x], 1)}
    found = list(changes(Scene(list(model.graph.node), values, {"a": a}, [3], 17)))
    assert model.SerializeToString() == before
    texts = {(one.made, one.what) for one in found}
    assert ("y", "its axis 0 instead of 1") in texts
    assert ("y", "its inputs 0 and 1 the other way round") in texts
    assert ("b", "Div instead of Mul") in texts and ("b", "left out") in texts
    assert ("b", "its input 1 [3.0] instead of [2.0]") in texts
    for one in found:
        copy = onnx.ModelProto.FromString(before)
        one.apply(copy.graph)
        assert copy.SerializeToString() != before, one.what
