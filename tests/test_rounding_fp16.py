"""What other roundings in fp16 excuse of a runtime: a step here and there, and no defect."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from conformance.checks import accuracy
from conformance.runtimes import onnxruntime
from conformance.runtimes.otherwise import PHASE, open_otherwise
from tests.support import altered, verdict

ROPE = """
module: beside.Rope
inputs:
  x: float32[n, t, 16]
  pos: {type: "int64[n, t]", values: {integers: {low: 0, high: 60}}}
dims: {n: 1..4, t: 1..16}
precisions: {fp16: {}}
export: {torchscript: [17]}
examples: {values: 12}
"""
PYTHON = """
import torch

class Rope(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inverse", 1.0 / (10000.0 ** (torch.arange(0, 16, 2).float() / 16)))

    def forward(self, x, pos):
        angle = pos[..., None].float() * self.inverse
        angle = torch.cat([angle, angle], -1)
        turned = torch.cat([-x[..., 8:], x[..., :8]], -1)
        return x * angle.cos() + turned * angle.sin()
"""


def run(bench, body=ROPE, python=PYTHON):
    """The record of ONNX Runtime's cell at fp16."""
    cells = bench.cells(body, python)
    (cell,) = (
        cell for cell in cells if (cell.check, cell.runtime, cell.precision) == ("accuracy", "onnxruntime", "fp16")
    )
    return bench.run_cell(cell, examples=20)


@contextlib.contextmanager
def rounding_in_its_own_way(model, libraries, **options):
    """A sound runtime that is off by up to half a step of fp16 after each node, as it leaves out roundings."""
    with open_otherwise(model, libraries) as session:
        run = session.run
        session.run = lambda inputs: run({**inputs, PHASE: np.asarray(0.37, np.float32)})
        yield session


def test_a_runtime_that_rounds_in_its_own_way_is_not_accused(bench, monkeypatch):
    monkeypatch.setattr(onnxruntime, "open_optimized", rounding_in_its_own_way)
    record = run(bench)
    assert record.status == "passed", record.reason
    assert record.examples > 300
    # with the inputs alone moved, the luck of the meaning's own roundings decides
    monkeypatch.setattr(accuracy, "rounding_otherwise", lambda *_: None)
    assert run(bench).error == "WrongValue"


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


@pytest.mark.parametrize("sine, cosine", [(1.01, 1.0), (1.0, 0.99)])
def test_an_operator_that_is_one_percent_off_is_wrong(bench, monkeypatch, sine, cosine):
    opened = altered(onnxruntime.open_optimized, rotated(sine, cosine))
    monkeypatch.setattr(onnxruntime, "open_optimized", opened)
    assert verdict(run(bench)) == ("failed", "compare", "WrongValue", "runtime")


def test_the_same_without_the_percent_is_right(bench, monkeypatch):
    opened = altered(onnxruntime.open_optimized, rotated(1.0, 1.0))
    monkeypatch.setattr(onnxruntime, "open_optimized", opened)
    assert run(bench).status == "passed"


DENSE = """
forward: torch.softmax(torch.tanh(x @ a) @ b, 1)
inputs: {x: "float32[n, 16]", a: "float32[16, 32]", b: "float32[32, 8]"}
dims: {n: 1..6}
precisions: {fp16: {}}
export: {torchscript: [17]}
"""


@pytest.mark.parametrize("factor, status", [(1.0, "passed"), (1.01, "failed")])
def test_one_percent_in_the_middle_of_a_network_is_found(bench, monkeypatch, factor, status):
    def compute(inputs, outputs):
        scores = np.tanh(inputs["x"] @ inputs["a"]) * np.float32(factor) @ inputs["b"]
        power = np.exp(scores - scores.max(1, keepdims=True))
        return [(power / power.sum(1, keepdims=True)).astype(np.float32)]

    monkeypatch.setattr(onnxruntime, "open_optimized", altered(onnxruntime.open_optimized, compute))
    record = run(bench, DENSE, "")
    assert record.status == status, record.reason


def test_what_stays_in_fp32_does_not_move(bench, tmp_path):
    """The phase changes nothing in a model of which no node computes in fp16."""
    from onnx import TensorProto, helper, save

    def outputs(kind):
        made = helper.make_model(
            helper.make_graph(
                [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Mul", ["s", "x"], ["y"])], "g",
                [helper.make_tensor_value_info("x", kind, [64])], [helper.make_tensor_value_info("y", kind, [64])],
            ),
            opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
        )  # fmt: skip
        file = tmp_path / f"{kind}.onnx"
        save(made, file)
        x = np.linspace(1, 2, 64).astype(helper.tensor_dtype_to_np_dtype(kind))
        with open_otherwise(file, []) as session:
            return x, [session.run({"x": x, PHASE: np.asarray(phase, np.float32)})[0] for phase in (1.0, 2.0)]

    _, (first, second) = outputs(TensorProto.FLOAT)
    np.testing.assert_array_equal(first, second)
    x, (first, second) = outputs(TensorProto.FLOAT16)
    assert (first != second).any()
    wanted = np.sin(x.astype(np.float64)) * x
    assert np.abs(first - wanted).max() < 5 * 2.0**-10  # two nodes, each off by half a step at most


def test_a_model_that_runs_otherwise_nowhere_moves_with_its_inputs(bench, monkeypatch):
    def refuses(*_):
        raise RuntimeError("planted")

    from conformance.checks import verify_converted

    monkeypatch.setattr(verify_converted, "open_otherwise", refuses)
    opened = altered(onnxruntime.open_optimized, rotated(1.01, 1.0))
    monkeypatch.setattr(onnxruntime, "open_optimized", opened)
    assert verdict(run(bench)) == ("failed", "compare", "WrongValue", "runtime")
