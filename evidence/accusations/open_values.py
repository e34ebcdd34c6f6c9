"""Modules that make NaN, ties, long sums and jumps, or keep state: what PyTorch leaves open, or is easily taken for a
mistake."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from evidence.accusations.samples import Named, Sample


def boxes(x: torch.Tensor) -> torch.Tensor:
    """Boxes (x1, y1, x2, y2) of a corner and two sizes of any sign."""
    return torch.cat([x[:, :2], x[:, :2] + x[:, 2:4].abs()], 1)


SCOPE = {"torch": torch, "F": F, "nn": nn, "math": math, "ops": torchvision.ops, "boxes": boxes}


class Computes(nn.Module):
    """An expression over ``x``, ``m``, a module that is an expression as well, and ``self``."""

    def __init__(self, source: str, module: str = "None") -> None:
        super().__init__()
        self.source = source
        self.module = eval(module, dict(SCOPE))

    def forward(self, x: torch.Tensor) -> Any:
        return eval(self.source, {**SCOPE, "x": x, "m": self.module, "self": self})


class Keeps(Computes):
    """An expression that may change what the module keeps: buffers, a number, a table."""

    def __init__(self, source: str, module: str = "None") -> None:
        super().__init__(source, module)
        self.calls, self.table = 0, dict[str, torch.Tensor]()
        for name, value in (("count", torch.zeros(())), ("kept", torch.zeros(24)), ("ones", torch.ones(24))):
            self.register_buffer(name, value)


Shape = tuple[int, ...]
LARGE = 10_000
"""Values from which on a case has one shape."""
ROWS, IMAGE, SIGNAL, MATRIX, HEADS, LONG = (2, 24), (2, 4, 12, 12), (2, 32), (2, 4, 4), (2, 2, 6, 8), (2, 4096)

EXPRESSIONS: dict[str, tuple[Shape, tuple[str, ...]]] = {
    "attention": (HEADS, (
        *(f"F.scaled_dot_product_attention({arguments})" for arguments in (
            "x, x, x", "x, x, x, is_causal=True", "x, x, x, scale=0.3", "x, x.flip(-2), x * 2",
            "x, x[..., :3, :], x[..., 3:, :]", "x, x[:, :1], x[:, 1:], enable_gqa=True", "x[:, 0], x[:, 1], x[:, 0]",
            *(f"x, x, x, {mask}" for mask in (
                "torch.ones(6, 6, dtype=torch.bool).tril()", "(x[..., 0] > 0).unsqueeze(-2)",
                "torch.full((6, 6), -math.inf).triu(1)", "torch.full((6, 6), torch.finfo(x.dtype).min).triu(1)",
                "-(torch.arange(6.0) - torch.arange(6.0)[:, None]).abs()",
            )),
        )),
        *(f"torch.softmax({scores}, -1) @ x" for scores in (
            "x @ x.mT", "20 * torch.tanh(x @ x.mT / 20)", "torch.einsum('bhqd,bhkd->bhqk', x, x)",
            "F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).mT", "x @ x.mT + torch.full((6, 6), -math.inf).triu(1)",
            "(x @ x.mT).masked_fill((x[..., :1] > 0).mT, -1e9)",
            "(x @ x.mT).masked_fill((x[..., :1] > 0).mT, -math.inf)",
        )),
        "(x @ x.mT).relu().square() @ x / 6", "torch.log_softmax(x @ x.mT, -1)", "torch.sigmoid(x @ x.mT) @ x",
        "(F.elu(x) + 1) @ ((F.elu(x) + 1).mT @ x)", "torch.cumsum(torch.softmax(x @ x.mT, -1), -1)",
        "torch.nan_to_num(torch.softmax((x @ x.mT).masked_fill((x[..., :1] > 0).mT, -math.inf), -1)) @ x",
        "(lambda s: s.masked_fill(s < s.topk(2).values[..., -1:], -math.inf).softmax(-1))(x @ x.mT) @ x",
        "(lambda a: torch.cat([x[..., :4] * a.cos() - x[..., 4:] * a.sin(), x[..., 4:] * a.cos()], -1) @ x.mT)"
        "(torch.arange(6.0)[:, None])",
    )),
    "pool": (IMAGE, (
        *(f"F.max_pool2d({arguments})" for arguments in (
            "x, 3, stride=2, padding=1", "x, 3, dilation=2", "x, 3, 2, ceil_mode=True", "x.relu(), 2",
            "x, 2, return_indices=True",
        )),
        *(f"F.avg_pool2d(x, 3, 2{arguments})" for arguments in (
            "", ", 1, count_include_pad=False", ", ceil_mode=True",
        )),
        "F.adaptive_avg_pool2d(x, 3)", "F.adaptive_max_pool2d(x, 3)", "F.lp_pool2d(x, 2, 2)", "F.lp_pool2d(x, 3, 3)",
        "F.max_pool2d(x, 3, 1, 1) - x", "-F.max_pool2d(-x, 3, 1, 1)", "F.max_pool1d(x.flatten(2), 4)",
        "F.avg_pool1d(x.flatten(2), 5, 2)", "F.max_pool3d(x.unsqueeze(1), 2)",
        "F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)", "x.mean((-2, -1))", "x.amax((-2, -1))",
        "torch.cat([x.amin((-2, -1)), x.amax((-2, -1))], 1)", "F.unfold(x, 3).amax(1)",
        "F.unfold(x, 3).unflatten(1, (4, 9)).median(2).values", "x.clamp(min=1e-6).pow(3).mean((-2, -1)).pow(1 / 3)",
        "torch.logsumexp(x, (-2, -1))", "(x.flatten(2) * torch.softmax(x.flatten(2), -1)).sum(-1)",
        "x.flatten(2).topk(3).values.mean(-1)", "(x * (x > 0)).sum((-2, -1)) / (x > 0).sum((-2, -1))",
    )),
    "transform": (SIGNAL, (
        *(f"torch.fft.rfft(x).{part}" for part in ("abs()", "abs().square()", "real", "imag", "angle()")),
        *(f"torch.view_as_real({transformed})" for transformed in (
            "torch.fft.fft(x)", "torch.fft.fft(x[:, :15])", "torch.fft.rfft(x, norm='ortho')",
            "torch.fft.rfft(x, n=20)", "torch.fft.rfft(x, n=40)", "torch.fft.rfft2(x.view(-1, 4, 8))",
            "torch.stft(x, 16, 8, window=torch.ones(16), return_complex=True)",
            "torch.stft(x, 16, 4, window=torch.hann_window(16), center=False, return_complex=True)",
        )),
        "torch.fft.irfft(torch.fft.rfft(x))", "torch.log1p(torch.fft.rfft(x).abs())", "torch.fft.fftshift(x)",
        "torch.fft.rfft(x, norm='forward').abs()", "torch.fft.ifft(torch.fft.fft(x)).real",
        "torch.fft.fft2(x.view(-1, 4, 8)).real",
        "torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(torch.ones(32)))",
        "torch.fft.rfft(x * torch.hann_window(32)).abs().square().sum(-1)",
        "torch.log(torch.stft(x, 16, 8, window=torch.ones(16), return_complex=True).abs().square() + 1e-6)",
        "x @ torch.cos(math.pi / 32 * (torch.arange(32.0)[:, None] + 0.5) * torch.arange(32.0))",
    )),
    "quantized": (ROWS, (
        *(f"torch.fake_quantize_per_tensor_affine({arguments})" for arguments in (
            "x, 0.1, 0, -128, 127", "x.mean(-1, keepdim=True), 0.1, 3, 0, 255", "x, 0.5, 10, 0, 255",
            "x, 1 / 3, 0, -128, 127", "x * 0.1, 0.01, 0, -128, 127",
        )),
        "torch.fake_quantize_per_channel_affine(x, torch.full((24,), 0.1), torch.zeros(24).int(), 1, -128, 127)",
        "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()",
        *(f"torch.round({quotient})" for quotient in (
            "x.sum(-1) / 0.1", "x * 10", "x, decimals=1", "torch.sigmoid(x) * 15", "x / 0.1 - x",
        )),
        "torch.floor(x.mean(-1) / 0.25)", "torch.floor(x / 0.1 + 0.5)", "torch.ceil(x.sum(-1) / 0.3)",
        "torch.trunc(x / 0.2)", *(f"x.to(torch.{dtype})" for dtype in ("int16", "int32", "int64", "uint8")),
        "(x * 3).long()", "x.half().float()", "x.bfloat16().float()", "(x * 255).clamp(0, 255).to(torch.uint8)",
        "torch.clamp(torch.round(x / 0.1), -128, 127).to(torch.int8)",
        "torch.sign(x) * x.abs().mean(-1, keepdim=True)",
        "torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))", "torch.log2(x.abs()).round().exp2() * x.sign()",
        "(lambda s: torch.round(x / s).clamp(-127, 127) * s)(x.abs().amax(-1, keepdim=True) / 127)",
        "torch.round(x * 127 / x.abs().amax().clamp(min=1e-5)).to(torch.int8)",
    )),
    "matrix": (MATRIX, (
        "torch.linalg.det(x)", "torch.logdet(x @ x.mT)", "torch.linalg.slogdet(x)[1]", "torch.linalg.matrix_norm(x)",
        "torch.linalg.inv(x + 4 * torch.eye(4))", "torch.linalg.det(x[:, :2, :2])", "torch.linalg.matrix_power(x, 3)",
        "torch.linalg.cross(x[..., :3], x[..., 1:])", "torch.cdist(x, x)", "torch.triu(x) @ x",
        "x.diagonal(dim1=-2, dim2=-1).sum(-1)", "(lambda d: d @ d.mT / 3)(x - x.mean(-1, keepdim=True))",
        "torch.linalg.solve(x + 4 * torch.eye(4), x)", "torch.linalg.cholesky(x @ x.mT + torch.eye(4))",
    )),
    "tie": (ROWS, (
        "torch.topk(x, 4).values", "torch.topk(x, 4).indices", "torch.topk(x.relu(), 3).indices",
        "torch.topk(x.round(), 5).values", "torch.topk(x, 3, largest=False).values",
        "torch.sort(x).values", "torch.sort(x).indices", "torch.sort(x, stable=True).indices", "x.argsort(-1)",
        "torch.sort(x, descending=True).values.cumsum(-1)", "torch.median(x, -1).values",
        "torch.kthvalue(x, 3).values", "torch.cummax(x, -1).values", "x.argmax(-1)", "x.argmin(-1)",
        "x.max(-1).values", "x.max(-1).indices", "x.gather(-1, torch.topk(torch.sigmoid(x), 3).indices)",
        "torch.zeros_like(x).scatter(-1, torch.topk(x, 3).indices, 1.0)", "F.one_hot(x.argmax(-1), 24).float()",
        "torch.searchsorted(torch.linspace(-2, 2, 9), x)", "torch.cdist(x.view(-1, 6, 4), torch.eye(4)).argmin(-1)",
        "(x == x.amax(-1, keepdim=True)).float()", "torch.unique(x.round())",
        "(lambda p: p / p.sum(-1, keepdim=True))(torch.softmax(x, -1).topk(2).values)",
    )),
    "jump": (ROWS, (
        *(f"torch.{function}(x)" for function in (
            "sqrt", "log", "acos", "rsqrt", "reciprocal", "log1p", "acosh", "atanh", "tan", "floor", "frac", "exp",
            "nan_to_num", "special.logit", "lgamma",
        )),
        *(f"torch.{function}(x, x.flip(-1))" for function in (
            "atan2", "maximum", "fmax", "logaddexp", "xlogy", "remainder", "fmod",
        )),
        "torch.where(x.mean(-1, keepdim=True) > 0, x, -x)", "torch.sign(x.sum(-1))", "(x.sum(-1) > 0.5).float()",
        "x / x.sum(-1, keepdim=True)", "torch.remainder(x, 0.1)", "torch.fmod(x.sum(-1), 0.5)",
        "torch.heaviside(x - x.mean(-1, keepdim=True), torch.tensor(0.5))", "torch.floor_divide(x, 0.3)",
        "torch.div(x, 0.3, rounding_mode='trunc')", "torch.pow(x, 0.5)", "torch.pow(x.abs(), x)",
        "torch.clamp(x, -1, 1)", "torch.where(x.isnan(), 0.0, x)", "torch.where(x > 0, torch.log(x), 0.0)",
        "x.masked_fill(x > 1, math.nan)", "x * torch.where(x > 0, math.inf, 1.0)", "torch.cumprod(x, -1)",
        "x.exp() / x.exp().sum(-1, keepdim=True)", "x.relu() / x.relu().sum(-1, keepdim=True)",
        "F.cosine_similarity(x, x.relu(), -1)", "(x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)",
    )),
    "sum": (LONG, (
        "x.sum(-1)", "x.cumsum(-1)", "x.prod(-1)", "x @ torch.linspace(-1, 1, 4096)", "x.sum()",
        "x.square().sum(-1).sqrt()", "(x - x.mean(-1, keepdim=True)).abs().mean(-1)", "x.diff(dim=-1).sum(-1)",
        "F.conv1d(x[:, None], torch.ones(1, 1, 1024) / 1024)", "(x.softmax(-1) * x.log_softmax(-1)).sum(-1)",
        "x.softmax(-1).cumsum(-1)", "x.var(-1, correction=0)", "x.double().sum(-1).float()",
        "F.linear(x, torch.sin(torch.arange(12288.0)).view(3, -1))", "(x * x.flip(-1)).sum(-1)",
    )),
    "detector": ((12, 5), (
        "ops.nms(boxes(x), x[:, 4], 0.5)", "ops.nms(boxes(x), torch.sigmoid(x[:, 4]), 0.5)",
        "boxes(x)[ops.nms(boxes(x), x[:, 4], 0.3)]",
        "x[ops.nms(torch.cat([x[:, :2], x[:, :2] + 1], 1), torch.sigmoid(x[:, 4]), 0.3)]",
        "ops.batched_nms(boxes(x), x[:, 4], (x[:, 4] > 0).long(), 0.5)", "ops.box_iou(x[:, :4], x[:, :4])",
        "ops.box_convert(x[:, :4], 'cxcywh', 'xyxy')", "ops.clip_boxes_to_image(boxes(x), (2, 3))",
        "ops.remove_small_boxes(boxes(x), 0.5)", "ops.box_area(boxes(x))", *(
            f"ops.{kind}_box_iou(boxes(x), boxes(x) + 0.1)" for kind in ("generalized", "distance", "complete")),
        "x[torch.sigmoid(x[:, 4]) > 0.5]", "x[torch.topk(x[:, 4], 5).indices]", "torch.nonzero(x[:, 4] > 0)",
        "torch.cat([x[:, :2], x[:, 2:4].exp().clamp(max=62)], 1)", "torch.softmax(x, -1)[:, :-1].max(-1).values",
        "torch.softmax(x, -1)[:, :-1].max(-1).indices", "x[x[:, 4].argsort(descending=True)][:5]",
        "x[:, 4].sigmoid().topk(5).indices % 3", "ops.sigmoid_focal_loss(x, (x.flip(-1) > 0).float())",
        "torch.masked_select(x, x > 0)",
    )),
    "region": ((1, 4, 12, 12), (
        "ops.roi_align(x, torch.tensor([[0, 1, 1, 6, 7.0]]), 3)",
        "ops.roi_pool(x, torch.tensor([[0, 1, 1, 6, 7.0]]), 3)",
        "ops.roi_align(x, torch.tensor([[0, 1, 1, 6, 7.0]]), 3, aligned=True, sampling_ratio=2)",
        "(x == F.max_pool2d(x, 3, 1, 1)) * x", "((x == F.max_pool2d(x, 3, 1, 1)) * x).flatten(1).topk(5).values",
        "F.interpolate(x, scale_factor=2, mode='bilinear')", "F.interpolate(x, size=(5, 7))", "x.argmax(1)",
        "F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=False)",
        "F.grid_sample(x, torch.tanh(x[:, :2]).permute(0, 2, 3, 1), mode='nearest', align_corners=True)",
        "(torch.sigmoid(x) > 0.5).float()",
    )),
}  # fmt: skip
"""By kind: the shape of ``x``, and what is computed of it."""

NORMS = (
    "F.instance_norm(x)", "F.group_norm(x, 1)", "F.batch_norm(x, None, None, training=True)",
    "F.layer_norm(x, x.shape[-2:])", "F.rms_norm(x, x.shape[-2:])", "x.mean((-2, -1))", "x / x.norm()",
    "x - x.mean((-2, -1), keepdim=True)", "x.std((-2, -1))", "torch.softmax(x.flatten(1), -1)",
    "torch.logsumexp(x.flatten(1), -1)", "F.normalize(x.flatten(1))", "F.layer_norm(x, x.shape[-1:])",
)  # fmt: skip
SIZES: dict[str, tuple[Shape, int]] = {
    "norm_512": ((1, 1, 512, 512), 6), "norm_128": ((1, 2, 128, 128), 6), "norm_16": ((3, 4, 16, 16), 13),
}  # fmt: skip
"""By kind: the shape of ``x``, and how many of ``NORMS`` are computed of it."""

_ATTENTION, _LAYER = "nn.MultiheadAttention(16, 4, batch_first=True", "(16, 4, 32, batch_first=True"
_CAUSAL = "torch.ones(5, 5, dtype=torch.bool).triu(1)"
ATTENDS: tuple[tuple[str, str], ...] = (
    *((f"m({arguments})[{output}]", f"{_ATTENTION})") for arguments, output in (
        ("x, x, x", 0), ("x, x, x, need_weights=False", 0), ("x, x, x, average_attn_weights=False", 1),
        (f"x, x, x, attn_mask={_CAUSAL}", 0),
        (f"x, x, x, attn_mask={_CAUSAL}, is_causal=True, need_weights=False", 0),
        ("x, x, x, key_padding_mask=x[..., 0] > 1", 0), ("x, x[:, :3], x[:, 2:]", 0),
    )),
    *(("m(x, x, x)[0]", f"{_ATTENTION}, {arguments})") for arguments in (
        "bias=False", "add_bias_kv=True", "add_zero_attn=True",
    )),
    *((call, f"nn.TransformerEncoderLayer{_LAYER}{arguments})") for call, arguments in (
        ("m(x)", ""), ("m(x)", ", norm_first=True"), ("m(x)", ", activation='gelu'"),
        (f"m(x, src_mask={_CAUSAL})", ""), ("m(x, src_key_padding_mask=x[..., 0] > 1)", ""),
    )),
    ("m(x, x.flip(1))", f"nn.TransformerDecoderLayer{_LAYER})"),
)  # fmt: skip
"""Expressions by group, and the modules that compute them."""

STATE: tuple[tuple[str, str], ...] = (
    *((source, "None") for source in (
        "x * 2 + self.count.add_(1)", "x - self.kept.mul_(0.9).add_(x.mean(0), alpha=0.1)",
        "F.batch_norm(x, self.kept, self.ones, training=True)", "self.kept.copy_(x[0]) * 2 + x",
        "x / self.ones.add_(x.abs().amax(0))", "x * torch.where(self.count.add_(1) > 1, 2.0, 3.0)",
        "setattr(self, 'last', x.mean()) or x * 2", "setattr(self, 'calls', self.calls + 1) or x * self.calls",
        "self.table.setdefault('mask', torch.ones(24, 24).tril()) @ x.mT", "torch.tanh(self.kept.add_(x.sum(0))) + x",
    )),
    ("m(x.abs().long() % 10)", "nn.Embedding(10, 6, max_norm=1.0)"),
    *(("m(x)", f"torch.ao.quantization.FakeQuantize(torch.ao.quantization.{observer})") for observer in (
        "MinMaxObserver", "MovingAverageMinMaxObserver")),
    ("m(x)", "nn.utils.spectral_norm(nn.Linear(24, 5))"),
)  # fmt: skip
"""What is computed, and its module, of modules that change themselves when they are called."""


def made() -> Iterator[tuple[str, str, str, Shape]]:
    """Kind, what is computed, the module that it calls, and the shape of ``x``."""
    for kind, (shape, sources) in EXPRESSIONS.items():
        yield from ((kind, source, "None", shape) for source in sources)
    for kind, (shape, count) in SIZES.items():
        yield from ((kind, source, "None", shape) for source in NORMS[:count])
    yield from (("attends", source, module, (2, 5, 16)) for source, module in ATTENDS)
    yield from (("state", source, module, ROWS) for source, module in STATE)


def samples() -> Iterator[Named]:
    """One of each kind in turn, so that the first ones of a run are of all kinds."""
    numbers = dict[str, int]()
    named = list[tuple[int, Named]]()
    for kind, source, module, shape in made():
        number = numbers[kind] = numbers.get(kind, -1) + 1
        named.append((number, (f"{kind}_open_{number}", partial(_sample, kind, source, module, shape))))
    yield from (sample for _, sample in sorted(named, key=itemgetter(0)))


def _sample(kind: str, source: str, module: str, shape: Shape) -> Sample:
    built = (Keeps if kind == "state" else Computes)(source, module)
    about, shapes = source if module == "None" else f"{source} of {module}", 1 if math.prod(shape) > LARGE else 2
    return Sample(about, built, (torch.randn(shape),), shapes=shapes, changes=kind == "state")
