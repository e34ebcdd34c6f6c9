"""What the conversion costs in accuracy: fidelity finds it, and accuses the precision alone."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.kit.cases import PASSED, say, verdict
from tests.kit.modules import net_of
from tests.models.planted_precision.support import (
    BODY,
    COMMON,
    CONVERTED,
    all_of,
    assert_blamed,
    behind,
    cell_of,
    fresh,
    redirect,
    returning,
    run,
    scale_off_by_two,
)


def test_sound_models_pass_all_their_cells(bench):
    records = all_of(bench, BODY)
    assert list(records) == ["export fp32", "accuracy fp32", *(f"{check} {p}" for p in ("fp16", "int8")
                             for check in ("fidelity", "accuracy"))]  # fmt: skip
    assert {verdict(record) for record in records.values()} == {PASSED}
    assert records["fidelity fp16"].fidelity["sqnr"] > records["fidelity int8"].fidelity["sqnr"] > 25


def test_what_the_kernels_lose_by_which_a_cost_is_measured_is_laid_to_no_exporter(bench, break_runtime):
    """They are ONNX Runtime's, with fp32 as with fp16; the evaluator shows that the exported model is right."""
    break_runtime(
        lambda inputs, outputs: [array[..., ::-1].copy() for array in outputs], "onnxruntime", "onnxruntime-literal"
    )
    record = run(bench, "fidelity", "fp16")
    assert verdict(record) == ("failed", "compare", "LowFidelity", "runtime")
    assert record.conclusion == "meaning" and record.loss["export"] < 45


@pytest.mark.parametrize("precision, change", [
    pytest.param("int8", scale_off_by_two, id="weight scale off by two"),
    pytest.param("fp16", lambda model: behind(model, "Mul", 1.01), id="1 percent at fp16"),
    pytest.param("fp16", lambda model: behind(model, "Mul", [1, 1, 0, 1, 1]), id="one channel at fp16"),
    pytest.param("int8", lambda model: behind(model, "Transpose", perm=[0, 2, 1, 3]), id="transposed at int8"),
])  # fmt: skip
def test_accuracy_lost_in_the_conversion_is_the_precisions_fault_and_no_runtime_is_accused(
    bench, break_conversion, precision, change
):
    break_conversion(change, checked=True)
    record = run(bench, "fidelity", precision)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert record.worst["ratio"] > 1 and record.fidelity["sqnr"] < {"fp16": 45, "int8": 20}[precision]
    assert verdict(run(bench, "accuracy", precision)) == PASSED


def test_ranges_from_data_a_hundredth_of_the_real_size_are_found(bench):
    cell = cell_of(bench, "fidelity", "int8", BODY.replace("int8: {}", "int8: {calibration: {data: data.npy}}"))
    data = np.random.default_rng(0).normal(size=(32, 3, 6, 6)) * 0.01
    np.save(cell.case.folder / "data.npy", data.astype("float32"))
    record = bench.run_cell(cell, examples=2)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert record.conversion["calibration"]["source"] == "data.npy"


SUM = net_of("self.layer(x).sum(0)", layer="Linear(6, 6)")
SUM_INPUT = 'module: beside.Net\ninputs: {x: "float32[n, 6]"}\ndims: {n: 1..60}'


@CONVERTED
def test_a_shape_whose_outputs_are_small_and_all_wrong_is_found(bench, break_conversion, precision):
    loose = "tolerance: {fp16: {sqnr: 20 dB, because: planted}}"  # else the default would find it
    body = say(SUM_INPUT, COMMON, f"precisions: {{{precision}: {{}}}}", loose if precision == "fp16" else "")
    assert verdict(run(bench, "fidelity", precision, body, SUM)) == PASSED

    def nothing_for_one_row(model):
        output, name, before = model.graph.output[0].name, model.graph.input[0].name, redirect(model)
        for what, value in (("one", np.int64([1])), ("first", np.int64([0]))):
            model.graph.initializer.append(numpy_helper.from_array(value, f"planted/{what}"))
        model.graph.node.extend([
            helper.make_node("Shape", [name], ["planted/shape"]),
            helper.make_node("Gather", ["planted/shape", "planted/first"], ["planted/rows"]),
            helper.make_node("Greater", ["planted/rows", "planted/one"], ["planted/more"]),
            helper.make_node("Cast", ["planted/more"], ["planted/factor"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [before, "planted/factor"], [output]),
        ])  # fmt: skip

    break_conversion(nothing_for_one_row, checked=True)
    record = run(fresh(bench), "fidelity", precision, body, SUM)
    assert_blamed(record, "LowFidelity", "precision", "conversion")
    assert "SQNR 0.0 dB at n=1, which is more noise than signal; all draws together have" in record.reason
    assert record.draw["dims"] == {"n": 1}


WITH_INFINITY = returning("self.last(x.permute(0, 2, 3, 1)).masked_fill(torch.arange(5) == 2, float('-inf'))")


@pytest.mark.parametrize("precision, operator, other, error", [
    pytest.param("fp16", "Max", -100.0, "WrongInf", id="clipped"),
    pytest.param("int8", "Mul", [1, 1, -1, 1, 1], "WrongInf", id="other infinity"),
    pytest.param("fp16", "Mul", [1, 1, 0, 1, 1], "WrongNaN", id="NaN for an infinity"),
])  # fmt: skip
def test_what_is_not_finite_in_pytorch_has_to_be_the_same_in_the_converted_graph(
    bench, break_conversion, precision, operator, other, error
):
    assert verdict(run(bench, "fidelity", precision, python=WITH_INFINITY)) == PASSED

    break_conversion(lambda model: behind(model, operator, other), checked=True)
    record = run(fresh(bench), "fidelity", precision, python=WITH_INFINITY)
    assert verdict(record) == ("failed", "compare", error, "precision")
