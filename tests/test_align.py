"""Plants one wrong layer in a network, in the ways that a graph can be wrong, and checks that it is the one named."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.align.modules import calls_of, paired
from conformance.align.nodes import Graph, Place, _label, match, scopes
from conformance.align.nodes import candidates as candidates_of
from conformance.align.parting import Row, at_fp32
from conformance.commands import align as command
from conformance.commands.align import text
from conformance.commands.align.question import Answer, Question, align
from conformance.compare.judges import Tolerances
from conformance.export.store import Store
from tests.support import say, with_symbolic, write_case

PYTHON = """
import numpy as np
import torch
from torch import nn

calls = []


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layers = nn.Sequential(Block(4), Block(4))
        self.act = nn.Hardswish()
        self.aside = nn.Sigmoid()
        self.drop = nn.Dropout()
        self.head = nn.Linear(4, 5)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = self.stem(x)
        y = self.act(self.layers(x)) + self.aside(x)
        return self.head(self.drop(y).mean((2, 3)))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.Linear(4, 4)
        self.sub = nn.Sequential(nn.Linear(4, 4), nn.Hardswish())
        self.after = nn.Linear(4, 4)

    def forward(self, x):
        return self.after(self.sub(torch.tanh(self.sub(self.before(x)))))


class Collision(nn.Module):
    '''TorchScript calls the second call of act, and the only one of act_1, the same.'''

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.act = nn.Hardswish()
        self.act_1 = nn.Hardswish()

    def forward(self, x):
        return self.act_1(self.act(self.act(self.first(x)) * 3) * 3)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        one, other = self.left(x) * 2, self.right(x) * 3
        return other, {"one": one, "more": (one + other,)}


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair()
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        other, more = self.pair(x)
        return self.out(other * more["one"] + more["more"][0])


class Fewer(nn.Module):
    '''Submodules that are not in the graph: one that does nothing, one nobody needs, one known beforehand.'''

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.same = nn.Identity()
        self.idle = nn.Linear(4, 4)
        self.places = nn.Embedding(3, 4)
        self.solid = Solid()

    def forward(self, x):
        x = self.same(x)
        y = self.first(x)
        self.idle(y)
        return self.solid(y) + self.places(torch.tensor([1]))


class Solid(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(x).clone()


class Both(nn.Module):
    '''Returns what its submodule does, and more of the same shape.'''

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        return y, y * 2


class UsesBoth(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.out = Both(), nn.Linear(4, 2)

    def forward(self, x):
        one, other = self.both(x)
        return self.out(one + torch.tanh(other))


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair = Pair()
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        other, more = self.pair(x)
        return self.out(more["one"])


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act = nn.Linear(4, 4), nn.Hardswish()

    def forward(self, x):
        return self.act(self.first(x)) * 2


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Hardswish(), nn.Hardswish()
        self.sound = nn.Sigmoid()
        self.after = nn.Linear(4, 4)

    def forward(self, x):
        return self.after(self.one(x)) + self.two(x * 2) + self.sound(x)


class Logs(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = Log()
        self.act = nn.Hardswish()
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.act(x)) + self.log(x)


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Loud(nn.Module):
    '''Its second layer reaches some 100,000, its third brings that back.'''

    def __init__(self):
        super().__init__()
        self.first, self.loud, self.last = (nn.Linear(4, 4, bias=False) for _ in range(3))
        with torch.no_grad():
            self.first.weight *= 100
            self.loud.weight *= 1e4
            self.last.weight *= 1e-5

    def forward(self, x):
        return self.last(self.loud(self.first(x)))


class Uneven(nn.Module):
    def __init__(self):
        super().__init__()
        self.spread = nn.Conv2d(3, 8, 3, padding=1)
        self.gather = nn.Conv2d(8, 4, 1)
        sizes = torch.logspace(0, 2, 8)
        with torch.no_grad():
            self.spread.weight *= sizes[:, None, None, None]
            self.spread.bias *= sizes
            self.gather.weight /= sizes[None, :, None, None]

    def forward(self, x):
        return self.gather(self.spread(x))


class Alone(nn.Module):
    def forward(self, x):
        return torch.sin(x)


def symbolic(g, x):
    '''Hardswish, one per cent too large.'''
    return g.op("Mul", g.op("HardSwish", x), g.op("Constant", value_t=torch.tensor(1.01)))


def second(g, x):
    '''Right where it is called first, wrong after that.'''
    calls.append(1)
    right = g.op("HardSwish", x)
    return right if len(calls) == 1 else g.op("Neg", right)


def flat(g, x):
    '''Of another shape.'''
    return g.op("Flatten", g.op("HardSwish", x), axis_i=0)


def poisoned(g, x):
    '''NaN where the input is below -1.'''
    low = g.op("Less", x, g.op("Constant", value_t=torch.tensor(-1.0)))
    return g.op("Where", low, g.op("Constant", value_t=torch.tensor(float("nan"))), g.op("HardSwish", x))
"""

IMAGES = 'inputs: {x: "float32[batch, 3, h, 6]"}\ndims: {batch: 1..4, h: 5..9}\nruntimes: onnxruntime'
ROWS = 'inputs: {x: "float32[batch, 4]"}\ndims: {batch: 2..4}\nruntimes: onnxruntime'
BOTH = "export: {torchscript: [17], dynamo: [20]}"
EXPORTERS = pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])


def network(name: str, shapes: str = ROWS, *more: str) -> str:
    return say(f"module: beside.{name}", shapes, *(more or (BOTH,)))


def wrong(name: str, symbolic: str, shapes: str = ROWS) -> str:
    """A case whose Hardswish has a symbolic of its own."""
    return network(name, shapes, with_symbolic("aten::hardswish").replace("beside.symbolic", f"beside.{symbolic}"))


@dataclass
class Trial:
    """A case in a folder of its own, and the store that its models are in."""

    folder: Path
    store: Path

    def write(self, body: str) -> Path:
        return write_case(Path(tempfile.mkdtemp(dir=self.folder)), body, PYTHON)

    def __call__(self, body: str, *, file: Path | None = None, **asked: Any) -> Answer:
        return align(Question("planted", [file or self.write(body)], self.store, **asked))

    def tampered(self, body: str, change: Callable[[onnx.ModelProto], None], **asked: Any) -> Answer:
        """The answer after the stored model has been changed."""
        file = self.write(body)
        before = {*self.store.glob("*")} if self.store.exists() else set()
        self(body, file=file, **asked)
        (place,) = {*self.store.glob("*")} - before
        store = Store(self.store)
        stored = store.get(place.name)
        assert stored is not None
        model = onnx.load(stored.file)
        change(model)
        shutil.rmtree(place)
        data = model.SerializeToString()
        facts = {**stored.facts.as_dict(), "sha": _sha(data)}
        store.put(place.name, data, type(stored.facts)(**facts), {})
        return self(body, file=file, **asked)


def _sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()[:16]


@pytest.fixture
def trial(tmp_path) -> Trial:
    return Trial(tmp_path, tmp_path / "store")


def rows(answer: Answer) -> dict[str, Row]:
    found = {row.place.name: row for row in answer.alignment.rows}
    assert len(found) == len(answer.alignment.rows), "two rows have one name"
    return found


def kinds(answer: Answer) -> dict[str, str]:
    return {name: row.place.kind for name, row in rows(answer).items()}


def parting(answer: Answer) -> str:
    assert answer.alignment.first is not None
    return answer.alignment.first.place.name


def said(answer: Answer) -> str:
    return "\n".join(text.sentences(answer.alignment))


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
    assert _label(path) == label


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


def _from(node: onnx.NodeProto, path: str, operation: str, kind: str) -> onnx.NodeProto:
    for key, value in (("name_scopes", ["", path, operation]), ("class_hierarchy", ["M", "S", kind])):
        entry = node.metadata_props.add()
        entry.key, entry.value = f"pkg.torch.onnx.{key}", repr(value)
    return node


def _sub_calls(count: int) -> list[Any]:
    import torch

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sub = torch.nn.Hardswish()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = self.sub(x) * 2
            return x

    return calls_of(lambda: Outer()(torch.linspace(-2, 2, 5)))


def _chain(operations: list[tuple[str, str]]) -> Graph:
    """One node after the other, each with the path and the kind of operation that it comes from."""
    nodes = [
        _from(helper.make_node(kind, [f"t{index}"], [f"t{index + 1}"], name=f"n{index}"), path, f"op{index}", kind)
        for index, (path, kind) in enumerate(operations)
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("t0", 1, [5])], [value(f"t{len(nodes)}", 1, [5])])
    return Graph(helper.make_model(graph))


def _nodes_by_call(operations: list[tuple[str, str]], count: int) -> tuple[list[list[int]], bool]:
    calls = _sub_calls(count)
    graph = _chain(operations)
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
    calls = _sub_calls(1)
    graph = _chain([("sub", "HardSwish"), ("", "Mul")])
    model = helper.make_model(helper.make_graph(graph.nodes, "g", [], []))
    model.graph.output.append(helper.make_tensor_value_info("t2", 1, [5]))
    given = candidates_of(model, [*calls[:1], *_renumbered(calls[:1]), *calls[1:]], "dynamo")
    values = dict.fromkeys(given.tensors, calls[0].outputs[0])
    places = [place for place in match(given, values) if place.call.path == "sub"]
    assert [place.tensor for place in places] == [None, None]


def _renumbered(calls: list[Any]) -> list[Any]:
    import dataclasses

    return [dataclasses.replace(one, number=1, entered=(0, 99), keys=(("other",),)) for one in calls]


# ---- what each submodule returns --------------------------------------------------------------------------------


def test_work_in_place_does_not_change_what_was_seen_before():
    import torch
    from torch import nn

    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    linear, relu, whole = calls_of(lambda: module(torch.linspace(-1, 1, 6).reshape(2, 3)))
    assert (linear.outputs[0] < 0).any()
    np.testing.assert_array_equal(relu.outputs[0], np.maximum(linear.outputs[0], 0))
    assert linear.keys != relu.keys == whole.keys


def test_a_call_that_raises_and_is_caught_does_not_count():
    import torch
    from torch import nn

    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = nn.Linear(9, 9), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.bad(x)
            except RuntimeError:
                return self.good(x)

    calls = calls_of(lambda: Careful()(torch.zeros(1, 3)))
    assert [(one.path, one.chain) for one in calls] == [("good", ("", "good")), ("", ("",))]


def test_modules_that_are_made_on_the_way_do_not_count_and_hooks_are_removed():
    import torch
    from torch import nn

    class Makes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.ReLU()(x)

    seen = calls_of(lambda: Makes()(torch.zeros(1)))
    assert [one.path for one in seen] == [""]
    Makes()(torch.zeros(1))
    assert len(seen) == 1


def test_another_way_through_the_submodules_is_no_pair():
    once, twice = _sub_calls(1), _sub_calls(2)
    assert paired(once, twice) is None
    assert [len(one) for one in paired(once, once) or []] == [1, 1]


# ---- planted defects --------------------------------------------------------------------------------------------


def test_a_wrong_symbolic_is_the_first_parting_and_what_follows_is_not(trial):
    answer = trial(wrong("Network", "symbolic", IMAGES))
    assert answer.alignment.parts
    assert parting(answer) == "act"
    found = rows(answer)
    assert {name for name, row in found.items() if row.parts} == {"act", "head"}
    assert [name for name, row in found.items() if row.begins] == ["act"]
    lines = said(answer)
    assert "they part first at act (Hardswish), node /act/Mul, operators HardSwish, Mul:" in lines
    assert "values differ by more than allowed; furthest at [" in lines
    assert "it is computed from layers.1.relu, call 2 (error/allowed" in lines
    assert "1 more part, computed from what parts before them" in lines


@EXPORTERS
@pytest.mark.parametrize("layer, node", [("stem", "stem"), ("layers.1.conv1", "layers.1.bn1"), ("head", "head")])
def test_a_wrong_weight_in_the_graph_is_named(trial, exporter, layer, node):
    """The weight of a convolution with its batch norm is named with the batch norm's output."""

    def change(model: onnx.ModelProto) -> None:
        weights = {one.name: one for one in model.graph.initializer}
        users = [one for one in model.graph.node if one.op_type in ("Conv", "Gemm", "MatMul")]
        order = ["stem", "layers.0.conv1", "layers.0.conv2", "layers.1.conv1", "layers.1.conv2", "head"]
        assert len(users) == len(order)
        weight = weights[users[order.index(layer)].input[1]]
        array = numpy_helper.to_array(weight).copy()
        array.flat[0] += 0.5
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))

    answer = trial.tampered(network("Network", IMAGES), change, exporter=exporter)
    assert parting(answer) == node
    assert [name for name, row in rows(answer).items() if row.begins] == [node]


def test_the_call_that_is_wrong_is_named(trial):
    answer = trial(wrong("Twice", "second"))
    assert parting(answer) == "sub.1, call 2"
    assert not rows(answer)["sub.1"].parts


def test_partings_that_do_not_follow_from_the_first_are_told(trial):
    answer = trial(wrong("Branches", "symbolic"))
    assert parting(answer) == "one"
    assert {name for name, row in rows(answer).items() if row.begins} == {"one", "two"}
    assert not rows(answer)["sound"].parts
    assert "1 more part though what they are computed from agrees: two" in said(answer)


def test_a_graph_that_does_not_run_is_refused(trial):
    with pytest.raises(ValueError, match=r"onnxruntime-literal: .*Add"):  # of two tensors that have no common shape
        trial(wrong("Network", "flat", IMAGES))


def test_a_wrong_shape_is_named(trial):
    answer = trial(wrong("Last", "flat"))
    assert parting(answer) == "act"
    assert "it has shape (1, 12) instead of (3, 4)" in said(answer)


def test_nan_that_only_the_graph_has_is_named(trial):
    answer = trial(wrong("Network", "poisoned", IMAGES))
    assert answer.alignment.first is None  # the blocks end in a ReLU, so that nothing is below -1
    answer = trial(wrong("Branches", "poisoned"))
    assert answer.alignment.first is not None
    assert "are NaN or infinite on one side only" in said(answer)


def test_nan_on_both_sides_agrees(trial):
    answer = trial(network("Logs"), exporter="torchscript")
    log = rows(answer)["log"]
    assert np.isnan(log.place.call.outputs[0]).any()
    assert log.verdict in ("verified", "nothing")
    assert not answer.alignment.parts


@pytest.mark.parametrize("moves, parts", [(1e-3, False), (0.0, True)])
def test_what_the_rounding_of_inputs_moves_as_far_does_not_part(moves, parts):
    """PyTorch's float32 may be exact by luck, and is no measure then."""
    (call, *_) = _sub_calls(1)
    graph = _chain([("sub", "HardSwish")])
    place = Place(call, 0, "own", "t1")
    wanted, asked = call.outputs[0], []

    def moved() -> dict[tuple[int, int], float]:
        asked.append(1)
        return {(call.id, 0): moves}

    def aligned(got: Any) -> Any:
        exact = {(call.id, 0): wanted.astype(np.float64)}
        return at_fp32(graph, [place], {"t1": got}, exact, Tolerances((), ()), moved)

    assert not aligned(wanted).parts
    assert not asked
    assert aligned(wanted + np.float32(1e-3)).parts is parts
    assert asked == [1]


@pytest.mark.parametrize("values", ["nan", "inf", "large", "zero"])
def test_special_values_do_not_make_a_sound_network_part(trial, values):
    answer = trial(network("Twice"), values=values)
    assert answer.draw.regime == values
    assert not answer.alignment.parts


# ---- other precisions --------------------------------------------------------------------------------------------


FP16 = network("Loud", ROWS, "export: {torchscript: [17]}", "precisions: {fp16: {}, fp16-kept: {exclude: /loud/*}}")
INT8 = network("Uneven", IMAGES, "export: {torchscript: [17]}", "precisions: {int8: {}}")


def test_the_layer_that_overflows_in_fp16_is_named(trial):
    assert not trial(FP16).alignment.parts
    answer = trial(FP16, precision="fp16")
    assert answer.alignment.parts
    assert parting(answer) == "loud"
    assert "they part first at loud (Linear), node /loud/MatMul, operator MatMul:" in said(answer)
    assert "values are NaN or infinite; in PyTorch the largest is" in said(answer)
    assert rows(answer)["first"].sqnr > 60
    assert rows(answer)["last"].parts


def test_the_layer_that_loses_most_in_int8_is_named(trial):
    answer = trial(INT8, precision="int8")
    assert answer.alignment.parts
    assert parting(answer) == "gather"
    found = rows(answer)
    assert found["spread"].sqnr > 25 > 20 > found["gather"].sqnr
    assert found["gather"].drop == pytest.approx(min(found["spread"].sqnr, 40) - found["gather"].sqnr)
    assert "most is lost at gather (Conv2d), node /gather/Conv" in said(answer)
    assert "at least 20 dB is due" in said(answer)


def test_a_sound_conversion_does_not_part(trial):
    body = network("Network", IMAGES, BOTH, "precisions: {fp16: {}, int8: {}}")
    for precision in ("fp16", "int8"):
        for exporter in ("torchscript", "dynamo"):
            answer = trial(body, precision=precision, exporter=exporter)
            assert "unmatched" not in kinds(answer).values()
            assert all(row.sqnr is not None and row.sqnr > 20 for row in answer.alignment.compared)
            assert not answer.alignment.parts


# ---- the command ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """``typed(body, *arguments)``: the command in this process, in a folder with one case ``planted``."""

    def run(body: str, *arguments: str) -> Said:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        write_case(folder / "cases", body, PYTHON)
        monkeypatch.chdir(folder)
        parser = argparse.ArgumentParser()
        command.arguments(parser)
        try:
            code = command.run(parser.parse_args(arguments))
        except (ValueError, OSError) as error:  # as cli.main does
            print(error, file=sys.stderr)
            code = 2
        return Said(code, *capsys.readouterr())

    return run


def test_a_sound_case_has_the_exit_code_0_and_its_store_is_used(typed):
    done = typed(network("Network", IMAGES), "planted", "--exporter", "dynamo", "--at", "batch=2", "--seed", "7")
    assert done.code == 0
    assert "planted, dynamo opset 20, fp32" in done.out
    assert "batch=2, " in done.out
    assert "seed 7" in done.out
    assert "its optimizer off" in done.out
    assert "nothing parts" in done.out
    assert list(Path(".conformance/models").glob("*/model.onnx"))


def test_a_parting_has_the_exit_code_1_and_a_mark(typed):
    done = typed(wrong("Network", "symbolic", IMAGES), "planted")
    assert done.code == 1
    (marked,) = (line for line in done.out.splitlines() if line.startswith(">>"))
    assert marked.split()[1:3] == ["act", "Hardswish"]
    assert "they part first at act (Hardswish)" in done.out


def test_all_calls_are_listed_on_demand(typed):
    body = network("Fewer")
    few, every = typed(body, "planted"), typed(body, "planted", "--all")
    assert "more; --all shows them" in few.out
    assert "idle" not in few.out
    assert "more; --all shows them" not in every.out
    for part in ("idle", "places", "not found: no node of the graph is from it", "(the whole module)"):
        assert part in every.out


@pytest.mark.parametrize("runtime", command.RUNTIMES)
def test_every_runtime_finds_the_wrong_layer(typed, runtime):
    done = typed(wrong("Twice", "second"), "planted", "--runtime", runtime)
    assert done.code == 1
    assert "they part first at sub.1, call 2" in done.out


EXPRESSION = say("forward: torch.sin(x)", ROWS)


@pytest.mark.parametrize("body, arguments, parts", [
    pytest.param(EXPRESSION, ["planted"], ["no submodules to align by", "forward is an expression", "sensitivity"],
                 id="expression"),
    pytest.param(network("Alone"), ["planted"], ["no submodules to align by: it calls none"], id="no submodules"),
    pytest.param(network("Twice", ROWS, "script: true", "export: {torchscript: [17]}"), ["planted"],
                 ["no submodules to align by: torch.jit.script"], id="scripted"),
    pytest.param(network("Twice"), ["plantd"], ["there is no case 'plantd'; did you mean 'planted'?"],
                 id="unknown case"),
    pytest.param(network("Twice"), ["lant"], ["there is no case 'lant'; did you mean one of planted?"],
                 id="part of a name"),
    pytest.param(network("Twice"), ["planted", "--at", "batch=9"], ["--at batch=9: batch is 2..4"], id="range"),
    pytest.param(network("Twice"), ["planted", "--at", "bach=2"], ["has no dim 'bach'; did you mean 'batch'?"],
                 id="dim"),
    pytest.param(network("Twice"), ["planted", "--at", "batch"], ["'batch' is not a dim and its size"], id="no size"),
    pytest.param(network("Twice", ROWS, "export: {torchscript: {opsets: 17, static: batch}}"),
                 ["planted", "--at", "batch=4"], ["--at batch=4: batch is 3 (static in this export)"], id="static"),
    pytest.param(network("Twice"), ["planted", "--values", "tini"], ["no 'tini'; did you mean 'tiny'?"], id="values"),
    pytest.param(network("Twice"), ["planted", "--precision", "int8"],
                 ["planted has no such model; it has torchscript 17 fp32, dynamo 20 fp32"], id="precision"),
    pytest.param(network("Twice"), ["planted", "--opset", "5"], ["planted has no such model"], id="opset"),
    pytest.param(INT8, ["planted", "--precision", "int8", "--runtime", "onnx-reference"],
                 ["--runtime: onnx-reference runs no converted models"], id="runtime"),
    pytest.param(network("Nosuch"), ["planted"], ["beside.py has no 'Nosuch'"], id="module"),
    pytest.param(network("Twice"), ["planted", "--cases", "nosuch"], ["no such case file or folder"], id="folder"),
    pytest.param(network("Twice") + "\nneeds: a_package_that_nobody_has", ["planted"], ["is not installed"],
                 id="needs"),
])  # fmt: skip
def test_what_the_user_has_to_correct_is_said_in_one_line(typed, body, arguments, parts):
    done = typed(body, *arguments)
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    for part in parts:
        assert part in done.err
