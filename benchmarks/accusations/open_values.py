"""Modules that make NaN, ties, long sums and jumps: what PyTorch leaves open, or is easily taken for a mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from benchmarks.accusations.samples import Named, Sample

SCOPE = {"torch": torch, "F": F, "math": math, "torchvision": torchvision}


class Computes(nn.Module):
    """An expression over ``x``."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = eval(self.source, {**SCOPE, "x": x})
        return result


class Attends(nn.Module):
    """Attention between an input and itself, by the name of a form of it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.heads = nn.MultiheadAttention(16, 4, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.form == "heads":
            return self.heads(x, x, x)[0]
        if self.form == "heads without weights":
            return self.heads(x, x, x, need_weights=False)[0]
        if self.form == "layer":
            return self.layer(x)
        scores = x @ x.mT / 4
        return torch.softmax(scores, -1) @ x


Made = tuple[str, Callable[[], nn.Module], tuple[int, ...]]
"""What a sample is of, its module, and the shape of its input."""

ROWS, IMAGE, SIGNAL, MATRIX, HEADS = (2, 24), (2, 4, 12, 12), (2, 32), (2, 4, 4), (2, 2, 6, 8)

EXPRESSIONS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "attention": (HEADS, (
        "F.scaled_dot_product_attention(x, x, x)", "F.scaled_dot_product_attention(x, x, x, is_causal=True)",
        "F.scaled_dot_product_attention(x, x, x, scale=0.3)",
        "F.scaled_dot_product_attention(x, x, x, torch.ones(6, 6, dtype=torch.bool).tril())",
        "F.scaled_dot_product_attention(x, x.flip(-2), x * 2)", "torch.softmax(x @ x.mT, -1) @ x",
    )),
    "pool": (IMAGE, (
        "F.max_pool2d(x, 3, stride=2, padding=1)", "F.avg_pool2d(x, 3, stride=2)", "F.adaptive_avg_pool2d(x, 3)",
        "F.adaptive_max_pool2d(x, 3)", "F.lp_pool2d(x, 2, 2)", "x.mean((-2, -1))", "x.amax((-2, -1))",
    )),
    "transform": (SIGNAL, (
        "torch.fft.rfft(x).abs()", "torch.fft.rfft(x).abs().square()", "torch.view_as_real(torch.fft.fft(x))",
        "torch.fft.irfft(torch.fft.rfft(x))", "torch.view_as_real(torch.fft.rfft(x, norm='ortho'))",
        "torch.view_as_real(torch.stft(x, 16, 8, window=torch.ones(16), return_complex=True))",
        "torch.fft.rfft(x).real", "torch.log1p(torch.fft.rfft(x).abs())",
    )),
    "quantized": (ROWS, (
        "torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)",
        "torch.fake_quantize_per_tensor_affine(x.mean(-1, keepdim=True), 0.1, 3, 0, 255)",
        "torch.round(x.sum(-1) / 0.1)", "torch.round(x * 10) / 10", "torch.floor(x.mean(-1) / 0.25)",
        "x.to(torch.int32)", "x.to(torch.uint8)", "(x * 3).long()",
        "torch.clamp(torch.round(x / 0.1), -128, 127).to(torch.int8)",
        "torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))",
    )),
    "norm": ((1, 2, 128, 128), (
        "F.instance_norm(x)", "F.group_norm(x, 1)", "F.batch_norm(x, None, None, training=True)",
        "F.layer_norm(x, [128, 128])", "F.rms_norm(x, [128, 128])", "x / x.norm()",
        "x - x.mean((-2, -1), keepdim=True)",
        "x.std((-2, -1))", "torch.softmax(x.flatten(1), -1)", "torch.logsumexp(x.flatten(1), -1)",
    )),
    "large_norm": ((1, 1, 512, 512), ("F.instance_norm(x)", "F.group_norm(x, 1)", "x.mean((-2, -1))")),
    "matrix": (MATRIX, (
        "torch.linalg.det(x)", "torch.logdet(x @ x.mT)", "torch.linalg.slogdet(x)[1]",
        "torch.linalg.inv(x + 4 * torch.eye(4))",
        "torch.linalg.det(x[:, :2, :2])", "torch.linalg.matrix_norm(x)",
    )),
    "tie": (ROWS, (
        "torch.topk(x, 4).values", "torch.topk(x, 4).indices", "torch.sort(x).values", "torch.sort(x).indices",
        "torch.sort(x, stable=True).indices", "x.argmax(-1)", "x.max(-1).values", "torch.topk(x.relu(), 3).indices",
        "x.gather(-1, torch.topk(torch.sigmoid(x), 3).indices)", "torch.median(x, -1).values", "x.argsort(-1)",
    )),
    "jump": (ROWS, (
        "torch.where(x.mean(-1, keepdim=True) > 0, x, -x)", "torch.sign(x.sum(-1))", "(x.sum(-1) > 0.5).float()",
        "torch.sqrt(x)", "torch.log(x)", "x / x.sum(-1, keepdim=True)", "torch.remainder(x, 0.1)", "torch.acos(x)",
        "torch.fmod(x.sum(-1), 0.5)", "torch.heaviside(x - x.mean(-1, keepdim=True), torch.tensor(0.5))",
    )),
    "detector": ((12, 5), (
        "torchvision.ops.nms(torch.cat([x[:, :2], x[:, :2] + x[:, 2:4].abs()], 1), x[:, 4], 0.5)",
        "x[torchvision.ops.nms(torch.cat([x[:, :2], x[:, :2] + 1], 1), torch.sigmoid(x[:, 4]), 0.3)]",
        "x[torch.sigmoid(x[:, 4]) > 0.5]", "x[torch.topk(x[:, 4], 5).indices]",
        "torchvision.ops.box_iou(x[:, :4], x[:, :4])",
    )),
}  # fmt: skip
"""By kind: the shape of ``x``, and what is computed of it."""

FORMS = ("heads", "heads without weights", "layer", "formula")


def made() -> Iterator[tuple[str, Made]]:
    for kind, (shape, sources) in EXPRESSIONS.items():
        for number, source in enumerate(sources):
            yield f"{kind}_open_{number}", (source, partial(Computes, source), shape)
    for number, form in enumerate(FORMS):
        yield f"attends_open_{number}", (f"attention as {form}", partial(Attends, form), (2, 5, 16))


def samples() -> Iterator[Named]:
    for name, each in made():
        yield name, partial(_sample, *each)


def _sample(about: str, module: Callable[[], nn.Module], shape: tuple[int, ...]) -> Sample:
    return Sample(about, module(), (torch.randn(shape),), shapes=2)
