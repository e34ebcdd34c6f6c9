"""Values beyond what fp16 can hold: told where they arise, or where they come out."""

import numpy as np
import onnx
import pytest

from conformance.runtimes import onnxruntime
from tests.kit.cases import say, verdict
from tests.kit.models import model_of
from tests.models.planted_precision.support import COMMON, CONVERTED, assert_blamed, behind, run

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


@pytest.mark.parametrize("forward, high, error", [
    pytest.param("(x * x).sum(-1).sqrt()", 400, "WrongInf", id="infinity"),
    pytest.param("x.exp() / (1 + x.exp())", 20, "WrongNaN", id="nan"),
    pytest.param("x + 1000.0 - 1000.0", 1, "LowFidelity", id="digits"),
])  # fmt: skip
def test_what_is_lost_between_two_fp16_nodes_is_lost_in_what_the_graph_means(bench, forward, high, error):
    record = run(bench, "fidelity", "fp16", fp16_body(forward, -high, high, UNSEEN), SMALL)
    assert verdict(record) == ("failed", "compare", error, "precision")


def test_what_an_fp16_graph_means_is_what_numpy_computes_in_fp16(tmp_path):
    body = "a = Cast <to = 10> (x) b = Mul (a, a) c = Sqrt (b) y = Cast <to = 1> (c)"
    onnx.save(model_of(f"g (float[n] x) => (float[n] y) {{ {body} }}"), tmp_path / "model.onnx")
    values = np.random.default_rng(0).uniform(1, 400, 1000).astype("float32")
    with onnxruntime.open_literal(tmp_path / "model.onnx", []) as session, np.errstate(over="ignore"):
        (got,) = session.run({"x": values})
        half = values.astype("float16")
        np.testing.assert_array_equal(got, np.sqrt(half * half).astype("float32"))


@CONVERTED
@pytest.mark.parametrize("value, error", [(np.nan, "WrongNaN"), (np.inf, "WrongInf")])
def test_a_converted_model_that_gives_values_that_are_not_finite_is_the_precisions_fault(
    bench, break_conversion, precision, value, error
):
    break_conversion(lambda model: behind(model, "Mul", [1, 1, value, 1, 1]))
    assert_blamed(run(bench, "fidelity", precision), error, "precision", "conversion")
