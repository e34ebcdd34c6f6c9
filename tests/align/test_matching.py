"""Which tensor of the graph is the output of which call of a submodule."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper

from conformance.align.matching import candidates as candidates_of
from conformance.align.matching import match
from conformance.align.nodes import Graph
from conformance.align.scopes import scope_label, scopes
from conformance.commands.align import text
from tests.align.networks import EXPORTERS, IMAGES, network
from tests.align.support import chain, kinds, rows, said, sub_calls

# ---- what belongs to what ------------------------------------------------------------------------------------


@EXPORTERS
def test_a_sound_network_agrees_in_every_submodule(trial, exporter):
    answer = trial(network("Network", IMAGES), exporter=exporter)
    assert not answer.alignment.parts
    assert answer.alignment.first is None
    found = kinds(answer)
    assert {name for name, kind in found.items() if kind == "unmatched"} == set()
    assert {name for name, kind in found.items() if kind == "folded"} == {
        f"layers.{block}.conv{conv}" for block in (0, 1) for conv in (1, 2)
    }
    # Both calls of the ReLU, which works in place, and the block, which returns what the second call does.
    assert found["layers.0.relu"] == found["layers.0.relu, call 2"] == "own"
    assert found["layers.0"] == "same"
    tensors = [row.place.tensor for row in answer.alignment.compared]
    assert len({*tensors}) == len(tensors)
    assert all(row.ratio is not None and row.ratio < 1 for row in answer.alignment.compared)
    assert said(answer) == f"nothing parts: all {len(tensors)} tensors that could be compared agree"


@EXPORTERS
def test_a_batch_norm_in_the_weights_of_a_convolution_is_told(trial, exporter):
    answer = trial(network("Network", IMAGES), exporter=exporter)
    found = rows(answer)
    conv, norm = found["layers.0.conv1"], found["layers.0.bn1"]
    assert (conv.place.tensor, conv.place.note) == (None, "folded into layers.0.bn1")
    assert norm.place.kind == "own"
    assert norm.operators == ["Conv"]
    assert "folded into a batch norm" in text.matched(answer.alignment)


@EXPORTERS
def test_each_call_of_a_submodule_has_a_tensor_of_its_own(trial, exporter):
    answer = trial(network("Twice"), exporter=exporter)
    found = rows(answer)
    names = ["sub.0", "sub.1", "sub.0, call 2", "sub.1, call 2"]
    assert [kinds(answer)[name] for name in names] == ["own"] * 4
    assert len({found[name].place.tensor for name in names}) == 4
    assert not answer.alignment.parts
    # In the order in which they are computed, with tanh, which is no submodule, in between.
    assert [one.place.name for one in found["sub.0, call 2"].inputs] == ["sub.1"]
    assert found["sub.0, call 2"].operators[0] == "Tanh"


def test_calls_that_the_names_of_nodes_confuse_are_not_matched(trial):
    answer = trial(network("Collision"), exporter="torchscript")
    found = rows(answer)
    assert {name for name, kind in kinds(answer).items() if kind == "unmatched"} == {"act", "act, call 2", "act_1"}
    assert found["act_1"].place.note == "the graph does not say which call its nodes are from"
    assert kinds(answer)["first"] == kinds(answer)["(the whole module)"] == "own"
    assert not answer.alignment.parts


@EXPORTERS
def test_nested_outputs_are_compared_one_by_one(trial, exporter):
    answer = trial(network("Nested"), exporter=exporter)
    found = rows(answer)
    places = [found[f"pair, output {index}"].place for index in range(3)]
    assert [place.kind for place in places] == ["own"] * 3
    assert all("values tell apart" in place.note for place in places)
    assert not answer.alignment.parts
    # Output 0 is the one from the right, which is computed second.
    assert [one.place.name for one in found["pair, output 0"].inputs] == ["pair.right"]
    assert [one.place.name for one in found["pair, output 1"].inputs] == ["pair.left"]


@EXPORTERS
def test_a_tensor_that_a_submodule_has_is_no_rival(trial, exporter):
    answer = trial(network("UsesBoth"), exporter=exporter)
    found = rows(answer)
    assert found["both, output 0"].place.first is found["both.first"].place
    assert (found["both, output 1"].place.kind, found["both, output 1"].place.note) == ("own", "")
    assert found["both, output 1"].operators == ["Mul"]
    assert not answer.alignment.parts


@EXPORTERS
def test_of_outputs_that_nobody_needs_none_gets_the_tensor_of_another(trial, exporter):
    answer = trial(network("Half"), exporter=exporter)
    found = rows(answer)
    assert [found[f"pair, output {index}"].place.kind for index in range(3)] == ["unmatched", "own", "unmatched"]
    assert "or another output has it" in found["pair, output 0"].place.note
    assert found["pair.right"].place.kind == "unmatched"
    assert not answer.alignment.parts


@EXPORTERS
def test_what_is_not_in_the_graph_is_counted_and_listed(trial, exporter):
    answer = trial(network("Fewer"), exporter=exporter)
    found = kinds(answer)
    assert found["same"] == "input"
    assert found["idle"] == found["places"] == "unmatched"
    assert found["first"] == found["solid.last"] == "own"
    assert "2 not found in the graph" in text.matched(answer.alignment)
    assert "1 return their input" in text.matched(answer.alignment)
    # clone() has no node, so that solid returns the very tensor that solid.last does
    solid = rows(answer)["solid"].place
    assert (solid.kind, solid.note) == ("own", "the same tensor of the graph as solid.last")
    assert not answer.alignment.parts


@pytest.mark.parametrize("path, label", [
    ("conv1", "conv1"), ("layer1.0", "layer1.0"), ("layer1.0.conv1", "conv1"), ("a.block.0.1", "block.0.1"),
    ("0", "0"), ("0.1", "0.1"),
])  # fmt: skip
def test_submodules_are_called_as_torchscript_calls_them(path, label):
    assert scope_label(path) == label


def test_sizes_are_no_way_from_one_tensor_to_another():
    """A reshape by the shape of another tensor is not computed from that tensor."""
    nodes = [
        helper.make_node("Relu", ["x"], ["known"]),
        helper.make_node("Shape", ["other"], ["shape"]),
        helper.make_node("Relu", ["y"], ["other"]),
        helper.make_node("Reshape", ["known", "shape"], ["out"], name="reshape"),
    ]
    nodes = [nodes[0], nodes[2], nodes[1], nodes[3]]
    values = [helper.make_tensor_value_info(name, 1, ["n"]) for name in ("x", "y", "out")]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "g", values[:2], values[2:])))
    before, between = graph.upstream("out", {"known", "other", "out"})
    assert before == ["known"]
    assert [graph.nodes[index].op_type for index in between] == ["Reshape"]


# ---- dynamo's calls, on graphs written by hand ----------------------------------------------------------------


def _nodes_by_call(operations: list[tuple[str, str]], count: int) -> tuple[list[list[int]], bool]:
    calls = sub_calls(count)
    graph = chain(operations)
    found = scopes(graph, calls, "dynamo")
    subs = [call for call in calls if call.path == "sub"]
    assert len(subs) == count
    return [sorted(found.own.get(call.id, ())) for call in subs], bool(found.confused)


def test_the_same_operations_each_time_are_shared_out_evenly():
    nodes, confused = _nodes_by_call([("sub", "Relu"), ("sub", "Neg"), ("sub", "Relu"), ("sub", "Neg")], 2)
    assert (nodes, confused) == ([[0, 1], [2, 3]], False)


def test_calls_with_others_in_between_are_told_apart_though_their_operations_differ():
    nodes, confused = _nodes_by_call([("sub", "Relu"), ("sub", "Neg"), ("", "Abs"), ("sub", "Relu")], 2)
    assert (nodes, confused) == ([[0, 1], [3]], False)


def test_calls_that_cannot_be_told_apart_get_no_nodes():
    nodes, confused = _nodes_by_call([("sub", "Relu"), ("sub", "Neg"), ("sub", "Relu")], 2)
    assert (nodes, confused) == ([[], []], True)


def test_one_tensor_is_never_two_different_outputs():
    """Two calls of one submodule that the optimizer has made one: nothing says whose the node is."""
    calls = sub_calls(1)
    graph = chain([("sub", "HardSwish"), ("", "Mul")])
    model = helper.make_model(helper.make_graph(graph.nodes, "g", [], []))
    model.graph.output.append(helper.make_tensor_value_info("t2", 1, [5]))
    given = candidates_of(model, [*calls[:1], *_renumbered(calls[:1]), *calls[1:]], "dynamo")
    values = dict.fromkeys(given.tensors, calls[0].outputs[0])
    places = [place for place in match(given, values) if place.call.path == "sub"]
    assert [place.tensor for place in places] == [None, None]


def _renumbered(calls: list[Any]) -> list[Any]:
    import dataclasses

    return [dataclasses.replace(one, number=1, entered=(0, 99), keys=(("other",),)) for one in calls]
