"""Plants defects in converted models, in what converts them and in what runs them, and checks who gets the blame."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance.checks import models as cellrun
from conformance.plan.cell import Cell
from conformance.precision import convert, fp16, int8
from conformance.records import text
from conformance.records.record import Record
from conformance.runtimes import onnxruntime
from conformance.verdict.loss import greatest
from conformance.worker.warm import prepare_process
from tests.support import PASSED, Alter, Bench, altered, details, say, verdict

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 4, 3, padding=1)
        self.last = torch.nn.Linear(4, 5)

    def forward(self, x):
        x = self.second(torch.relu(self.first(x)))
        return self.last(x.permute(0, 2, 3, 1))
"""


def returning(expression: str) -> str:
    """The network with something else for its last line."""
    return NET.replace("return self.last(x.permute(0, 2, 3, 1))", f"return {expression}")


TWO_OUTPUTS = returning("self.last(x.permute(0, 2, 3, 1)), x.abs()")

COMMON = """
runtimes: onnxruntime
onnxruntime: {config: {session.x64quantprecision: 1}}
specials: false
export: {torchscript: [17]}
"""
"""With kernels that saturate on no processor, since that would drown what is planted."""
NET_INPUT = """
module: beside.Net
inputs: {x: "float32[batch, 3, 6, 6]"}
dims: {batch: 1..4}
"""
BODY = say(NET_INPUT, COMMON, "precisions: {fp16: {}, int8: {}}")

Change = Callable[[onnx.ModelProto], None]

CONVERTED = pytest.mark.parametrize("precision", ["fp16", "int8"])


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    """As in a worker: with a thread for each core, small convolutions take a hundred times as long."""
    prepare_process()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """With a store of its own: a planted model has the key of the sound one."""
    return Bench(tmp_path, tmp_path / "store")


def cell_of(bench: Bench, check: str, precision: str, body: str = BODY, python: str = NET) -> Cell:
    (cell,) = (one for one in bench.cells(body, python) if (one.check, one.precision) == (check, precision))
    return cell


def run(bench: Bench, check: str, precision: str, body: str = BODY, python: str = NET) -> Record:
    return bench.run_cell(cell_of(bench, check, precision, body, python), examples=2)


def all_of(bench: Bench, body: str, python: str = NET) -> dict[str, Record]:
    """The records of all cells, by ``check precision``."""
    return {f"{one.check} {one.precision}": bench.run_cell(one, examples=2) for one in bench.cells(body, python)}


WHO = {
    "precision": "the conversion to this precision",
    "runtime": "the runtime",
    "exporter": "the exporter",
}


def assert_blamed(record: Record, error: str, fault: str, stage_of_loss: str) -> None:
    """It failed in the comparison, and both the record and its text say where the accuracy went."""
    assert verdict(record) == ("failed", "compare", error, fault)
    assert record.loss is not None
    assert list(record.loss) == ["export", "conversion", "optimizer"]
    assert greatest(record.loss) == stage_of_loss
    shown = text.failure(record.as_dict())
    assert f"at fault: {WHO[fault]}" in shown
    table = shown.split("loss by stage")[1]
    assert all(f"  {stage} " in table for stage in record.loss)


# ---- planting --------------------------------------------------------------------------------------------


@pytest.fixture
def break_conversion(monkeypatch):
    """``break_conversion(change)``: what ``change`` makes of each model that a converter gives, as its own work."""

    def break_(change: Change) -> None:
        for module, name in ((int8, "quantize"), (fp16, "convert")):
            monkeypatch.setattr(module, name, _changed(getattr(module, name), change))

    return break_


@pytest.fixture
def break_after_conversion(monkeypatch):
    """The same for the model that leaves the conversion, when its rules have been looked at."""

    def break_(change: Change) -> None:
        monkeypatch.setattr(convert, "convert", _changed(convert.convert, change))

    return break_


def _changed(original: Any, change: Change) -> Any:
    def planted(*arguments: Any) -> Any:
        found = original(*arguments)
        change(found[0] if isinstance(found, tuple) else found)
        return found

    return planted


@pytest.fixture
def break_runtime(monkeypatch):
    """``break_runtime(alter)``: what ``alter`` makes of the outputs of onnxruntime as users run it."""

    def break_(alter: Alter, *openers: str) -> None:
        for name in openers or ("open_optimized",):
            monkeypatch.setattr(onnxruntime, name, altered(getattr(onnxruntime, name), alter))

    return break_


def initializer(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(one for one in model.graph.initializer if one.name == name)


def change_initializer(model: onnx.ModelProto, name: str, change: Callable[[Any], Any]) -> None:
    tensor = initializer(model, name)
    before = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(change(before)).astype(before.dtype), name))


def behind(model: onnx.ModelProto, operator: str, *more: Any, **attributes: Any) -> None:
    """Puts a node behind the first output."""
    name = model.graph.output[0].name
    maker = next(node for node in model.graph.node if name in node.output)
    maker.output[list(maker.output).index(name)] = "planted/before"
    names = []
    for index, one in enumerate(more):
        names.append(f"planted/{index}")
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(one, "float32"), names[-1]))
    model.graph.node.append(helper.make_node(operator, ["planted/before", *names], [name], "planted", **attributes))


# ---- int8: what the rules find ------------------------------------------------------------------------------


def zero_point_off_by_one(model):
    change_initializer(model, "/Relu_output_0_zero_point", lambda zero: zero + 1)


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
    pytest.param("int8", lambda model: scale_off_by_two(model), "Conv /first/Conv", "more than half a step",
                 id="scale off by two"),
    pytest.param("int8", one_channel_by_a_twentieth, "Conv /second/Conv", "more than half a step",
                 id="one channel by a twentieth"),
    pytest.param("int8", lambda model: activation_at_an_eighth_of_its_range(model), "/Relu_output_0_QuantizeLinear",
                 "the measured range asks for", id="saturated"),
    pytest.param("fp16", lambda model: weights_in_bfloat16(model), "second.weight", "exported ones rounded",
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


def test_sound_models_pass_all_their_cells(bench):
    records = all_of(bench, BODY)
    assert list(records) == ["export fp32", "accuracy fp32", *(f"{check} {p}" for p in ("fp16", "int8")
                             for check in ("fidelity", "accuracy"))]  # fmt: skip
    assert {verdict(record) for record in records.values()} == {PASSED}
    assert records["fidelity fp16"].fidelity["sqnr"] > records["fidelity int8"].fidelity["sqnr"] > 25


# ---- what fidelity finds ------------------------------------------------------------------------------------


def scale_off_by_two(model):
    change_initializer(model, "first.weight_scale", lambda scales: scales * 2)


def activation_at_an_eighth_of_its_range(model):
    change_initializer(model, "/Relu_output_0_scale", lambda scales: scales / 8)


def one_percent_more(model):
    behind(model, "Mul", 1.01)


def ten_percent_more(model):
    behind(model, "Mul", 1.13)


def one_channel_gone(model):
    behind(model, "Mul", [1, 1, 0, 1, 1])


def moved_by_one_place(model):
    behind(model, "Transpose", perm=[0, 2, 1, 3])


@pytest.mark.parametrize("precision, change", [
    pytest.param("int8", scale_off_by_two, id="weight scale off by two"),
    pytest.param("int8", activation_at_an_eighth_of_its_range, id="saturated"),
    pytest.param("int8", ten_percent_more, id="13 percent at int8"),
    pytest.param("fp16", one_percent_more, id="1 percent at fp16"),
    pytest.param("int8", one_channel_gone, id="one channel at int8"),
    pytest.param("fp16", one_channel_gone, id="one channel at fp16"),
    pytest.param("int8", moved_by_one_place, id="transposed at int8"),
])  # fmt: skip
def test_accuracy_lost_in_the_conversion_is_the_precisions_fault_and_no_runtime_is_accused(
    bench, break_after_conversion, precision, change
):
    break_after_conversion(change)
    record = run(bench, "fidelity", precision)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert record.worst["ratio"] > 1
    assert record.fidelity["sqnr"] < {"fp16": 45, "int8": 20}[precision]
    assert verdict(run(bench, "accuracy", precision)) == PASSED


def test_one_percent_is_within_what_int8_costs(bench, break_conversion):
    break_conversion(one_percent_more)
    assert verdict(run(bench, "fidelity", "int8")) == PASSED


def to_bfloat16(values):
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def weights_in_bfloat16(model):
    for one in model.graph.initializer:
        if one.data_type == TensorProto.FLOAT16:
            change_initializer(model, one.name, to_bfloat16)


TIGHT = say(BODY, "tolerance: {fp16: {sqnr: 58 dB}}")


def test_weights_in_bfloat16_are_found_where_the_case_asks_for_what_fp16_can_do(bench, break_after_conversion):
    assert verdict(run(bench, "fidelity", "fp16", TIGHT)) == PASSED
    break_after_conversion(weights_in_bfloat16)
    fresh = dataclasses.replace(bench, store=bench.store / "planted")
    assert_blamed(run(fresh, "fidelity", "fp16", TIGHT), "LowFidelity", "precision", "conversion")


@pytest.mark.parametrize(
    "factor, expected", [(1.0, PASSED), (0.01, ("failed", "compare", "LowFidelity", "precision"))]
)
def test_ranges_from_data_a_hundredth_of_the_real_size_are_found(bench, factor, expected):
    body = BODY.replace("int8: {}", "int8: {calibration: {data: data.npy}}")
    cell = cell_of(bench, "fidelity", "int8", body)
    data = np.random.default_rng(0).normal(size=(32, 3, 6, 6)) * factor
    np.save(cell.case.folder / "data.npy", data.astype("float32"))
    record = bench.run_cell(cell, examples=2)
    assert verdict(record) == expected
    if factor < 1:
        assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert record.conversion["calibration"] | {"sha": ""} == {
        "source": "data.npy", "samples": 32, "batch": 8, "sha": ""
    }  # fmt: skip


SUM = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x).sum(0)
"""
SUM_INPUT = 'module: beside.Net\ninputs: {x: "float32[n, 6]"}\ndims: {n: 1..60}'


@CONVERTED
def test_a_shape_whose_outputs_are_small_and_all_wrong_is_found(bench, break_after_conversion, precision):
    loose = "tolerance: {fp16: {sqnr: 20 dB, because: planted}}"  # else the default would find it
    body = say(SUM_INPUT, COMMON, f"precisions: {{{precision}: {{}}}}", loose if precision == "fp16" else "")
    assert verdict(run(bench, "fidelity", precision, body, SUM)) == PASSED

    def nothing_for_one_row(model):
        output, name = model.graph.output[0].name, model.graph.input[0].name
        maker = next(node for node in model.graph.node if output in node.output)
        maker.output[0] = "planted/before"
        for what, value in (("one", np.int64([1])), ("first", np.int64([0]))):
            model.graph.initializer.append(numpy_helper.from_array(value, f"planted/{what}"))
        model.graph.node.extend([
            helper.make_node("Shape", [name], ["planted/shape"]),
            helper.make_node("Gather", ["planted/shape", "planted/first"], ["planted/rows"]),
            helper.make_node("Greater", ["planted/rows", "planted/one"], ["planted/more"]),
            helper.make_node("Cast", ["planted/more"], ["planted/factor"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["planted/before", "planted/factor"], [output]),
        ])  # fmt: skip

    break_after_conversion(nothing_for_one_row)
    fresh = dataclasses.replace(bench, store=bench.store / "planted")
    record = run(fresh, "fidelity", precision, body, SUM)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert "SQNR 0.0 dB at n=1, which is more noise than signal; all draws together have" in record.reason
    assert record.draw["dims"] == {"n": 1}


@pytest.mark.parametrize("factors, output", [((1.5, 9.0), 1), ((9.0, 1.5), 0), ((1.0, 1.5), 1)])
@CONVERTED
def test_of_several_failing_outputs_reason_and_record_are_about_the_worst(
    bench, break_conversion, precision, factors, output
):
    def scale_outputs(model):
        for place, factor in enumerate(factors):
            name = model.graph.output[place].name
            maker = next(node for node in model.graph.node if name in node.output)
            maker.output[list(maker.output).index(name)] = f"planted/{place}"
            model.graph.initializer.append(numpy_helper.from_array(np.float32(factor), f"planted/by{place}"))
            model.graph.node.append(helper.make_node("Mul", [f"planted/{place}", f"planted/by{place}"], [name]))

    break_conversion(scale_outputs)
    record = run(bench, "fidelity", precision, python=TWO_OUTPUTS)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert record.reason.startswith(f"output {output}: ")
    assert record.fidelity["output"] == record.worst["output"] == output


def test_a_failing_output_among_sound_ones_is_named(bench, break_conversion):
    break_conversion(lambda model: behind(model, "Mul", 1.5))
    record = run(bench, "fidelity", "int8", python=TWO_OUTPUTS)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert record.reason.startswith("output 0: ")
    assert record.fidelity["output"] == 0


LABELLED = returning("(x.permute(0, 2, 3, 1), self.last(x.permute(0, 2, 3, 1)).argmax(-1))")


@CONVERTED
def test_integers_that_the_conversion_changes_are_counted(bench, break_after_conversion, precision):
    record = run(bench, "fidelity", precision, python=LABELLED)
    assert verdict(record) == PASSED

    def add_one(model):
        name = model.graph.output[1].name
        maker = next(node for node in model.graph.node if name in node.output)
        maker.output[0] = "planted/before"
        model.graph.initializer.append(numpy_helper.from_array(np.int64(1), "planted/one"))
        model.graph.node.append(helper.make_node("Add", ["planted/before", "planted/one"], [name]))

    break_after_conversion(add_one)
    fresh = dataclasses.replace(bench, store=bench.store / "planted")
    record = run(fresh, "fidelity", precision, python=LABELLED)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert record.reason == "output 1: 100.0% of the values differ, allowed are 5%"
    assert record.fidelity == {"output": 1, "changed": pytest.approx(1, abs=0.01)}


WITH_INFINITY = returning("self.last(x.permute(0, 2, 3, 1)).masked_fill(torch.arange(5) == 2, float('-inf'))")


@pytest.mark.parametrize("operator, more, error", [
    pytest.param("Max", [-100.0], "WrongInf", id="clipped"),
    pytest.param("Mul", [[1, 1, -1, 1, 1]], "WrongInf", id="other infinity"),
    pytest.param("Where", None, "WrongNaN", id="NaN for an infinity"),
])  # fmt: skip
@CONVERTED
def test_what_is_not_finite_in_pytorch_has_to_be_the_same_in_the_converted_graph(
    bench, break_after_conversion, precision, operator, more, error
):
    assert verdict(run(bench, "fidelity", precision, python=WITH_INFINITY)) == PASSED

    def replace_the_column(model):
        model.graph.initializer.extend([
            numpy_helper.from_array(np.arange(5) == 2, "planted/column"),
            numpy_helper.from_array(np.float32(np.nan), "planted/value"),
        ])  # fmt: skip
        name = model.graph.output[0].name
        maker = next(node for node in model.graph.node if name in node.output)
        maker.output[0] = "planted/before"
        inputs = ["planted/column", "planted/value", "planted/before"]
        model.graph.node.append(helper.make_node("Where", inputs, [name]))

    break_after_conversion(replace_the_column if more is None else lambda model: behind(model, operator, *more))
    fresh = dataclasses.replace(bench, store=bench.store / "planted")
    record = run(fresh, "fidelity", precision, python=WITH_INFINITY)
    assert verdict(record) == ("failed", "compare", error, "precision")


# ---- fp16: beyond its range -----------------------------------------------------------------------------------

SMALL = """
import numpy as np
import torch


def small(rng):
    yield {"x": rng.normal(size=(8, 4)).astype("float32")}
"""


def fp16_body(forward: str, low: float, high: float, calibration: str = "") -> str:
    values = f"values: {{uniform: {{low: {low}, high: {high}}}}}"
    inputs = f'inputs: {{x: {{type: "float32[batch, 4]", {values}}}}}\ndims: {{batch: 1..4}}'
    return say(f"forward: {forward}", inputs, COMMON, f"precisions: {{fp16: {{{calibration}}}}}")


UNSEEN = "calibration: {data: beside.small, samples: 8}"


@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_values_beyond_fp16_inside_the_model_stop_the_conversion_by_the_name_of_their_node(bench, check):
    record = run(bench, check, "fp16", fp16_body("(x * x).sum(-1).sqrt()", -400, 400))
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert "Mul /Mul reaches 1" in record.reason
    assert "ReduceSum /ReduceSum reaches" in record.reason
    assert "Sqrt" not in record.reason
    assert any("exclude:" in line for line in details(record))
    assert verdict(run(bench, check, "fp16", fp16_body("(x * x).sum(-1).sqrt()", -40, 40))) == PASSED


def test_nodes_beyond_fp16_are_told_in_the_order_of_the_graph(bench, monkeypatch):
    """Whatever the order in which ONNX Runtime measures their values."""
    original = convert.ranges

    class Reversed:
        def __init__(self, measured):
            self.items = lambda: reversed(list(measured.items()))

    body = fp16_body("(x * x).sum(-1) * 2", -400, 400)
    reasons = [run(bench, "fidelity", "fp16", body).reason]
    monkeypatch.setattr(convert, "ranges", lambda *arguments: Reversed(original(*arguments)))
    reasons.append(run(Bench(bench.folder, bench.folder / "anew"), "fidelity", "fp16", body).reason)
    assert reasons[0] == reasons[1]
    places = [reasons[0].index(name) for name in ("Mul /Mul ", "ReduceSum /ReduceSum ", "Mul /Mul_1 ")]
    assert places == sorted(places)


def test_nodes_that_are_kept_in_fp32_may_go_beyond_fp16(bench):
    body = fp16_body("(x * x).sum(-1).sqrt()", -400, 400, "exclude: [Mul, ReduceSum, Sqrt]")
    record = run(bench, "fidelity", "fp16", body)
    assert verdict(record) == PASSED
    assert record.conversion["kept"] == ["/Mul", "/ReduceSum", "/Sqrt"]


def test_a_constant_beyond_fp16_is_named(bench):
    record = run(bench, "fidelity", "fp16", fp16_body("x + 90000.0 - 90000.0", -1, 1, UNSEEN), SMALL)
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert "reaches 90000" in record.reason


def test_values_that_all_vanish_in_fp16_are_told(bench):
    record = run(bench, "fidelity", "fp16", fp16_body("x * 1e-6 * 1e-4 * 10000", -1, 1))
    assert record.status == "failed"
    assert any("/Mul" in line and "become 0" in line for line in record.conversion["underflow"])


def test_an_infinity_that_calibration_did_not_foresee_is_found_where_it_comes_out(bench):
    record = run(bench, "fidelity", "fp16", fp16_body("x * x", -400, 400, UNSEEN), SMALL)
    assert verdict(record) == ("failed", "compare", "WrongInf", "precision")
    assert "where PyTorch's are not" in record.reason
    assert record.worst["got"] == float("inf")
    assert list(record.loss) == ["export", "conversion", "optimizer"]
    assert verdict(run(bench, "fidelity", "fp16", fp16_body("x * x", -40, 40, UNSEEN), SMALL)) == PASSED


@pytest.mark.parametrize("forward, high, error", [
    pytest.param("(x * x).sum(-1).sqrt()", 400, "WrongInf", id="infinity"),
    pytest.param("x.exp() / (1 + x.exp())", 20, "WrongNaN", id="nan"),
    pytest.param("x + 1000.0 - 1000.0", 1, "LowFidelity", id="digits"),
])  # fmt: skip
def test_what_is_lost_between_two_fp16_nodes_is_lost_in_what_the_graph_means(bench, forward, high, error):
    record = run(bench, "fidelity", "fp16", fp16_body(forward, -high, high, UNSEEN), SMALL)
    assert verdict(record) == ("failed", "compare", error, "precision")


def test_what_an_fp16_graph_means_is_what_numpy_computes_in_fp16(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Sqrt", ["b"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    values = np.random.default_rng(0).uniform(1, 400, 1000).astype("float32")
    with onnxruntime.open_literal(tmp_path / "model.onnx", []) as session, np.errstate(over="ignore"):
        (got,) = session.run({"x": values})
        half = values.astype("float16")
        np.testing.assert_array_equal(got, np.sqrt(half * half).astype("float32"))


NOT_FINITE = pytest.mark.parametrize("factors, error", [
    pytest.param([1, 1, np.nan, 1, 1], "WrongNaN", id="some NaN"),
    pytest.param([1, 1, np.inf, 1, 1], "WrongInf", id="some infinite"),
])  # fmt: skip


@NOT_FINITE
@CONVERTED
def test_a_converted_model_that_gives_some_values_that_are_not_finite_is_the_precisions_fault(
    bench, break_conversion, precision, factors, error
):
    break_conversion(lambda model: behind(model, "Mul", factors))
    record = run(bench, "fidelity", precision)
    assert_blamed(record, error, "precision", "conversion")


@CONVERTED
@pytest.mark.parametrize("factor, error", [(np.nan, "WrongNaN"), (np.inf, "WrongInf")])
def test_a_converted_model_that_gives_nothing_finite_is_the_precisions_fault(
    bench, break_conversion, precision, factor, error
):
    break_conversion(lambda model: behind(model, "Mul", factor))
    record = run(bench, "fidelity", precision)
    assert_blamed(record, error, "precision", "conversion")


WIDE = """
import torch


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sum = torch.nn.Linear(64, 4)
        with torch.no_grad():
            self.sum.weight.abs_()

    def forward(self, x):
        return self.sum(x) ** 2


def small(rng):
    yield {"x": rng.normal(size=(8, 64)).astype("float32")}
"""


def test_an_exporter_is_not_at_fault_for_an_infinity_of_fp16(bench):
    body = fp16_body("x", 100, 200, UNSEEN).replace("forward: x", "module: beside.Wide").replace("4]", "64]")
    record = run(bench, "fidelity", "fp16", body, WIDE)
    assert_blamed(record, "WrongInf", "precision", "conversion")


def test_an_input_beyond_fp16_can_be_kept_in_fp32_as_the_message_says(bench):
    body = fp16_body("x * 0.25", -200_000, 200_000)
    record = run(bench, "fidelity", "fp16", body)
    assert verdict(record) == ("failed", "convert", "Overflow", "precision")
    assert any("exclude:" in line for line in details(record))
    assert verdict(run(bench, "fidelity", "fp16", body.replace("fp16: {}", "fp16: {exclude: Mul}"))) == PASSED


def test_a_node_that_is_kept_in_fp32_has_its_constants_in_fp32(bench):
    body = fp16_body("x.round() * 0.1", -8, 8, "exclude: [Round, Mul]")
    record = run(bench, "fidelity", "fp16", body)
    assert record.fidelity["sqnr"] > 120


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


# ---- a wrong runtime ---------------------------------------------------------------------------------------------


def ten_percent(inputs, outputs):
    return [one * np.float32(1.1) for one in outputs]


def two_rows_swapped(inputs, outputs):
    found = [one.copy() for one in outputs]
    if len(found[0]) > 1:
        found[0][[0, 1]] = found[0][[1, 0]]
    return found


def one_element_far_off(inputs, outputs):
    found = [one.copy() for one in outputs]
    found[0].flat[-1] += 3
    return found


def one_nan(inputs, outputs):
    found = [one.copy() for one in outputs]
    found[0].flat[0] = np.nan
    return found


def one_infinity(inputs, outputs):
    found = [one.copy() for one in outputs]
    found[0].flat[0] = np.inf
    return found


@pytest.mark.parametrize("alter, error", [
    pytest.param(ten_percent, "WrongValue", id="10 percent"),
    pytest.param(two_rows_swapped, "WrongValue", id="rows"),
    pytest.param(one_element_far_off, "WrongValue", id="one element"),
    pytest.param(one_nan, "WrongNaN", id="NaN"),
    pytest.param(one_infinity, "WrongInf", id="infinity"),
])  # fmt: skip
@CONVERTED
def test_a_runtime_that_does_not_compute_what_the_graph_means_is_at_fault_and_the_precision_is_not(
    bench, break_runtime, precision, alter, error
):
    break_runtime(alter)
    record = run(bench, "accuracy", precision)
    assert verdict(record) == ("failed", "compare", error, "runtime")
    assert list(record.loss) == ["export", "conversion", "optimizer"]
    assert record.worst["ratio"] > 1
    shown = text.failure(record.as_dict())
    assert "at fault: the runtime" in shown
    assert "loss by stage" in shown
    if error == "WrongValue":
        assert_blamed(record, error, "runtime", "optimizer")
    assert verdict(run(bench, "fidelity", precision)) == PASSED


@pytest.mark.parametrize("alter, error", [
    pytest.param(lambda inputs, outputs: [], "WrongCount", id="no output"),
    pytest.param(lambda inputs, outputs: [outputs[0].astype("float16")], "WrongDtype", id="dtype"),
    pytest.param(lambda inputs, outputs: [outputs[0][..., :1]], "WrongShape", id="shape"),
])  # fmt: skip
@CONVERTED
def test_a_runtime_whose_outputs_have_another_form_is_at_fault(bench, break_runtime, precision, alter, error):
    break_runtime(alter)
    assert verdict(run(bench, "accuracy", precision)) == ("failed", "compare", error, "runtime")


@pytest.mark.parametrize("times, expected", [(10.0, ("failed", "compare", "WrongValue", "runtime")), (0.5, PASSED)])
@CONVERTED
def test_a_runtime_may_add_noise_below_that_of_the_conversion_and_not_ten_times_as_much(
    bench, break_runtime, precision, times, expected
):
    own = 10 ** (-run(bench, "fidelity", precision).fidelity["sqnr"] / 20)

    def noisy(inputs, outputs):
        rng = np.random.default_rng(zlib.crc32(outputs[0].tobytes()))
        size = float(np.sqrt(np.mean(np.square(outputs[0], dtype="float64"))))
        return [outputs[0] + (times * own * size * rng.normal(size=outputs[0].shape)).astype("float32")]

    break_runtime(noisy)
    record = run(bench, "accuracy", precision)
    assert verdict(record) == expected


@CONVERTED
def test_a_runtime_that_is_more_exact_than_the_graph_is_not_accused(bench, break_runtime, monkeypatch, precision):
    exported = []
    original = convert.source
    monkeypatch.setattr(convert, "source", lambda file, *more: exported.append(file) or original(file, *more))
    in_fp32 = []

    def exact(inputs, outputs):
        in_fp32.append(1)
        return onnxruntime.OnnxRuntimeSession(exported[0], [], optimize=True).run(inputs)

    break_runtime(exact)
    record = run(bench, "accuracy", precision)
    assert verdict(record) == PASSED
    assert 0.4 < record.worst["ratio"] < 1
    assert in_fp32


def test_a_runtime_that_does_not_load_a_converted_model_is_at_fault(bench, monkeypatch):
    original = onnxruntime.open_optimized

    def refuse(model, libraries, **options):
        if b"QuantizeLinear" in Path(model).read_bytes():
            raise RuntimeError("planted: no kernel")
        return original(model, libraries, **options)

    monkeypatch.setattr(onnxruntime, "open_optimized", refuse)
    records = all_of(bench, BODY)
    assert verdict(records["accuracy int8"]) == ("failed", "load", "RuntimeError", "runtime")
    assert "planted: no kernel" in records["accuracy int8"].reason
    others = [record for name, record in records.items() if name != "accuracy int8"]
    assert {verdict(record) for record in others} == {PASSED}


# ---- a wrong exporter, and outputs that prove nothing --------------------------------------------------------------


@CONVERTED
def test_a_wrong_exported_model_is_the_exporters_fault_at_every_precision(bench, monkeypatch, precision):
    original = cellrun.export

    def doubled(*arguments, **options):
        exported = original(*arguments, **options)
        for name in ("second.weight", "second.bias"):
            change_initializer(exported.model, name, lambda values: values * 2)
        return dataclasses.replace(exported, data=exported.model.SerializeToString(deterministic=True))

    monkeypatch.setattr(cellrun, "export", doubled)
    record = run(bench, "fidelity", precision)
    assert_blamed(record, "LowFidelity", "exporter", "export")
    assert record.loss["conversion"] > 25
    assert verdict(run(bench, "accuracy", precision)) == PASSED  # the runtime computes what it was given


@pytest.mark.parametrize("constant", ["0.0", "3.5"])
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
@CONVERTED
def test_a_constant_output_is_vacuous_at_every_precision(bench, precision, check, constant):
    python = returning(f"self.last(x.permute(0, 2, 3, 1)) * 0 + {constant}")
    record = run(bench, check, precision, python=python)
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")
    assert record.reason.startswith("output 0: ")
    assert verdict(run(bench, check, precision, say(BODY, "vacuous: it is meant to be"), python)) == PASSED


@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_an_offset_that_drowns_the_noise_is_vacuous(bench, check):
    python = returning("self.last(x.permute(0, 2, 3, 1)) + 1000")
    assert verdict(run(bench, check, "int8", python=python)) == ("failed", "compare", "Vacuous", "case")


# ---- expected failures ------------------------------------------------------------------------------------------


def fails(when: str, stage: str = "compare", error: str = "LowFidelity") -> str:
    return f"fails:\n  - {{when: {{{when}}}, stage: {stage}, error: {error}, because: planted}}"


def at_int8(change: Change) -> Change:
    """Leaves fp16 models as they are."""

    def only(model):
        if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
            change(model)

    return only


def statuses(records: dict[str, Record]) -> dict[str, str]:
    return {name: record.status for name, record in records.items() if record.status != "passed"}


def test_a_declared_loss_is_expected_of_fidelity_and_owed_by_it_alone(bench, break_after_conversion):
    body = say(BODY, fails("precision: int8"))
    assert statuses(all_of(bench, body)) == {"fidelity int8": "xpassed"}
    break_after_conversion(at_int8(scale_off_by_two))
    planted = dataclasses.replace(bench, store=bench.store / "planted")
    assert statuses(all_of(planted, body)) == {"fidelity int8": "xfailed"}


def test_a_failure_of_another_kind_than_the_declared_one_is_a_failure(bench, break_conversion):
    break_conversion(zero_point_off_by_one)
    record = run(bench, "fidelity", "int8", say(BODY.replace("fp16: {}, ", ""), fails("precision: int8")))
    assert verdict(record) == ("failed", "convert", "BrokenRule", "precision")
    assert details(record)[0].startswith("declared otherwise: ")


def test_a_declared_failure_of_the_conversion_is_owed_by_both_checks(bench, break_conversion):
    body = say(BODY.replace("fp16: {}, ", ""), fails("precision: int8", "convert", "BrokenRule"))
    assert statuses(all_of(bench, body)) == {"fidelity int8": "xpassed", "accuracy int8": "xpassed"}
    break_conversion(zero_point_off_by_one)
    planted = dataclasses.replace(bench, store=bench.store / "planted")
    assert statuses(all_of(planted, body)) == {"fidelity int8": "xfailed", "accuracy int8": "xfailed"}


VARIANTS = "int8-entropy: {calibration: {method: entropy}}, int8-minmax: {}"


@pytest.mark.parametrize("named, hit", [
    ("int8", ["int8-entropy", "int8-minmax"]),
    ("int8-entropy", ["int8-entropy"]),
    ("[int8-minmax, fp16]", ["fp16", "int8-minmax"]),
])  # fmt: skip
def test_a_precision_means_its_variants_too(bench, named, hit):
    body = say(BODY.replace("int8: {}", VARIANTS), fails(f"precision: {named}"))
    assert statuses(all_of(bench, body)) == {f"fidelity {one}": "xpassed" for one in hit}


def test_a_loss_declared_of_a_runtime_is_owed_by_accuracy(bench, break_runtime):
    body = say(BODY, fails("precision: int8, runtime: onnxruntime", error="WrongValue"))
    assert statuses(all_of(bench, body)) == {"accuracy int8": "xpassed"}
    break_runtime(lambda inputs, outputs: [one * np.float32(3) for one in outputs])
    found = statuses(all_of(bench, body))
    assert found == {"accuracy fp32": "failed", "accuracy fp16": "failed", "accuracy int8": "xfailed"}


def wrong_at_four(inputs, outputs):
    return [outputs[0] + 1] if len(inputs["x"]) == 4 else outputs


def test_draws_that_are_declared_to_fail_in_fp32_are_left_out_of_converted_cells(bench, break_runtime):
    break_runtime(wrong_at_four, "open_optimized", "open_unoptimized")
    everywhere = {f"accuracy {precision}": "failed" for precision in ("fp32", "fp16", "int8")}
    assert statuses(all_of(bench, BODY)) == everywhere
    declared = say(BODY, fails("at: {batch: 4}", error="WrongValue"))
    assert statuses(all_of(bench, declared)) == {"accuracy fp32": "xfailed"}


def test_draws_that_are_declared_to_fail_at_one_precision_run_at_the_others(bench, break_runtime):
    break_runtime(wrong_at_four)
    body = say(BODY, fails("at: {batch: 4}, precision: int8, runtime: onnxruntime", error="WrongValue"))
    found = statuses(all_of(bench, body))
    assert found == {"accuracy fp32": "failed", "accuracy fp16": "failed", "accuracy int8": "xfailed"}


def test_a_model_that_is_declared_to_be_wrong_in_fp32_is_not_converted(bench):
    cells = bench.cells(say(BODY, fails("runtime: onnxruntime", error="WrongValue")), NET)
    assert {cell.precision for cell in cells} == {"fp32"}


# ---- the record, and the store ----------------------------------------------------------------------------------


def test_the_record_tells_how_the_model_was_converted(bench):
    says = "int8: {exclude: /first/Conv, calibration: {method: entropy, samples: 18, batch: 4}}"
    body = BODY.replace("int8: {}", says)
    records = all_of(bench, body)
    told = records["fidelity int8"].conversion
    assert told["tool"].startswith("onnxruntime 1.")
    assert told["calibration"].keys() == {"source", "samples", "batch", "sha"}
    assert told["calibration"]["source"] == "drawn from the case"
    assert told["calibration"]["samples"] >= 18
    assert told["calibration"]["batch"] == 4
    assert (told["method"], told["quantized"], told["kept"]) == ("entropy", 2, ["/first/Conv"])
    assert records["accuracy int8"].conversion == told
    assert records["accuracy fp32"].conversion is None
    shas = [records[f"{check} int8"].graph["sha"] for check in ("fidelity", "accuracy")]
    assert shas[0] == shas[1] != records["accuracy fp32"].graph["sha"]


@pytest.fixture
def conversions(monkeypatch):
    """The conversions that were made, not taken from the store."""
    made: list[str] = []
    original = convert.convert

    def counted(given, feeds):
        made.append(given.precision)
        return original(given, feeds)

    monkeypatch.setattr(convert, "convert", counted)
    return made


def test_a_model_is_converted_once_for_all_its_cells_and_runs(bench, conversions):
    first = all_of(bench, BODY)
    assert sorted(conversions) == ["fp16", "int8"]
    second = all_of(bench, BODY)  # another folder: nothing of it is in the memory of this process
    assert len(conversions) == 2
    for name, record in first.items():
        assert second[name].graph == record.graph
        assert second[name].conversion == record.conversion
        assert second[name].fidelity == record.fidelity


ORDERED = np.random.default_rng(0).normal(size=(32, 3, 6, 6)).astype("float32") * np.linspace(
    0.2, 3, 32, dtype="float32"
).reshape(-1, 1, 1, 1)


@pytest.mark.parametrize("one, other", [
    pytest.param("samples: 16, batch: 1", "samples: 16, batch: 4", id="batch"),
    pytest.param("samples: 8", "samples: 64", id="samples"),
    pytest.param("method: minmax", "method: entropy", id="method"),
    pytest.param("method: percentile, percentile: 99", "method: percentile, percentile: 90", id="percentile"),
    pytest.param("data: data.npy, method: percentile", "data: backwards.npy, method: percentile", id="order"),
    pytest.param("data: data.npy, method: percentile, batch: 8", "data: data.npy, method: percentile, batch: 2",
                 id="batch of a file"),
])  # fmt: skip
def test_calibrating_in_another_way_makes_another_model(bench, conversions, one, other):
    records = []
    for says in (one, other, one):
        cell = cell_of(bench, "fidelity", "int8", BODY.replace("int8: {}", f"int8: {{calibration: {{{says}}}}}"))
        np.save(cell.case.folder / "data.npy", ORDERED)
        np.save(cell.case.folder / "backwards.npy", ORDERED[::-1])
        records.append(bench.run_cell(cell, examples=0))
    first, second, again = records
    assert len(conversions) == 2
    assert first.graph["sha"] != second.graph["sha"]
    assert first.graph == again.graph
    assert first.conversion != second.conversion
    assert first.conversion == again.conversion


def test_a_damaged_converted_model_is_made_again(bench, conversions):
    first = run(bench, "fidelity", "int8")
    for file in bench.store.glob("*/model.onnx"):
        if b"QuantizeLinear" in file.read_bytes():
            file.write_bytes(file.read_bytes()[:-7])
    second = run(bench, "fidelity", "int8")
    assert len(conversions) == 2
    assert second.graph == first.graph
    assert verdict(second) == PASSED
