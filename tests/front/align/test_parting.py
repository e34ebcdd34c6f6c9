"""Plants one wrong layer in a network, in the ways that a graph can be wrong, and checks that it is the one named."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from conformance.diagnose.operators.captured_program import Operator, Program
from conformance.diagnose.operators.forced import steps
from conformance.diagnose.operators.losses import largest, losses
from conformance.diagnose.operators.torchscript import module_of
from tests.front.align.support import Trial, first, of_module, parting, said
from tests.kit.cases import say
from tests.kit.networks import BOTH, DYNAMO_THOROUGH, EXPORTERS, FP16, IMAGES, INT8, network, wrong
from tests.kit.planting import planted
from tests.plants.planting import exported


@EXPORTERS
def test_a_sound_network_agrees_in_every_submodule(trial, exporter):
    answer = trial(network("Network", IMAGES), exporter=exporter)
    assert not answer.parts and parting(answer) == [] and said(answer) == "nothing parts in this example"
    compared = {row.operator.module for row in answer.rows if 0 <= row.badness < 1}
    layers = {f"layers.{block}.{name}" for block in (0, 1) for name in ("bn1", "bn2", "relu")}
    assert compared >= {"stem", "act", "aside", "head", "layers.0", "layers.1", *layers}
    (conv,) = of_module(answer, "layers.0.conv1")  # which is in the weights of its batch norm
    assert not conv.node and conv.badness == -np.inf


@EXPORTERS
def test_each_call_of_a_submodule_has_a_tensor_of_its_own(trial, exporter):
    answer = trial(network("Twice"), exporter=exporter)
    nodes = [row.node for name in ("sub.0", "sub.1") for row in of_module(answer, name)]
    assert len(nodes) == len({*nodes}) == 4 and not answer.parts


@pytest.mark.parametrize("scope, path", [
    ("N::/Sequential::layers/Block::layers.0/Conv2d::conv1", "layers.0.conv1"),
    ("N::/M::enc/Linear::blocks.0", "enc.blocks.0"), ("N::/Sequential::0/Linear::0.1", "0.1"),
    ("N::/M::a/M::a", "a.a"), ("N::", None), ("", None),
])  # fmt: skip
def test_a_scope_of_torchscript_is_the_path_of_a_submodule(scope, path):
    assert module_of(scope) == path


@pytest.mark.parametrize("forward", ["torch.tanh(x.unbind(0)[0])", "x + torch.empty(4).fill_(2.0)"])
def test_a_list_of_one_is_followed_and_memory_that_nobody_wrote_is_not_compared(trial, forward):
    body = say(f"forward: {forward}", 'inputs: {x: "float32[1, 4]"}', "export: {torchscript: [17]}")
    answer = trial(body)
    assert said(answer) == "nothing parts in this example" and parting(answer) == [] and answer.rows[-1].badness >= 0


def test_a_wrong_symbolic_is_the_first_parting_and_what_follows_is_none(trial):
    answer = trial(wrong("Network", "symbolic", IMAGES))
    assert answer.parts and first(answer) == "act" and parting(answer) == ["act"]
    assert "aten.hardswish" in said(answer) and "its inputs agree; at [" in said(answer)


@DYNAMO_THOROUGH
@pytest.mark.parametrize("layer, module", [(3, "layers.1.bn1"), (5, "head")])
def test_a_wrong_weight_in_the_graph_is_named(tmp_path, exporter, layer, module):
    """The weight of a convolution with its batch norm is named with the batch norm's output."""

    def change(model: onnx.ModelProto) -> int:
        weights = {one.name: one for one in model.graph.initializer}
        users = [one for one in model.graph.node if one.op_type in ("Conv", "Gemm", "MatMul")]
        weight = weights[users[layer].input[1]]
        array = numpy_helper.to_array(weight).copy()
        array.flat[0] += 0.5
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))
        return 1

    with planted(exported(change)):
        answer = Trial(tmp_path, tmp_path / "store")(network("Network", IMAGES), exporter=exporter)
    assert first(answer) == module and parting(answer) == [module]


def test_partings_beside_the_first_are_marked(trial):
    answer = trial(wrong("Branches", "symbolic"))
    assert first(answer) == "one" and parting(answer) == ["one", "two"]


def test_a_graph_that_does_not_run_is_followed_as_far_as_it_does(trial):
    answer = trial(wrong("Network", "flat", IMAGES))
    assert answer.parts and first(answer) == "act"


@pytest.mark.parametrize("name, symbolic, text", [
    ("Last", "flat", "got the shape [1, 12], wanted [3, 4]"), ("Branches", "poisoned", "got nan"),
])  # fmt: skip
def test_a_wrong_shape_and_nan_that_only_the_graph_has_are_named(trial, name, symbolic, text):
    answer = trial(wrong(name, symbolic))
    assert first(answer) in ("act", "one", "two") and text in said(answer)


@pytest.mark.parametrize("values", ["nan", "large"])
def test_special_values_do_not_make_a_sound_network_part(trial, values):
    answer = trial(network("Twice"), values=values)
    assert f"{values} values" in answer.heading and not answer.parts and parting(answer) == []


def test_the_layer_that_overflows_in_fp16_is_named(trial):
    assert not trial(FP16).parts
    answer = trial(FP16, precision="fp16")
    assert answer.parts and first(answer) == "loud" and parting(answer) == ["loud", "last"]
    assert "values are NaN or infinite; in PyTorch the largest is" in said(answer)
    (kept,) = of_module(answer, "first")
    assert float(kept.measures[0]) > 60


def test_the_layer_that_loses_most_in_int8_is_named(trial):
    answer = trial(INT8, precision="int8")
    assert answer.parts and first(answer) == "gather" and parting(answer) == ["last"]
    (spread,), (gather,) = of_module(answer, "spread"), of_module(answer, "gather")
    assert float(spread.measures[0]) > 25 > 20 > float(gather.measures[0])
    assert "most is lost at" in said(answer) and "at least 20 dB expected" in said(answer)


@DYNAMO_THOROUGH
def test_a_sound_conversion_does_not_part(trial, exporter):
    body = network("Network", IMAGES, BOTH, "precisions: {fp16: {}, int8: {}}")
    for precision in ("fp16", "int8"):
        answer = trial(body, precision=precision, exporter=exporter)
        assert not answer.parts and {row.operator.module for row in answer.rows} >= {"stem", "act", "head"}


def test_the_loss_of_a_value_counts_from_the_worst_of_those_that_it_is_computed_from():
    """The sum is a little worse than its noisy term, and far worse than the other one."""
    rng = np.random.default_rng(0)
    right, noise = rng.standard_normal((2, 999)).astype(np.float32)
    operators = [
        Operator(name, f"aten.{name}", reads, (name,), lambda values: (torch_of(right),))
        for name, reads in (("a", ()), ("b", ()), ("y", ("a", "b")))
    ]
    program = Program(operators, ["y"], {}, [], {name: [name] for name in "aby"})
    got = {"a": right + np.float32(0.1) * noise, "b": right, "y": right + np.float32(0.12) * noise}
    found = losses(program, [], got, (), "int8")
    worst = largest(found)
    assert worst is not None and worst.tensor == "a" and [loss.drop > 2 for loss in found] == [True, False, False]


@pytest.mark.parametrize("operator, compared", [("empty", False), ("new_empty", False), ("zeros", True)])
def test_what_nobody_has_written_is_not_compared(operator, compared):
    right = np.float32([1, 2])
    made = Operator("a", f"aten.{operator}", (), ("a",), lambda values: (torch_of(right),))
    read = Operator("y", "aten.fill", ("a",), ("y",), lambda values: (torch_of(right),))
    program = Program([made, read], ["y"], {}, [], {"a": ["a"], "y": ["y"]})
    first, last = steps(program, [], {"a": right + 7, "y": right})
    assert (first.parting is not None) == compared and last.parting is None


def torch_of(array: np.ndarray) -> object:
    import torch

    return torch.from_numpy(array)
