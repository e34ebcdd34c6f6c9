"""Defects planted in converted files are named by what putting them right gives back; sound files, and such whose
weights are chosen otherwise than by the nearest level, are accused of nothing."""

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from conformance.judge.spoiled_weights import ConvertedFile, spoiled
from conformance.judge.verify_converted import meaning_of
from conformance.models.precision.by_others import precision_of
from conformance.models.precision.held_weights import held_weights, standing_for
from conformance.runtimes.registry import LITERAL
from tests.kit.converted import (
    INPUT,
    SOUND,
    cast,
    check,
    layers,
    mirrored,
    network,
    original,
    quantized,
    scaled,
    shifted,
    weights,
)

FEEDS = [{"x": np.random.default_rng(n).standard_normal((n, INPUT)).astype(np.float32)} for n in (1, 5, 8)]


def wrong_in(model, first=None):
    return spoiled(ConvertedFile(first or original(), model, FEEDS, meaning_of(precision_of(model) or "fp32"), []))


@pytest.mark.parametrize("name", [name for name in SOUND if "ends" not in name])
def test_nothing_is_wrong_in_a_sound_file(name):
    assert wrong_in(SOUND[name][1]()) == []


def levels(how):
    """Other levels of the first weight, of those that it has and of the original's values in steps."""

    def spoil(parts):
        exact = weights()["W1"] / parts["W1_s"]
        parts["W1_q"] = how(parts["W1_q"].astype(np.int64), exact).astype(parts["W1_q"].dtype)

    return spoil


def exchanged(held, exact):
    return held[:, [1, 0, *range(2, held.shape[1])]]


@pytest.mark.parametrize("bits, spoil, said", [
    (8, scaled("W2_s", 2.0, column=3), ["W2 of W2_dq, channel 3 of axis 1: its scale is 2 times"]),
    (8, scaled("W1_s", 0.5, column=3), ["W1 of W1_dq, channel 3 of axis 1: its scale is 0.499 times"]),
    (4, scaled("W1_s", 1.25), ["W1 of W1_dq: its scale is 1.25 times"]),
    (8, mirrored, ["W1 of W1_dq is the original's in reversed order along axis 0"]),
    (8, levels(exchanged), ["W1 of W1_dq is the original's with places 0 and 1 along axis 1 exchanged"]),
    (8, levels(lambda held, exact: np.trunc(exact)), ["W1 of W1_dq: it is truncated towards zero"]),
    (4, levels(lambda held, exact: np.clip(np.floor(exact), -8, 7)), ["W1 of W1_dq: it is rounded down"]),
    (8, levels(lambda held, exact: held + 3 - 3 * (held > 124)), ["W1 of W1_dq: its zero point is off by 3"]),
    (8, levels(lambda held, exact: np.clip(held, -42, 42)), ["W1 of W1_dq: it is clipped to 42 steps"]),
    (8, levels(lambda held, exact: held // 16 * 16), ["W1 of W1_dq: it takes only every 16th level"]),
    (8, shifted, ["b1 of bias: it has other values than in the original"]),
])  # fmt: skip
def test_a_planted_slip_is_named(bits, spoil, said):
    found = wrong_in(quantized(spoil, bits))
    assert len(found) == len(said) and all(text.startswith(start) for text, start in zip(found, said, strict=True)), (
        found
    )


def powers_of_2(exponents, low=-127):
    """One scale for each weight that is a power of 2, and levels in its range, as of Quark's XInt8."""

    def spoil(parts):
        for name, exponent in zip(("W1", "W2"), exponents, strict=True):
            levels = np.clip(np.round(weights()[name] * 2.0**exponent), low, 127)
            parts |= {f"{name}_q": levels.astype(np.int8), f"{name}_s": np.full(levels.shape[1], 2.0**-exponent)}
            parts[f"{name}_s"] = parts[f"{name}_s"].astype(np.float32)

    return quantized(spoil)


def test_values_outside_of_the_range_of_a_power_of_2_are_no_mistake_unless_they_are_most_of_the_noise():
    """The first weight reaches 130 steps; the second 85, or with half of the scale 169."""
    assert wrong_in(powers_of_2((8, 8))) == []
    (said,) = wrong_in(powers_of_2((8, 9)))
    assert said.startswith("W2 of W2_dq: it is clipped to 127 steps, the original's reaches 169"), said
    model = powers_of_2((8, 8))
    (scale,) = (one for one in model.graph.initializer if one.name == "W2_s")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) / 2, "W2_s"))
    (said,) = wrong_in(model)
    assert said.startswith("W2 of W2_dq: its scale is 0.5 times"), said


def test_check_says_how_many_values_are_outside_and_how_far(tmp_path, capsys):
    code, out = check(capsys, tmp_path, powers_of_2((8, 8)))
    said = "outside of their range, which is a loss and no mistake: W1 (1 of 8,192 values, by up to 3.0 steps)"
    assert code == 0 and said in out, out
    assert "outside of their range" not in check(capsys, tmp_path, quantized())[1]


def test_a_float_that_was_truncated_or_moved_is_named():
    model = cast(onnx.TensorProto.FLOAT16, np.float16)
    (tensor,) = (one for one in model.graph.initializer if one.name == "W1")
    right = weights()["W1"]
    near = right.astype(np.float16)
    over = np.abs(near.astype(np.float32)) > np.abs(right)
    tensor.CopyFrom(numpy_helper.from_array(np.where(over, np.nextafter(near, np.float16(0)), near), "W1"))
    assert wrong_in(model) == ["W1 of fc1: it is truncated towards zero, not rounded to the nearest"]
    near[3, 4] *= 2
    tensor.CopyFrom(numpy_helper.from_array(near, "W1"))
    (said,) = wrong_in(model)
    assert said.startswith("W1 of fc1, place 3 of axis 0, place 4 of axis 1: it has other values"), said


@pytest.mark.parametrize("name", ["fp8", "fp8 of 5 bits of exponent", "fp4"])
def test_a_weight_of_floats_of_few_bits_is_compared(name):
    assert wrong_in(SOUND[name][1]()) == []
    model = SOUND[name][1]()
    (scale,) = (one for one in model.graph.initializer if one.name == "W2_s")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(1.1), "W2_s"))
    (said,) = wrong_in(model)
    assert re.match(r"W2 of W2_dq: its scale is 1\.(09|1) times", said), said


@pytest.mark.parametrize("by", [0.3, 3.0])
def test_weights_that_another_layer_makes_up_for_are_accused_of_nothing(by):
    """As of converters that balance layers: the bias is larger and the next weight smaller by the same."""

    def balanced(parts):
        for name, factor in (("W1_s", by), ("b1", by), ("W2_s", 1 / by)):
            parts[name] = (parts[name] * np.float32(factor)).astype(np.float32)

    assert wrong_in(quantized(balanced)) == []


def test_channels_that_the_next_layer_makes_up_for_are_no_other_model():
    """Each channel by a factor of its own, so that no weight is like the original's."""
    by = np.exp2(np.random.default_rng(4).uniform(-3, 3, 128)).astype(np.float32)
    other = weights() | {"W1": weights()["W1"] * by, "b1": weights()["b1"] * by, "W2": weights()["W2"] / by[:, None]}

    def balanced(parts):
        parts["b1"] = other["b1"]
        for name in ("W1", "W2"):
            parts[f"{name}_s"] = (np.abs(other[name]).max(axis=0) / 127).astype(np.float32)
            parts[f"{name}_q"] = np.round(other[name] / parts[f"{name}_s"]).astype(np.int8)

    assert wrong_in(quantized(balanced)) == []


def test_levels_that_are_chosen_for_what_the_layer_computes_are_accused_of_nothing():
    """Each column rounded so that the mean of what it gives is kept, by a greedy search of one level after the
    other."""
    seen = np.random.default_rng(9).standard_normal((64, INPUT))

    def chosen(held, exact):
        found, mean = held.copy(), seen.mean(0)
        for column in range(found.shape[1]):
            off = mean @ (found[:, column] - exact[:, column])
            for row in np.argsort(-np.abs(exact - held)[:, column])[:8]:
                other = found[row, column] + (1 if exact[row, column] > held[row, column] else -1)
                changed = off + mean[row] * (other - found[row, column])
                if abs(changed) < abs(off) and -127 <= other <= 127:
                    found[row, column], off = other, changed
        assert (found != held).any()
        return found

    assert wrong_in(quantized(levels(chosen))) == []


def between(scale=0.03, zero=0, read=None):
    """The network with what its first layer gives quantized, and read by another scale where one is given."""
    parts = weights() | {"s": np.float32(scale), "z": np.int8(zero), "r": np.float32(read or scale)}
    nodes = [
        *layers()[:3],
        helper.make_node("QuantizeLinear", ["kept", "s", "z"], ["kept_q"], "quantize"),
        helper.make_node("DequantizeLinear", ["kept_q", "r" if read else "s", "z"], ["kept_dq"], "dequantize"),
        helper.make_node("MatMul", ["kept_dq", "W2"], ["y"], "fc2"),
    ]
    return network(nodes, parts)


def with_bias_moved(model, by):
    """One element of the bias is larger."""
    tensor = next(one for one in model.graph.initializer if one.name == "b1")
    values = numpy_helper.to_array(tensor).copy()
    values[5] += np.float32(by)
    tensor.CopyFrom(numpy_helper.from_array(values, "b1"))
    return model


def test_a_bias_is_corrected_by_who_has_seen_data_and_moved_by_who_has_not(tmp_path):
    """A file that measures its activations as it runs was made without data; there a bias is wrong that loses hardly
    anything."""
    onnx.save(original(), tmp_path / "net.onnx")
    quantize_dynamic(tmp_path / "net.onnx", tmp_path / "small.onnx", weight_type=QuantType.QInt8)
    assert wrong_in(onnx.load(tmp_path / "small.onnx")) == []
    (said,) = wrong_in(with_bias_moved(onnx.load(tmp_path / "small.onnx"), 0.04))
    assert said.startswith("b1 of bias: it has other values than in the original, at [5]"), said
    assert wrong_in(with_bias_moved(between(scale=0.06), 0.04)) == []


@pytest.mark.parametrize("differs, said", [
    ({}, None), ({"read": 0.06}, "DequantizeLinear dequantize reads the tensor kept_q by another scale than "
                                 "QuantizeLinear quantize writes it with, 0.06 in place of 0.03"),
    ({"scale": 0.003}, "the range of the tensor kept is -0.384 to 0.381, which leaves out "),
])  # fmt: skip
def test_scales_of_a_pair_and_ranges_are_compared(differs, said):
    found = wrong_in(between(**differs))
    assert (found == []) if said is None else (len(found) == 1 and found[0].startswith(said[:60])), found


@pytest.mark.parametrize("inputs, block", [(64, 16), (40, 16)])
def test_a_weight_in_packed_blocks_is_read_and_rounded_alike(inputs, block):
    """Also where the blocks do not divide the weight."""
    rng = np.random.default_rng(1)
    outputs, blocks = 8, -(-inputs // block)
    right = rng.standard_normal((inputs, outputs)).astype(np.float32)
    wide = np.zeros((outputs, blocks * block), np.float32)
    wide[:, :inputs] = right.T
    scale = (np.abs(wide.reshape(outputs, blocks, block)).max(-1) / 7).astype(np.float32)
    held = np.rint(wide / np.repeat(scale, block, 1)).astype(np.int64) + 8
    packed = (held[:, ::2] | held[:, 1::2] << 4).astype(np.uint8).reshape(outputs, blocks, block // 2)
    sizes = {"K": inputs, "N": outputs, "bits": 4, "block_size": block}

    def file(array, scales):
        node = helper.make_node(
            "MatMulNBits", ["x", "w_Q4", "w_s"], ["y"], "product", domain="com.microsoft", **sizes
        )
        return graph(node, {"w_Q4": array, "w_s": scales.ravel()}, "com.microsoft")

    def graph(node, constants, *domains):
        ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
                for name, size in (("x", inputs), ("y", outputs))]  # fmt: skip
        kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        made = helper.make_graph([node], "g", ends[:1], ends[1:], kept)
        imports = [helper.make_opsetid("", 21), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(made, opset_imports=imports, ir_version=10)

    first = graph(helper.make_node("MatMul", ["x", "w"], ["y"], "product"), {"w": right})
    ((weight, name, known, _),) = standing_for([*held_weights(file(packed, scale))], first)
    assert name == "w" and np.abs(weight.value - known).max() <= scale.max() / 2 * 1.001
    assert weight.rounded(known, False).tobytes() == packed.tobytes()
    feeds = [{"x": rng.standard_normal((4, inputs)).astype(np.float32)}]
    assert spoiled(ConvertedFile(first, file(packed, scale), feeds, LITERAL, [])) == []
    scale[3, 1] *= 2
    (said,) = spoiled(ConvertedFile(first, file(packed, scale), feeds, LITERAL, []))
    assert said.startswith("w of product, block 1 of axis 0, place 3 of axis 1: its scale is 2"), said


def test_positions_that_are_off_by_one_are_named():
    def file(first):
        nodes = [
            helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "zero"], ["count"]),
            helper.make_node("Add", ["count", "first"], ["end"]),
            helper.make_node("Range", ["first", "end", "one"], ["places"]),
            helper.make_node("Gather", ["table", "places"], ["rows"]), helper.make_node("Add", ["x", "rows"], ["y"]),
        ]  # fmt: skip
        ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in "xy"]
        table = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
        kept = {"table": table, "zero": np.int64(0), "one": np.int64(1), "first": np.int64(first)}
        tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in kept.items()]
        made = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    feeds = [{"x": np.ones((n, 4), np.float32)} for n in (2, 6)]
    assert spoiled(ConvertedFile(file(0), file(0), feeds, LITERAL, [])) == []
    (said,) = spoiled(ConvertedFile(file(0), file(1), feeds, LITERAL, []))
    assert said == "the whole numbers of the tensor end are not those of the original, they are off by +1"
