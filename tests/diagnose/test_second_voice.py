"""Of a file nobody is right, or wrong, by the word of one alone: somebody else has to give the same values."""

import numpy as np
import onnx
import pytest

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.models import conversion
from conformance.runtimes import registry
from conformance.runtimes.onnxruntime import OnnxRuntimeSession
from conformance.runtimes.registry import LITERAL
from tests.kit.cases import PASSED, load_case, say, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

pytestmark = pytest.mark.skipif(registry.absence("openvino") is not None, reason=f"{registry.absence('openvino')}")

IN_FLOAT64 = "(double[n] x) => (double[n] y) <int64 axis = {0}> { y = CumSum(x, axis) }"
OF_OLD_RULES = """(float[1,1,3,3] x, float[1,2,2,2] g) => (float[1,1,2,2] y)
    { y = GridSample <mode: string = "bilinear"> (x, g) }"""


def accuracy(bench, folder, graph, opset):
    """The record of ONNX Runtime on a file with that graph."""
    onnx.save(model_of(f"g {graph}", opset), folder / "net.onnx")
    dims = "dims: {n: 2..5}" if "[n]" in graph else ""
    case = load_case(
        folder, say("onnx: net.onnx", *([dims] if dims else []), "runtimes: onnxruntime", "specials: false")
    )
    return bench.run_cell(next(cell for cell in plan(case) if cell.check == "accuracy"), examples=2)


@pytest.fixture
def wrong_kernels(monkeypatch):
    """Has the last value that ONNX Runtime computes be off, with its optimizer and without."""
    run = OnnxRuntimeSession.run

    def off(self, inputs):
        first, *others = run(self, inputs)
        first = np.array(first)
        first.reshape(-1)[-1:] += 1
        return [first, *others]

    monkeypatch.setattr(OnnxRuntimeSession, "run", off)


@pytest.mark.parametrize("graph, opset", [(IN_FLOAT64, 14), (OF_OLD_RULES, 16)])
def test_a_sound_runtime_passes(bench, tmp_path, graph, opset):
    record = accuracy(bench, tmp_path, graph, opset)
    assert record.status == "passed" and record.examples, record.reason


def test_a_wrong_kernel_in_float64_is_found_by_who_computes_it_in_float32(bench, tmp_path, wrong_kernels):
    record = accuracy(bench, tmp_path, IN_FLOAT64, 14)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime"), record.reason


def test_a_runtime_that_is_compared_with_itself_is_not_right_by_that(bench, tmp_path, wrong_kernels):
    """ONNX's evaluator has other rules for GridSample of opset 16, so that ONNX Runtime says what is right."""
    record = accuracy(bench, tmp_path, OF_OLD_RULES, 16)
    assert record.status == "skipped" and "ONNX Runtime is compared with itself here" in record.reason
    assert "OpenVINO gives other values" in record.reason


SOFTPLUS = "net (float[n, 4] x) => (float[n, 4] y) { y = Softplus (x) }"


def fp16_cells(folder):
    onnx.save(model_of(SOFTPLUS, 17), folder / "net.onnx")
    body = "net:\n  about: a file\n  onnx: net.onnx\n  precisions: {fp16: {}}\n"
    (folder / "net.yaml").write_text(body, encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return {(cell.check, cell.precision): cell for cell in plan(case)}


@pytest.mark.parametrize("is_wrong", [True, False])
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_a_precision_has_no_verdict_where_nobody_seconds_what_the_file_means(tmp_path, bench, check, is_wrong):
    """ONNX Runtime computes what the fp16 model means, and here something else than ONNX's evaluator in fp32 too."""
    cell = fp16_cells(tmp_path)[check, "fp16"]
    if is_wrong:  # as all of its kernels are
        with wrong_runtime(
            lambda inputs, outputs: [one * one.dtype.type(2) for one in outputs], *ANY_OPTIMIZER, LITERAL
        ):
            record = bench.run_cell(cell, examples=2)
        assert record.status == "skipped", record.reason
        assert check == "accuracy" or "for the file itself" in str(record.reason)
    else:
        assert verdict(bench.run_cell(cell, examples=2)) == PASSED


@pytest.mark.own_store
def test_a_precision_is_skipped_where_onnx_runtime_does_not_support_the_file(tmp_path, bench, monkeypatch):
    """As on a host that lacks the locale of texts, which says nothing against the file."""

    def refuse(*_):
        raise RuntimeError(
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Softplus(1)"
        )

    cell = fp16_cells(tmp_path)["fidelity", "fp16"]
    monkeypatch.setattr(conversion, "opener", lambda runtime: refuse)
    record = bench.run_cell(cell, examples=2)
    assert record.status == "skipped" and "ONNX Runtime does not take the model" in record.reason


def sine(bench, folder):
    onnx.save(model_of("net (float[n, 4] x) => (float[n, 4] y) { y = Sin (x) }"), folder / "net.onnx")
    lines = ["onnx: net.onnx", "dims: {n: 1..4}", "runtimes: [onnxruntime, openvino]", "specials: false"]
    cells = [cell for cell in plan(load_case(folder, say(*lines))) if cell.check == "accuracy"]
    return {cell.runtime: bench.run_cell(cell, examples=2) for cell in cells}


def shorter(inputs, outputs):
    return [outputs[0][:, :-1]]


def off(inputs, outputs):
    return [outputs[0] + np.float32(0.1)]


def test_a_shape_is_seconded_by_who_gives_it_though_with_other_values(bench, tmp_path):
    with wrong_runtime(shorter, *ANY_OPTIMIZER), wrong_runtime(off, "openvino"):
        found = sine(bench, tmp_path)
    assert verdict(found["onnxruntime"]) == ("failed", "compare", "WrongShape", "runtime")
    assert found["openvino"].status == "skipped" and "ONNX Runtime" not in found["openvino"].reason.split(",")[0]


def test_two_that_agree_leave_the_evaluator_alone(bench, tmp_path):
    with wrong_runtime(off, *ANY_OPTIMIZER, "openvino"):
        found = sine(bench, tmp_path)
    assert {record.status for record in found.values()} == {"skipped"}
    said = found["onnxruntime"].reason
    assert "OpenVINO those of ONNX Runtime: ONNX's evaluator is alone with its own" in said, said


def test_two_that_part_do_not(bench, tmp_path):
    with wrong_runtime(lambda _, outputs: [outputs[0] * 3], *ANY_OPTIMIZER), wrong_runtime(off, "openvino"):
        found = sine(bench, tmp_path)
    assert {record.status for record in found.values()} == {"skipped"}
    assert "alone" not in found["onnxruntime"].reason and "not those of ONNX's" in found["onnxruntime"].reason


def test_of_sound_runtimes_nobody_is_accused(bench, tmp_path):
    assert [verdict(record) for record in sine(bench, tmp_path).values()] == [PASSED, PASSED]
