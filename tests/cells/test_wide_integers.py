"""Whole numbers as large as their type holds, in files: which runtimes compute them in fewer bits."""

import numpy as np
import pytest
from onnx import save

from conformance.case.draw.draw import Draw, Maker
from conformance.case.plan.catalogue import plan
from conformance.results.records.words import HUGE
from conformance.runtimes.openvino import no_witness
from tests.kit.cases import PASSED, load_case, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime

FACTOR = {"k": np.int64(1000003)}
PRODUCT = "net (int64[n] x) => (int64[n] y) { y = Mul (x, k) }"


def in_32_bits(inputs, outputs):
    return [out.astype(np.int32).astype(np.int64) for out in outputs]


def run(bench, tmp_path, text, *, runtime="onnxruntime", precision="fp32", check="accuracy", **constants):
    save(model_of(text, **constants), tmp_path / "net.onnx")
    case = load_case(tmp_path, "onnx: net.onnx\nruntimes: [onnxruntime, openvino]\nprecisions: {fp16: {}}")
    (cell,) = (
        one for one in plan(case)
        if (one.check, one.precision) == (check, precision) and one.runtime in (None, runtime)
    )  # fmt: skip
    return bench.run_cell(cell)


def test_a_runtime_that_computes_products_of_64_bits_in_32_is_found(bench, tmp_path):
    assert verdict(run(bench, tmp_path, PRODUCT, **FACTOR)) == PASSED
    with wrong_runtime(in_32_bits):
        record = run(bench, tmp_path, PRODUCT, **FACTOR)
    assert record.status == "failed" and record.draw["regime"] == HUGE


REST = "net (int32[n] x) => (int32[n] y) { y = Mod (x, k) }"
QUOTIENT = "net (int64[n] x, int64[n] by) => (int64[n] y) { y = Mod (x, by) }"


def by_floats(inputs, outputs):
    x = inputs["x"].astype(np.float32)
    return [(x - np.floor(x / np.float32(13)) * np.float32(13)).astype(np.int32)]


def test_a_runtime_that_divides_whole_numbers_as_floats_is_found(bench, tmp_path):
    assert verdict(run(bench, tmp_path, REST, k=np.int32(13))) == PASSED
    with wrong_runtime(by_floats):
        record = run(bench, tmp_path, REST, k=np.int32(13))
    assert record.status == "failed" and record.draw["regime"] == HUGE


def test_openvino_has_a_verdict_on_a_division_by_inputs_without_a_zero(tmp_path):
    pytest.importorskip("openvino")
    save(model_of(QUOTIENT), tmp_path / "net.onnx")
    for by, open_to in ((3, False), (0, True)):
        said = no_witness(tmp_path / "net.onnx", {"x": np.int64([7, 5]), "by": np.int64([2, by])})
        assert ("divided by zero" in str(said)) == open_to


def test_what_openvino_computes_in_32_bits_has_no_verdict_be_it_an_input_or_a_result(bench, tmp_path):
    pytest.importorskip("openvino")
    record = run(bench, tmp_path, PRODUCT, runtime="openvino", **FACTOR)
    assert record.status == "skipped" and "it computes int64 in int32" in str(record.reason)
    for x, beyond in ((3000, True), (3, False), (2**33, True)):
        said = no_witness(tmp_path / "net.onnx", {"x": np.int64([x])})
        assert bool(said) == beyond
    largest = PRODUCT.replace("Mul (x, k)", "Max (x, x)")
    assert verdict(run(bench, tmp_path, largest, runtime="openvino", **FACTOR)) == PASSED


def test_a_file_without_floats_is_not_converted(bench, tmp_path):
    for runtime in ("onnxruntime", "openvino"):
        record = run(bench, tmp_path, PRODUCT, runtime=runtime, precision="fp16", **FACTOR)
        assert record.status == "skipped" and "there is nothing to convert" in str(record.reason)


@pytest.mark.parametrize("text, wide", [
    (PRODUCT, True),
    ("net (int64[n] x) => (float[n] y) { m = Sub (k, x) y = Cast <to = 1> (m) }", True),
    ("net (int64[n] x) => (int64[m] y) { s = Mul (x, k) y = Reshape (k, s) }", False),
    ("net (int64[n] x) => (float[n] y) { m = Add (x, k) y = Gather (t, m) }", False),
    ("net (int64[n] x) => (float[n] y) { m = Mod (x, four) y = Gather (t, m) }", True),
    ("net (int64[n] x) => (int64[n] y) { y = Div (x, k) }", True),
    ("net (int64[n] x) => (int64[n] y) { y = CumSum (x, zero) }", True),
    ("net (int64[n] x) => (int64[n] y) { m = Add (x, k) f = Cast <to = 7> (m) y = Tile (k, f) }", False),
    ("net (int8[n] x) => (int8[n] y) { y = Add (x, x) }", False),
    ("net (int32[n] x) => (int32[n] y) { m = Neg (x) y = Max (m, x) }", True),
])  # fmt: skip
def test_sizes_axes_and_indices_stay_small(tmp_path, text, wide):
    more = {"four": np.int64(4), "zero": np.int64(0)}
    save(model_of(text, **FACTOR, t=np.zeros(4, np.float32), **more), tmp_path / "net.onnx")
    maker = Maker(load_case(tmp_path, "onnx: net.onnx"), lambda name: None)
    arrays = [maker(Draw({"n": 4}, regime, 0))["x"] for regime in (HUGE, "plain")]
    assert maker.has_huge() == wide and (np.abs(arrays[0].astype(int)).max() > 10**6) == wide
    assert np.abs(arrays[1].astype(int)).max() < 1000


@pytest.mark.parametrize("operator, most", [("Max", 2**31 - 1), ("Mul", 2**15 - 1)])
def test_32_bits_have_room_for_what_is_computed_of_them(tmp_path, operator, most):
    save(model_of(f"net (int32[n] x) => (int32[n] y) {{ m = Neg (x) y = {operator} (m, x) }}"), tmp_path / "net.onnx")
    maker = Maker(load_case(tmp_path, "onnx: net.onnx"), lambda name: None)
    largest = np.abs(maker(Draw({"n": 100}, HUGE, 0))["x"].astype(np.int64)).max()
    assert most // 2 < largest <= most
