"""Defects of the pinned versions that nobody planted, each looked into by hand; they may be mended in others."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.culprits import sound as of
from benchmarks.culprits.plant import Plant, Written

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


def plants() -> Iterator[Plant]:
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
