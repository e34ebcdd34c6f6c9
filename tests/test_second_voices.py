"""Of a file, somebody besides the two that part has to show who is right, at every precision."""

import onnx
import pytest

from conformance.case.case_file import load
from conformance.plan.catalogue import plan
from conformance.verdict.loss import LITERAL
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

NET = "net (float[n, 4] x) => (float[n, 4] y) { y = Softplus (x) }"


def cells(folder):
    onnx.save(model_of(NET, 17), folder / "net.onnx")
    body = "net:\n  about: a file\n  onnx: net.onnx\n  precisions: {fp16: {}}\n"
    (folder / "net.yaml").write_text(body, encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return {(cell.check, cell.precision): cell for cell in plan(case)}


@pytest.mark.parametrize("is_wrong", [True, False])
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_a_precision_has_no_verdict_where_nobody_seconds_what_the_file_means(tmp_path, bench, check, is_wrong):
    """ONNX Runtime computes what the fp16 model means, and here something else than ONNX's evaluator in fp32 too."""
    cell = cells(tmp_path)[check, "fp16"]
    if is_wrong:  # as all of its kernels are
        with wrong_runtime(
            lambda inputs, outputs: [one * one.dtype.type(2) for one in outputs], *ANY_OPTIMIZER, LITERAL
        ):
            record = bench.run_cell(cell, examples=2)
        assert record.status == "skipped", record.reason
        assert check == "accuracy" or "for the file itself" in str(record.reason)
    else:
        assert verdict(bench.run_cell(cell, examples=2)) == PASSED
