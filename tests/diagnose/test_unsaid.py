"""ONNX does not say what a MaxPool gives of a window with NaN: one word for it, wherever the NaN stands."""

import numpy as np
import onnx
import pytest

from conformance.diagnose.nodes.unsaid import unsaid
from conformance.results.records.finding_block import describe
from conformance.results.records.findings import findings
from tests.kit.cases import case_of
from tests.kit.models import model_of

POOL = "g (float[1,1,2,4] x) => (float[1,1,1,2] y) {{ p = MaxPool <kernel_shape=[2,2], strides=[2,2]> (x) {} }}"
CASE = case_of("F.max_pool2d(x.exp(), 2)", dims="", x="[2, 3, 4, 6]")


def explained(folder, text, x, got, wanted):
    onnx.save(model_of(text, 17), folder / "net.onnx")

    def right(outputs):
        return all(np.array_equal(*both, equal_nan=True) for both in zip(outputs, wanted, strict=True))

    return unsaid(folder / "net.onnx", {"x": x}, got, wanted, right)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("other", [2.0, 3.0, np.inf])
def test_a_nan_that_is_lost_or_kept_in_its_window_explains_a_value_that_is_wrong_there(tmp_path, place, other):
    x, got = np.float32([[[[1, 2, 5, 6], [3, 0, 7, 4]]]]), np.float32([[[[other, 7]]]])
    x[0, 0, place // 2, place % 2] = np.nan
    wanted = [np.float32([[[[np.nan, 7]]]])]
    found = explained(tmp_path, POOL.format("y = Identity (p)"), x, [got], wanted)
    assert found is not None and (found.operator, found.how) == ("MaxPool", "unsaid")
    got[..., 1] = 6
    assert explained(tmp_path, POOL.format("y = Identity (p)"), x, [got], wanted) is None


def test_a_model_that_is_wrong_with_nan_kept_is_not_explained(tmp_path):
    x = np.float32([[[[np.nan, 2, 5, 6], [3, 0, 7, 4]]]])
    got, wanted = [np.float32([[[[-3, -7]]]])], [np.float32([[[[np.nan, 7]]]])]
    assert explained(tmp_path, POOL.format("y = Neg (p)"), x, got, wanted) is None


def test_every_runtime_and_exporter_has_one_finding(bench):
    cells = [
        cell for cell in bench.cells(CASE)
        if cell.check == "specials" and cell.exporter == "torchscript" and cell.precision == "fp32"
    ]  # fmt: skip
    records = [bench.run_cell(cell, examples=4) for cell in cells]
    assert {(one.status, one.error, one.fault, one.conclusion) for one in records} == {
        ("failed", "WrongNaN", None, "unsaid")
    }
    (found,) = findings(records)
    block = describe(found)
    assert "nobody is to blame" in block.who and "MaxPool: ONNX does not say" in block.what
