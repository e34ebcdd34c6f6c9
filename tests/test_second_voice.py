"""Of a file nobody is right, or wrong, by the word of one alone: somebody else has to give the same values."""

import numpy as np
import onnx
import pytest

from conformance.plan.catalogue import plan
from conformance.runtimes import registry
from conformance.runtimes.onnxruntime import OnnxRuntimeSession
from tests.kit.cases import load_case, say, verdict
from tests.kit.models import model_of

pytestmark = pytest.mark.skipif(registry.absence("openvino") is not None, reason=f"{registry.absence('openvino')}")

IN_FLOAT64 = "(double[n] x) => (double[n] y) <int64 axis = {0}> { y = CumSum(x, axis) }"
BY_HALVES = "(float[1,1,2,2] x) => (float[1,1,3,3] y) <float[4] s = {1, 1, 1.5, 1.5}> { y = Upsample(x, s) }"


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


@pytest.mark.parametrize("graph, opset", [(IN_FLOAT64, 14), (BY_HALVES, 9)])
def test_a_sound_runtime_passes(bench, tmp_path, graph, opset):
    record = accuracy(bench, tmp_path, graph, opset)
    assert record.status == "passed" and record.examples, record.reason


def test_a_wrong_kernel_in_float64_is_found_by_who_computes_it_in_float32(bench, tmp_path, wrong_kernels):
    record = accuracy(bench, tmp_path, IN_FLOAT64, 14)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime"), record.reason


def test_a_runtime_that_is_compared_with_itself_is_not_right_by_that(bench, tmp_path, wrong_kernels):
    """ONNX's evaluator has no Upsample by halves, so that ONNX Runtime says what is right."""
    record = accuracy(bench, tmp_path, BY_HALVES, 9)
    assert record.status == "skipped" and "ONNX Runtime is compared with itself here" in record.reason
    assert "OpenVINO gives other values" in record.reason
