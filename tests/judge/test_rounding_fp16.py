"""What other roundings in fp16 excuse of a runtime: a step here and there, and no defect."""

import contextlib

import numpy as np
import pytest
from onnx import parser, save

from conformance.judge import verify_converted
from conformance.runtimes.otherwise import PHASE, open_otherwise
from tests.kit.cases import verdict
from tests.kit.modules import net_of
from tests.kit.runtimes import replaced_runtime, wrong_runtime

WRONG = ("failed", "compare", "WrongValue", "runtime")
ROPE = """
module: beside.Net
inputs:
  x: float32[n, t, 16]
  pos: {type: "int64[n, t]", values: {integers: {low: 0, high: 60}}}
dims: {n: 1..4, t: 1..16}
precisions: {fp16: {}}
export: {torchscript: [17]}
examples: {values: 12}
"""
PYTHON = net_of(
    "x * angle.cos() + turned * angle.sin()", "angle = pos[..., None].float() * self.inverse",
    "angle = torch.cat([angle, angle], -1)", "turned = torch.cat([-x[..., 8:], x[..., :8]], -1)", takes="x, pos",
    inverse="Buffer(1.0 / (10000.0 ** (torch.arange(0, 16, 2).float() / 16)))",
)  # fmt: skip


def run(bench):
    """The record of ONNX Runtime's cell at fp16."""
    return bench.run(ROPE, PYTHON, precision="fp16", examples=20)


@contextlib.contextmanager
def rounding_in_its_own_way(model, libraries, **options):
    """A sound runtime that is off by up to half a step of fp16 after each node, as it leaves out roundings."""
    with open_otherwise(model, libraries) as session:
        run = session.run
        session.run = lambda inputs: run({**inputs, PHASE: np.asarray(0.37, np.float32)})
        yield session


def test_a_runtime_that_rounds_in_its_own_way_is_not_accused(bench):
    with replaced_runtime(lambda original: rounding_in_its_own_way):
        record = run(bench)
    assert record.status == "passed" and record.examples > 300, record.reason


def test_a_model_that_runs_with_other_roundings_nowhere_moves_with_its_inputs_alone(bench, monkeypatch):
    def refuses(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(verify_converted, "open_otherwise", refuses)
    with replaced_runtime(lambda original: rounding_in_its_own_way):
        assert run(bench).error == "WrongValue"  # the luck of the meaning's own roundings decides
    with wrong_runtime(rotated(1.01, 1.0)):
        assert verdict(run(bench)) == WRONG


def rotated(sine: float, cosine: float):
    """RoPE in float32 whose sine and cosine are off by these factors."""

    def compute(inputs, outputs):
        x, pos = inputs["x"], inputs["pos"]
        angle = pos[..., None].astype(np.float32) / 10000.0 ** (np.arange(0, 16, 2, dtype=np.float32) / 16)
        angle = np.concatenate([angle, angle], -1)
        turned = np.concatenate([-x[..., 8:], x[..., :8]], -1)
        found = x * np.cos(angle) * cosine + turned * np.sin(angle) * sine
        return [found.astype(np.float32)]

    return compute


@pytest.mark.parametrize("sine, cosine, status", [
    (1.0, 1.0, "passed"), (1.01, 1.0, "failed"), (1.0, 0.99, "failed"),
])  # fmt: skip
def test_an_operator_that_is_one_percent_off_is_wrong(bench, sine, cosine, status):
    with wrong_runtime(rotated(sine, cosine)):
        record = run(bench)
    assert record.status == status, record.reason
    assert status == "passed" or verdict(record) == WRONG


def test_roundings_differ_in_fp16_by_half_a_step_a_node_and_in_fp32_not_at_all(tmp_path):
    def outputs(kind):
        head = '<ir_version: 8, opset_import: ["" : 17]>'
        graph = "g (KIND[64] x) => (KIND[64] y) {s = Sin(x) y = Mul(s, x)}".replace("KIND", kind)
        save(parser.parse_model(f"{head} {graph}"), tmp_path / "model.onnx")
        given = np.linspace(1, 2, 64).astype("float32" if kind == "float" else kind)
        with open_otherwise(tmp_path / "model.onnx", []) as session:
            return given, [session.run({"x": given, PHASE: np.asarray(phase, np.float32)})[0] for phase in (1.0, 2.0)]

    _, (first, second) = outputs("float")
    np.testing.assert_array_equal(first, second)
    x, (first, second) = outputs("float16")
    assert (first != second).any()
    off = np.abs(first - np.sin(x.astype(np.float64)) * x).max()
    assert off < 5 * 2.0**-10  # two nodes, each half a step at most
