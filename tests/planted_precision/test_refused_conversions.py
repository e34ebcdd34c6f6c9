"""Converted models that break a rule, are invalid or have another signature stop where they are made."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance.precision import int8
from tests.planted_precision.support import (
    BODY,
    CONVERTED,
    TWO_OUTPUTS,
    activation_at_an_eighth_of_its_range,
    all_of,
    behind,
    change_initializer,
    initializer,
    run,
    scale_off_by_two,
    weights_in_bfloat16,
    zero_point_off_by_one,
)
from tests.support import PASSED, verdict

# ---- int8: what the rules find ------------------------------------------------------------------------------


def zero_point_of_a_weight_off_by_one(model):
    change_initializer(model, "second.weight_zero_point", lambda zero: zero + (np.arange(len(zero)) == 2))


def scales_of_a_convolution_along_the_inputs(model):
    for name in ("second.weight_scale", "second.weight_zero_point"):
        change_initializer(model, name, lambda values: np.resize(values, 8))
    set_axis(model, "second.weight_DequantizeLinear", 1)


def scales_of_a_matrix_along_the_inputs(model):
    (node,) = (one for one in model.graph.node if one.op_type == "DequantizeLinear" and "MatMul" in one.name)
    for name in node.input[1:]:
        change_initializer(model, name, lambda values: np.resize(values, 4))
    set_axis(model, node.name, 0)


def set_axis(model, name, axis):
    node = next(one for one in model.graph.node if one.name == name)
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", axis))


def quantized_bias(dtype):
    def change(model):
        bias = numpy_helper.to_array(initializer(model, "second.bias"))
        scale = np.float32(np.abs(bias).max() / 127)
        model.graph.initializer.extend([
            numpy_helper.from_array(np.rint(bias / scale).astype(dtype), "bias_quantized"),
            numpy_helper.from_array(np.asarray(scale), "bias_scale"),
            numpy_helper.from_array(np.zeros((), dtype), "bias_zero"),
        ])  # fmt: skip
        names = ["bias_quantized", "bias_scale", "bias_zero"]
        model.graph.node.insert(0, helper.make_node("DequantizeLinear", names, ["bias_again"], "bias_dq"))
        next(one for one in model.graph.node if one.name == "/second/Conv").input[2] = "bias_again"

    return change


def scale(value):
    return lambda model: change_initializer(model, "second.weight_scale", lambda old: np.where(old > 0, value, 0))


@pytest.mark.parametrize("change, node, what", [
    pytest.param(zero_point_off_by_one, "/Relu_output_0_QuantizeLinear", "zero point is not 0", id="zero point"),
    pytest.param(zero_point_of_a_weight_off_by_one, "second.weight_DequantizeLinear", "zero point is not 0",
                 id="zero point of one channel"),
    pytest.param(scales_of_a_convolution_along_the_inputs, "Conv /second/Conv", "scales along axis 1",
                 id="axis of a convolution"),
    pytest.param(scales_of_a_matrix_along_the_inputs, "MatMul /last/MatMul", "scales along axis 0",
                 id="axis of a matrix"),
    pytest.param(quantized_bias("int8"), "Conv /second/Conv", "the bias is quantized", id="int8 bias"),
    pytest.param(quantized_bias("int32"), "Conv /second/Conv", "the bias is quantized", id="int32 bias"),
    pytest.param(scale(0.0), "second.weight_DequantizeLinear", "scales are positive", id="no scale"),
    pytest.param(scale(-0.1), "second.weight_DequantizeLinear", "scales are positive", id="negative scale"),
    pytest.param(scale(np.inf), "second.weight_DequantizeLinear", "scales are positive", id="infinite scale"),
])  # fmt: skip
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_an_int8_model_that_breaks_the_rules_stops_where_it_is_made_and_names_the_node(
    bench, break_conversion, check, change, node, what
):
    break_conversion(change)
    record = run(bench, check, "int8")
    assert verdict(record) == ("failed", "convert", "BrokenRule", "precision")
    assert node in record.reason
    assert what in record.reason
    assert record.conversion["broken"]


# ---- constants and ranges that are not those that the converter was given ------------------------------------------


def one_channel_by_a_twentieth(model):
    change_initializer(model, "second.weight_scale", lambda scales: scales * (1 + 0.05 * (np.arange(4) == 2)))


def one_constant_rounded_up(model):
    (name,) = (one.name for one in model.graph.initializer if one.name == "second.bias")
    change_initializer(model, name, lambda values: np.nextafter(values, np.float16(9)))


@pytest.mark.parametrize("precision, change, node, what", [
    pytest.param("int8", scale_off_by_two, "Conv /first/Conv", "more than half a step",
                 id="scale off by two"),
    pytest.param("int8", one_channel_by_a_twentieth, "Conv /second/Conv", "more than half a step",
                 id="one channel by a twentieth"),
    pytest.param("int8", activation_at_an_eighth_of_its_range, "/Relu_output_0_QuantizeLinear",
                 "the measured range asks for", id="saturated"),
    pytest.param("fp16", weights_in_bfloat16, "second.weight", "exported ones rounded",
                 id="bfloat16"),
    pytest.param("fp16", one_constant_rounded_up, "second.bias", "4 of 4", id="one constant rounded up"),
])  # fmt: skip
def test_a_converter_that_rounds_wrongly_stops_where_it_does_and_names_the_node(
    bench, break_conversion, precision, change, node, what
):
    break_conversion(change)
    for check in ("fidelity", "accuracy"):
        record = run(bench, check, precision)
        assert verdict(record) == ("failed", "convert", "BrokenRule", "precision")
        assert node in record.reason
        assert what in record.reason


def test_a_cast_that_is_missing_makes_an_invalid_model(bench, break_conversion):
    def change(model):
        name = model.graph.output[0].name
        cast = next(node for node in model.graph.node if name in node.output)
        cast.op_type = "Identity"
        del cast.attribute[:]

    break_conversion(change)
    record = run(bench, "fidelity", "fp16")
    assert (record.status, record.stage, record.fault) == ("failed", "convert", "precision")
    assert "onnx.checker refuses the converted model" in record.reason


# ---- a converted model of another form --------------------------------------------------------------------------


def loses_an_output(model):
    model.graph.output.pop()


def swaps_its_outputs(model):
    names = [one.SerializeToString() for one in model.graph.output]
    for one, data in zip(model.graph.output, reversed(names), strict=True):
        one.ParseFromString(data)


def renames_an_input(model):
    model.graph.input[0].name = "other"
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == "x":
                node.input[index] = "other"


def gives_fp16(model):
    behind(model, "Cast", to=TensorProto.FLOAT16)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16


def takes_fp16(model):
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == "x":
                node.input[index] = "x/float"
    cast = helper.make_node("Cast", ["x"], ["x/float"], "planted", to=TensorProto.FLOAT)
    model.graph.node.insert(0, cast)


@pytest.mark.parametrize("change, part", [
    pytest.param(loses_an_output, "outputs", id="an output less"),
    pytest.param(swaps_its_outputs, "outputs", id="outputs swapped"),
    pytest.param(renames_an_input, "the inputs ['other'] instead of ['x']", id="renamed input"),
    pytest.param(gives_fp16, "another dtype for", id="dtype of an output"),
    pytest.param(takes_fp16, "another dtype for x", id="dtype of an input"),
])  # fmt: skip
@CONVERTED
def test_a_converted_model_with_another_signature_stops_where_it_is_made(
    bench, break_after_conversion, precision, change, part
):
    break_after_conversion(change)
    for check in ("fidelity", "accuracy"):
        record = run(bench, check, precision, python=TWO_OUTPUTS)
        assert verdict(record) == ("failed", "convert", "WrongSignature", "precision")
        assert part in record.reason


def freezes_its_batch(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3


@CONVERTED
def test_a_converted_model_that_takes_one_batch_only_does_not_run_and_no_runtime_is_accused(
    bench, break_after_conversion, precision
):
    break_after_conversion(freezes_its_batch)
    for check in ("fidelity", "accuracy"):
        record = run(bench, check, precision)
        assert (record.status, record.stage, record.fault) == ("failed", "run", "precision")
        assert "Got invalid dimensions" in record.reason


@CONVERTED
def test_a_converted_model_that_is_not_valid_stops_where_it_is_made(bench, break_after_conversion, precision):
    break_after_conversion(lambda model: model.graph.node.append(helper.make_node("Nosuch", ["x"], ["nothing"])))
    record = run(bench, "fidelity", precision)
    assert (record.status, record.stage, record.fault) == ("failed", "convert", "precision")
    assert "onnx.checker refuses the converted model" in record.reason


def test_a_converter_that_raises_stops_both_cells_and_is_asked_once(bench, monkeypatch):
    calls = []

    def refuse(*arguments):
        calls.append(1)
        raise RuntimeError("planted: cannot quantize")

    monkeypatch.setattr(int8, "quantize", refuse)
    records = all_of(bench, BODY)
    for check in ("fidelity", "accuracy"):
        assert verdict(records[f"{check} int8"]) == ("failed", "convert", "RuntimeError", "precision")
        assert "planted: cannot quantize" in records[f"{check} int8"].reason
        assert verdict(records[f"{check} fp16"]) == PASSED
    assert len(calls) == 1
