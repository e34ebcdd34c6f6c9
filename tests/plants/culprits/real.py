"""Defects of the pinned versions that nobody planted, each looked into by hand; they may be mended in others."""

from __future__ import annotations

from collections.abc import Iterator

from tests.plants import sound as of
from tests.plants.plant import Plant, Written

QUANTIZED = """
import torch


class TwoOutputs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.last = torch.nn.Linear(8, 4)

    def forward(self, x):
        x = self.features(x)
        return self.last(x.permute(0, 2, 3, 1)), x
"""
COUNTED = """
import torch


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return torch.sin(x) + self.calls
"""


def plants() -> Iterator[Plant]:
    # its trace counts in the buffer, and the model starts from there: "Removing mutation ... changes graph semantics"
    counted = Written(of.case("module beside.Counts", of.X, of.BATCH).body, COUNTED)
    yield Plant("real: a buffer that counts starts from where the trace left it", "exporter", counted)
    # exp(x) - 1 for x near 0, where PyTorch takes expm1
    yield Plant("real: ELU of tiny values", "kernel", of.case("F.elu(x, 1.5)", of.X, of.BATCH))
    # log(softmax(x)), which underflows to log(0)
    evaluated = of.case("torch.log_softmax(x, -1)", of.X, of.BATCH)
    evaluated = Written(evaluated.body.replace("runtimes: onnxruntime", "runtimes: onnx-reference"), evaluated.python)
    yield Plant("real: the evaluator's LogSoftmax of large values", "kernel", evaluated)
    # moves a QuantizeLinear up past an output of the graph
    body = """module: beside.TwoOutputs
inputs: {x: {type: "float32[batch, 3, h, w]", values: {normal: {}}}}
outputs: [scores, features]
dims: {batch: 1..2, h: 4..8, w: 4..8}
runtimes: onnxruntime
onnxruntime: {config: {session.x64quantprecision: 1}}
export: {torchscript: [17]}
precisions: {int8: {}}"""
    yield Plant(
        "real: a quantization moved past an output", "optimizer", Written(body, QUANTIZED), precision="int8",
        settings={"examples": 4},
    )  # fmt: skip
