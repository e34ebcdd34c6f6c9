"""Which tensor of the graph is the output of which call of a submodule."""

import numpy as np

from conformance.align.modules import paired
from conformance.commands.align import align_text
from conformance.onnxgraph.reads import Graph
from tests.align.support import kinds, rows, said, sub_calls
from tests.kit.models import model_of
from tests.kit.networks import DYNAMO_THOROUGH, EXPORTERS, IMAGES, network


@EXPORTERS
def test_a_sound_network_agrees_in_every_submodule(trial, exporter):
    answer = trial(network("Network", IMAGES), exporter=exporter)
    assert not answer.alignment.parts and answer.alignment.first is None
    found = kinds(answer)
    assert {name for name, kind in found.items() if kind == "unmatched"} == set()
    assert {name for name, kind in found.items() if kind == "folded"} == {
        f"layers.{block}.conv{conv}" for block in (0, 1) for conv in (1, 2)
    }
    # Both calls of the ReLU, which works in place, and the block, which returns what the second call does.
    assert found["layers.0.relu"] == found["layers.0.relu, call 2"] == "own" and found["layers.0"] == "same"
    tensors = [row.place.tensor for row in answer.alignment.compared]
    assert len({*tensors}) == len(tensors)
    assert all(row.ratio is not None and row.ratio < 1 for row in answer.alignment.compared)
    assert said(answer) == f"nothing parts: all {len(tensors)} tensors that could be compared agree"
    conv, norm = (rows(answer)[f"layers.0.{name}"] for name in ("conv1", "bn1"))
    assert (conv.place.tensor, conv.place.note) == (None, "folded into layers.0.bn1")
    assert norm.operators == ["Conv"]
    assert "folded into a batch norm" in align_text.count_matched(answer.alignment)


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
    assert kinds(answer)["first"] == kinds(answer)["(the whole module)"] == "own" and not answer.alignment.parts


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


@DYNAMO_THOROUGH
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
    assert found["same"] == "input" and found["idle"] == found["places"] == "unmatched"
    assert found["first"] == found["solid.last"] == "own"
    assert "2 not found in the graph" in align_text.count_matched(answer.alignment)
    assert "1 return their input" in align_text.count_matched(answer.alignment)
    # clone() has no node, so that solid returns the very tensor that solid.last does
    solid = rows(answer)["solid"].place
    assert (solid.kind, solid.note) == ("own", "the same tensor of the graph as solid.last")
    assert not answer.alignment.parts


def test_another_way_through_the_submodules_is_no_pair():
    once, twice = sub_calls(1), sub_calls(2)
    assert paired(once, twice) is None and [len(one) for one in paired(once, once) or []] == [1, 1]


LOOP = """
planted (float[2] x, int64 n, bool c) => (float[2] y, float[n, 2] z) {
    y, z = Loop <body = inner (int64 i, bool going, float[2] s) => (bool on, float[2] t, float[2] u)
        <float one = {1.0}> { on = Identity (going) a = Add (s, one) t = Mul (a, w) u = Add (t, x) }> (n, c, x)
}
"""


def test_a_node_reads_what_its_body_takes_from_around_it_and_not_the_bodys_own():
    graph = Graph(model_of(LOOP, w=np.ones(2, np.float32)))
    assert {*graph.readers} == {"n", "c", "x", "w"}
