"""An operator defined with torch.library, and how the dynamo exporter is to write it in ONNX."""

import torch
from onnxscript import opset18 as op


@torch.library.custom_op("conformance_cases::softsign", mutates_args=())
def softsign(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


@softsign.register_fake
def _(x):
    return torch.empty_like(x)


def softsign_to_onnx(x):
    return op.Div(x, op.Add(op.Abs(x), op.CastLike(1.0, x)))
