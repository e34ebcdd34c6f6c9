"""Converted models that break a rule, are invalid or have another signature stop where they are made."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.kit.cases import PASSED, verdict
from tests.models.planted_precision.support import (
    BODY,
    CONVERTED,
    NET,
    TWO_OUTPUTS,
    activation_at_an_eighth_of_its_range,
    all_of,
    behind,
    change_initializer,
    run,
    scale_off_by_two,
    weights_in_bfloat16,
    zero_point_off_by_one,
)


def scales_along_the_inputs(model):
    for name in ("second.weight_scale", "second.weight_zero_point"):
        change_initializer(model, name, lambda values: np.resize(values, 8))
    node = next(one for one in model.graph.node if one.name == "second.weight_DequantizeLinear")
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", 1))


def loses_an_output(model):
    model.graph.output.pop()


def swaps_its_outputs(model):
    names = [one.SerializeToString() for one in model.graph.output]
    for one, data in zip(model.graph.output, reversed(names), strict=True):
        one.ParseFromString(data)


def renames_an_input(model):
    model.graph.input[0].name = "other"
    for node in model.graph.node:
        node.input[:] = ["other" if name == "x" else name for name in node.input]


def gives_fp16(model):
    behind(model, "Cast", to=TensorProto.FLOAT16)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16


@pytest.mark.parametrize("precision, change, parts", [
    pytest.param("int8", zero_point_off_by_one, ["/Relu_output_0_QuantizeLinear", "zero point is not 0"],
                 id="zero point"),
    pytest.param("int8", scales_along_the_inputs, ["Conv /second/Conv", "scales along axis 1"],
                 id="axis of a convolution"),
    pytest.param("int8", scale_off_by_two, ["Conv /first/Conv", "more than half a step"], id="scale off by two"),
    pytest.param("int8", activation_at_an_eighth_of_its_range,
                 ["/Relu_output_0_QuantizeLinear", "the measured range asks for"], id="saturated"),
    pytest.param("fp16", weights_in_bfloat16, ["second.weight", "exported ones rounded"], id="bfloat16"),
    pytest.param("int8", loses_an_output, ["outputs"], id="an output less"),
    pytest.param("fp16", swaps_its_outputs, ["outputs"], id="outputs swapped"),
    pytest.param("int8", renames_an_input, ["the inputs ['other'] instead of ['x']"], id="renamed input"),
    pytest.param("fp16", gives_fp16, ["another dtype for"], id="dtype of an output"),
])  # fmt: skip
def test_a_model_that_breaks_a_rule_or_has_another_signature_stops_where_it_is_made(
    bench, break_conversion, precision, change, parts
):
    """A rule that is broken is told with the node."""
    of_signature = change in (loses_an_output, swaps_its_outputs, renames_an_input, gives_fp16)
    break_conversion(change, checked=of_signature)
    for check in ("fidelity", "accuracy"):
        record = run(bench, check, precision, python=TWO_OUTPUTS if of_signature else NET)
        error = "WrongSignature" if of_signature else "BrokenRule"
        assert verdict(record) == ("failed", "convert", error, "precision")
        assert all(part in record.reason for part in parts)


def freezes_its_batch(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3


@CONVERTED
def test_a_converted_model_that_takes_one_batch_only_does_not_run_and_no_runtime_is_accused(
    bench, break_conversion, precision
):
    break_conversion(freezes_its_batch, checked=True)
    for check in ("fidelity", "accuracy"):
        record = run(bench, check, precision)
        assert (record.status, record.stage, record.fault) == ("failed", "run", "precision")
        assert "Got invalid dimensions" in record.reason


@CONVERTED
def test_a_converted_model_that_is_not_valid_stops_where_it_is_made(bench, break_conversion, precision):
    break_conversion(
        lambda model: model.graph.node.append(helper.make_node("Nosuch", ["x"], ["nothing"])), checked=True
    )
    record = run(bench, "fidelity", precision)
    assert (record.status, record.stage, record.fault) == ("failed", "convert", "precision")
    assert "onnx.checker refuses the converted model" in record.reason


def test_a_converter_that_raises_stops_both_cells_and_is_asked_once(bench, break_conversion):
    calls = []

    def refuse(model):
        if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
            calls.append(1)
            raise RuntimeError("planted: cannot quantize")

    break_conversion(refuse)
    records = all_of(bench, BODY)
    for check in ("fidelity", "accuracy"):
        assert verdict(records[f"{check} int8"]) == ("failed", "convert", "RuntimeError", "precision")
        assert "planted: cannot quantize" in records[f"{check} int8"].reason
        assert verdict(records[f"{check} fp16"]) == PASSED
    assert len(calls) == 1
