"""Weights in few bits that an export has made floats of are a conversion where they are the original's on a grid, and
what is planted in them is named; what is on no grid, or not the original's, is compared value by value."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from conformance.judge.spoiled_weights import ConvertedFile, spoiled
from conformance.models.precision.folded import folded_precision, folded_weights
from conformance.runtimes.onnxgraph.mapped import MappedModel
from conformance.runtimes.registry import LITERAL
from tests.kit.converted import INPUT, check, folded, network, original, scaled, weights

FEEDS = [{"x": np.random.default_rng(n).standard_normal((n, INPUT)).astype(np.float32)} for n in (1, 5, 8)]
FORMS = [("levels", 8), ("channels", 8), ("channels", 4), ("blocks", 4), ("channels", 2)]


def precision(model, first=None):
    return folded_precision(*(MappedModel(Path(), one) for one in (first or original(), model)))


def wrong_in(model):
    return spoiled(ConvertedFile(original(), model, FEEDS, LITERAL, []))


@pytest.mark.parametrize("form, bits", FORMS)
def test_a_sound_weight_is_found_on_its_grid_and_nothing_is_wrong_with_it(form, bits):
    model = folded(form, bits=bits)
    assert precision(model) == f"int{bits}"
    for one in folded_weights(MappedModel(Path(), original()), MappedModel(Path(), model)):
        assert one.weight.grid.block == (16 if form == "blocks" else 0)
        assert one.right is not None and np.array_equal(one.right, weights()[one.name])
    assert wrong_in(model) == []


def exchanged(parts):
    parts["W1_q"] = parts["W1_q"][:, [1, 0, *range(2, 128)]]


def moved(parts):
    parts["W2_q"] = parts["W2_q"] + 3


def floored(parts):
    parts["W1_q"] = np.floor(weights()["W1"] / np.repeat(parts["W1_s"], INPUT // len(parts["W1_s"]), axis=0))


@pytest.mark.parametrize("form, bits, spoil, said", [
    ("levels", 8, scaled("W2_s", 2.0, column=(0, 3)), "W2 of fc2, channel 3 of axis 1: its scale is 2 times"),
    ("channels", 8, scaled("W2_s", 0.5, column=(0, 3)), "W2 of fc2, channel 3 of axis 1: its scale is 0.5 times"),
    ("blocks", 4, scaled("W1_s", 2.0, column=(1, 7)), "W1 of fc1, block 1 of axis 0, place 7 of axis 1: its scale"),
    ("channels", 4, scaled("W1_s", 1.25), "W1 of fc1: its scale is 1.25 times"),
    ("channels", 8, exchanged, "W1 of fc1 is the original's with places 0 and 1 along axis 1 exchanged"),
    ("levels", 8, moved, "W2 of fc2: its zero point is off by 3"),
    ("blocks", 4, floored, "W1 of fc1: it is rounded down"),
])  # fmt: skip
def test_a_planted_slip_is_named(form, bits, spoil, said):
    found = wrong_in(folded(form, spoil, bits))
    assert len(found) == 1 and found[0].startswith(said), found


def spoilt(how):
    """The file by channels with other values of its second weight."""
    model = folded("channels")
    (tensor,) = (one for one in model.graph.initializer if one.name == "val_2")
    array = numpy_helper.to_array(tensor).copy()
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(how(array), np.float32), "val_2"))
    return model


def one_off(array):
    array[5, 3] += np.float32(0.01)
    return array


def another(array):
    return np.random.default_rng(3).permutation(array)


@pytest.mark.parametrize("how", [one_off, another, np.flipud, lambda array: weights()["W2"] * 1.01])
def test_what_is_on_no_grid_or_of_another_model_is_no_conversion(how):
    assert precision(spoilt(how)) is None


def test_what_is_no_conversion_is_compared_value_by_value(tmp_path, capsys):
    code, out = check(capsys, tmp_path, spoilt(one_off), "--precision", "fp32")
    assert code == 1 and "net_small.onnx is wrong" in out and "is a model in" not in out, out


def test_one_weight_in_place_of_two_is_no_conversion():
    """Two layers of one size, of which the second reads the weight of the first, in other bits."""
    size = (INPUT, INPUT)
    rng = np.random.default_rng(5)
    one, other = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    said = {"b1": weights()["b1"][:INPUT]}

    def square(**held):
        parts = said | {name: np.asarray(array, np.float32) for name, array in held.items()}
        tensors = [numpy_helper.from_array(array, name) for name, array in parts.items()]
        graph = onnx.helper.make_graph(original().graph.node, "square", [], [], tensors)
        return MappedModel(Path(), onnx.helper.make_model(graph))

    def rounded(array, most):
        scale = np.abs(array).max(0) / most
        return np.rint(array / scale) * scale

    first = square(W1=one, W2=other)
    assert folded_precision(first, square(W1=rounded(one, 127), W2=rounded(other, 127))) == "int8"
    assert folded_precision(first, square(W1=rounded(one, 127), W2=rounded(one, 7))) is None


def test_weights_that_lie_on_a_grid_from_the_beginning_are_compared_value_by_value(tmp_path, capsys):
    whole = weights() | {name: np.rint(weights()[name] * 100) / np.float32(100) for name in ("W1", "W2")}
    first, second = (network([*original().graph.node], parts) for parts in (whole, whole | {"W2": whole["W2"] * 2}))
    assert precision(second, first) is None and precision(first, first) is None
    assert precision(original(), original()) is None


def test_a_sound_file_is_judged_in_decibels_and_a_scale_that_is_wrong_is_named(tmp_path, capsys):
    code, out = check(capsys, tmp_path, folded("levels"))
    assert code == 0 and "net_small.onnx is a model in int8: compared with net.onnx in decibels" in out, out
    code, out = check(capsys, tmp_path, folded("blocks", scaled("W1_s", 2.0, column=(1, 7)), 4))
    said = " ".join(out.split())
    assert code == 1 and "is not net.onnx converted: W1 of fc1, block 1 of axis 0, place 7 of axis 1" in said, out


def test_the_right_constant_of_levels_behind_steps_is_made(tmp_path):
    """Levels of 8 bits that a Reshape, a Cast, a Sub and a Mul make the weight of."""
    from tests.cells.test_files_of_others import cast

    model = cast()
    (one, other) = folded_weights(MappedModel(Path(), original()), MappedModel(Path(), model))
    for stand in (one, other):
        held = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == stand.weight.name))
        made = stand.weight.rounded(stand.right, False)
        assert made.dtype == held.dtype == np.int8 and np.array_equal(made, held)
    onnx.checker.check_model(model)
