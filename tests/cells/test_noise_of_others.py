"""``conformance check`` says where the noise of a converted file is, which decibels over all values hide, and which
weights have other bytes though they were not to be converted."""

import re
import struct

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.case.plan.catalogue import plan
from conformance.models.precision.by_others import changed_weights
from tests.kit.cases import load_case, say
from tests.kit.converted import INPUT, OUTPUT, check, layers, network, original, pair, quantized, weights


def multiplied(gains):
    """The network in int8 with its outputs multiplied, which is wrong in no weight that the original has."""
    model = quantized()
    model.graph.node[-1].output[0] = "right"
    model.graph.node.append(helper.make_node("Mul", ["right", "gains"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(gains, np.float32), "gains"))
    return model


TWO_CHANNELS = np.ones(OUTPUT)
TWO_CHANNELS[[3, 7]] = 1.25, 0.75


@pytest.mark.parametrize("gains, found, said", [
    (np.ones(OUTPUT), (), ""),
    (np.full(OUTPUT, 1.05), ("bias: 0.01",), "all values are off by +5.0"),
    (TWO_CHANNELS, ("channel_sqnr: 15 dB",), "SQNR 12"),
])  # fmt: skip
def test_a_limit_of_its_own_finds_what_the_decibels_of_all_values_hide(tmp_path, bench, gains, found, said):
    pair(tmp_path, multiplied(gains))
    lines = ["onnx: net.onnx", "runtimes: onnxruntime", "specials: false",
             "precisions: {int8-theirs: {file: net_small.onnx}}"]  # fmt: skip
    for limit in ("bias: 0.01", "channel_sqnr: 15 dB"):
        case = load_case(tmp_path, say(*lines, f"tolerance: {{int8-theirs: {{sqnr: 20 dB, {limit}}}}}"))
        (cell,) = (one for one in plan(case) if one.check == "fidelity")
        record = bench.run_cell(cell)
        assert record.status == ("failed" if limit in found else "passed"), (limit, record.reason)
        assert record.fidelity["sqnr"] > 20 and (limit not in found or said in record.reason), record.reason


def with_rows_lost(model, row):
    """Multiply a row of each example of more rows by 1.5, as a position that is handled otherwise would be."""
    model.graph.node[-1].output[0] = "right"
    nodes = [helper.make_node("Shape", ["right"], ["rows"], end=1), helper.make_node("Squeeze", ["rows"], ["count"]),
             helper.make_node("Range", ["zero", "count", "one"], ["places"]),
             helper.make_node("Equal", ["places", "row"], ["here"]),
             helper.make_node("Unsqueeze", ["here", "axis"], ["rows_here"]),
             helper.make_node("Where", ["rows_here", "gain", "same"], ["gains"]),
             helper.make_node("Mul", ["right", "gains"], ["y"])]  # fmt: skip
    model.graph.node.extend(nodes)
    constants = {"zero": np.int64(0), "one": np.int64(1), "row": np.int64(row), "axis": np.array([1]),
                 "gain": np.float32(1.5), "same": np.float32(1)}  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items())
    return model


def test_rows_that_are_worse_than_others_are_named(tmp_path, capsys):
    _, out = check(capsys, tmp_path, with_rows_lost(quantized(), 4))
    assert "; worst row 4 of axis 0 at n=" in out and ": 6.0 dB" in out, out


def test_values_that_stand_out_are_counted_and_the_furthest_is_named(tmp_path, capsys):
    """One channel is cut off where it is far below what is usual."""
    model = quantized()
    model.graph.node[-1].output[0] = "all"
    model.graph.node.append(helper.make_node("Max", ["all", "limits"], ["y"]))
    limits = np.full(OUTPUT, -100, np.float32)
    limits[5] = -0.9
    model.graph.initializer.append(numpy_helper.from_array(limits, "limits"))
    code, out = check(capsys, tmp_path, model)
    found = re.search(r"\d+ of [\d,]+ values stand out from the noise, most of all \[\d, 5\] at n=", out)
    assert code == 0 and found, out


def moved(name, place, value):
    """One element of a weight that is not converted has other bytes."""

    def spoil(parts):
        parts[name] = parts[name].copy()
        parts[name][place] = value

    return spoil


def test_a_weight_that_was_not_to_be_converted_has_the_same_bytes(tmp_path, capsys):
    code, out = check(capsys, tmp_path, quantized())
    assert code == 0 and "other bytes" not in out
    code, out = check(capsys, tmp_path, quantized(moved("b1", 5, 0.4)))
    assert "these weights have other bytes than in the original: b1" in " ".join(out.split()), out


def normed(bias):
    """A norm before the last layer, whose weights nobody converts."""
    nodes = [helper.make_node("LayerNormalization", ["x", "norm.weight", "norm.bias"], ["given"], "norm")]
    rng = np.random.default_rng(1)
    parts = {"norm.weight": rng.standard_normal(INPUT).astype(np.float32), "norm.bias": np.asarray(bias, np.float32)}
    return network([*nodes, *layers("given")], {**weights(), **parts})


NAN = np.frombuffer(struct.pack("<I", 0x7FC00001), np.float32)[0]


@pytest.mark.parametrize("before, after", [(0.0, 0.1), (0.0, -0.0), (np.nan, NAN)])
def test_bytes_are_compared_and_not_values(before, after):
    first, second = np.zeros(INPUT, np.float32), np.zeros(INPUT, np.float32)
    first[9], second[9] = before, after
    assert changed_weights(normed(first), normed(first)) == []
    assert changed_weights(normed(first), normed(second)) == ["norm.bias"]
    renamed = onnx.ModelProto.FromString(original().SerializeToString())
    renamed.graph.initializer[1].name = "other"
    assert changed_weights(original(), renamed) == []
