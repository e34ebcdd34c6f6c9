"""Files of 16 bits that overflow in their own arithmetic on ordinary values."""

import numpy as np
import pytest
from onnx import save

from conformance.case.plan.catalogue import plan
from tests.kit.cases import PASSED, load_case, verdict
from tests.kit.models import model_of

PRODUCT = "net (float16[n, 8] x) => (float16[n, 8] y) { y = MatMul (x, w) }"
MASKED = "net (float16[n, 8] x) => (float16[n, 8] y) { m = Add (x, w) y = Softmax (m) }"
INSIDE = "net (float[n, 8] x) => (float[n, 8] y) { h = Cast <to = 10> (x) m = MatMul (h, w) y = Cast <to = 1> (m) }"
WEIGHTS = np.random.default_rng(0).standard_normal((8, 8))


def export_of(bench, folder, text, weights):
    save(model_of(text, w=weights.astype(np.float16)), folder / "net.onnx")
    (cell,) = (one for one in plan(load_case(folder, "onnx: net.onnx\nspecials: false")) if one.check == "export")
    return bench.run_cell(cell)


@pytest.mark.parametrize("text, node", [(PRODUCT, "MatMul 'y'"), (INSIDE, "MatMul 'm'")])
def test_what_overflows_is_counted_and_the_node_named(bench, tmp_path, text, node):
    record = export_of(bench, tmp_path, text, WEIGHTS * 2e4)
    assert verdict(record) == ("failed", "check", "Overflow", "case")
    assert "of 8 draws of ordinary values outputs are NaN or infinite" in str(record.reason)
    assert f"{node} computes" in str(record.reason)
    assert verdict(export_of(bench, tmp_path, text, WEIGHTS)) == PASSED


def test_single_values_that_overflow_are_a_warning(bench, tmp_path):
    record = export_of(bench, tmp_path, PRODUCT, WEIGHTS * 8e3)
    assert verdict(record) == PASSED
    assert [one["error"] for one in record.warnings] == ["Overflow"]


def test_the_lowest_number_of_a_mask_overflows_and_loses_nothing(bench, tmp_path):
    mask = np.where(np.eye(8) == 1, 0.0, -65504.0)[:1]
    assert verdict(export_of(bench, tmp_path, MASKED, mask)) == PASSED


SQUARED = """net (float16[n, 8] x) => (float16[n, 8] y)
    { m = MatMul (x, w) q = Mul (m, m) s = ReduceMean <axes = [-1]> (q) r = Sqrt (s) y = Div (m, r) }"""
MIXED = """net (float[n, 8] x) => (float[n, 8] y) {
    h = Cast <to = 10> (x) m = MatMul (h, w) f = Cast <to = 1> (m) q = Mul (f, f) y = Sub (q, q) }"""


def test_an_infinity_that_is_divided_by_leaves_zeros_and_is_named(bench, tmp_path):
    record = export_of(bench, tmp_path, SQUARED, WEIGHTS * 1e3)
    assert verdict(record) == ("failed", "check", "Overflow", "case")
    assert "off by more than half of the largest" in str(record.reason) and "Mul 'q' computes" in str(record.reason)
    assert verdict(export_of(bench, tmp_path, SQUARED, WEIGHTS)) == PASSED


def test_what_a_file_computes_in_32_bits_may_be_larger(bench, tmp_path):
    assert verdict(export_of(bench, tmp_path, MIXED, WEIGHTS * 1e3)) == PASSED
