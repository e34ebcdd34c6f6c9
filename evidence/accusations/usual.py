"""Modules of torch.nn with the arguments that people give them, where ModuleInfo has no such sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from evidence.accusations.samples import Named, Sample


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def ints(high: int, *shape: int) -> torch.Tensor:
    """From 0 to below ``high``, both of which occur where there is room: the case takes its range from them."""
    drawn: torch.Tensor = torch.randint(0, high, shape)
    drawn.view(-1)[0], drawn.view(-1)[-1] = 0, high - 1
    return drawn


class Unpooled(nn.Module):
    """``MaxPool2d`` with its indices, and ``MaxUnpool2d``, which only takes what that gives."""

    def __init__(self, dims: int) -> None:
        super().__init__()
        self.pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
        self.unpool = getattr(nn, f"MaxUnpool{dims}d")(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.unpool(*self.pool(x))


X1, X2, X3 = (2, 6, 11), (2, 6, 9, 8), (2, 4, 6, 7, 5)
"""Shapes of inputs with a batch, channels, and one to three dims in space."""

USUAL: dict[str, list[tuple[str, Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]]] = {}
"""By class: the arguments as text, the module, the inputs."""


def add(
    cls: str, arguments: str, *shapes: tuple[int, ...], inputs: Callable[[], tuple[Any, ...]] | None = None
) -> None:
    def module() -> nn.Module:
        built: nn.Module = eval(f"{cls}({arguments})", {**vars(nn), **globals()})
        return built

    USUAL.setdefault(cls, []).append((arguments, module, inputs or (lambda: tuple(floats(*one) for one in shapes))))


for _arguments in (
    "6, 8, 3, padding=1", "6, 8, 3, stride=2, padding=1", "6, 6, 3, groups=6", "6, 12, 1", "6, 4, 5, padding='same'",
    "6, 4, 3, dilation=2, padding='valid'", "6, 4, 3, padding=1, padding_mode='reflect'",
    "6, 4, 3, padding=1, padding_mode='replicate'", "6, 4, 3, padding=1, padding_mode='circular'",
    "6, 4, 3, groups=2, bias=False",
):  # fmt: skip
    add("Conv1d", _arguments, X1)
    add("Conv2d", _arguments, X2)
for _arguments in ("4, 6, 3, padding=1", "4, 4, 3, groups=4, stride=2", "4, 3, (1, 3, 3), padding=(0, 1, 1)"):
    add("Conv3d", _arguments, X3)
for _arguments in (
    "6, 4, 3", "6, 4, 4, stride=2, padding=1", "6, 4, 3, stride=2, padding=1, output_padding=1",
    "6, 6, 2, stride=2, groups=6, bias=False", "6, 4, 3, dilation=2",
):  # fmt: skip
    add("ConvTranspose1d", _arguments, X1)
    add("ConvTranspose2d", _arguments, X2)
add("ConvTranspose3d", "4, 3, 3, stride=2, padding=1, output_padding=1", X3)
for _arguments in ("8, 5", "8, 5, bias=False"):
    add("Linear", _arguments, (3, 8))
    add("Linear", _arguments, (2, 4, 8))
for _arguments in ("2", "3, stride=2, padding=1", "3, stride=2, ceil_mode=True", "2, stride=1"):
    for _dims, _shape in ((1, X1), (2, X2), (3, X3)):
        add(f"MaxPool{_dims}d", _arguments, _shape)
        add(f"AvgPool{_dims}d", _arguments, _shape)
add("MaxPool2d", "3, dilation=2", X2)
add("AvgPool2d", "3, stride=2, padding=1, count_include_pad=False", X2)
add("AvgPool2d", "3, stride=2, padding=1, ceil_mode=True, count_include_pad=False", X2)
add("AvgPool2d", "2, divisor_override=3", X2)
for _arguments in ("1", "3", "(3, 4)"):
    add("AdaptiveAvgPool2d", _arguments, (2, 6, 9, 8))
    add("AdaptiveMaxPool2d", _arguments, (2, 6, 9, 8))
add("AdaptiveAvgPool1d", "1", X1)
add("AdaptiveAvgPool3d", "1", X3)
for _dims in (1, 2, 3):
    add("Unpooled", str(_dims), ((2, 3, 8), (2, 3, 8, 6), (1, 2, 4, 6, 4))[_dims - 1])
add("BatchNorm1d", "6", (2, 6))
for _dims, _shape in ((1, X1), (2, X2), (3, X3)):
    add(f"BatchNorm{_dims}d", f"{_shape[1]}", _shape)
add("BatchNorm2d", "6, affine=False", X2)
add("BatchNorm2d", "6, track_running_stats=False", X2)
for _arguments in ("2, 6", "6, 6", "1, 6, affine=False"):
    add("GroupNorm", _arguments, X2)
for _arguments in ("8", "(9, 8)", "8, elementwise_affine=False", "8, bias=False"):
    add("LayerNorm", _arguments, X2)
for _arguments in ("8", "(9, 8), eps=1e-6"):
    add("RMSNorm", _arguments, X2)
add("InstanceNorm1d", "6, affine=True", X1)
add("InstanceNorm2d", "6", X2)
add("InstanceNorm2d", "6, affine=True, track_running_stats=True", X2)
add("InstanceNorm3d", "4", X3)
add("LocalResponseNorm", "5", X2)
add("CrossMapLRN2d", "5", X2)
for _name, _arguments in (
    ("ReLU", ""), ("ReLU6", ""), ("ELU", "0.5"), ("CELU", "2.0"), ("SELU", ""), ("GELU", ""),
    ("GELU", "approximate='tanh'"), ("SiLU", ""), ("Mish", ""), ("Hardswish", ""), ("Hardsigmoid", ""),
    ("Hardtanh", "-2, 3"), ("Hardshrink", "0.7"), ("Softshrink", "0.3"), ("Tanhshrink", ""), ("Softplus", ""),
    ("Softplus", "beta=2, threshold=5"), ("Softsign", ""), ("Sigmoid", ""), ("LogSigmoid", ""), ("Tanh", ""),
    ("LeakyReLU", "0.2"), ("PReLU", ""), ("PReLU", "6"), ("RReLU", ""), ("Threshold", "0.1, 20"), ("GLU", "1"),
    ("Softmax", "1"), ("Softmax", "-1"), ("LogSoftmax", "1"), ("LogSoftmax", "-1"), ("Softmin", "1"),
    ("Softmax2d", ""), ("Dropout", ""), ("Dropout1d", ""), ("Dropout2d", ""), ("AlphaDropout", ""),
    ("FeatureAlphaDropout", ""), ("Identity", ""), ("Flatten", ""), ("Flatten", "2"), ("Flatten", "0, 1"),
    ("Unflatten", "1, (2, 3)"), ("ChannelShuffle", "3"),
):  # fmt: skip
    add(_name, _arguments, X1 if _name == "Dropout1d" else X2)
add("Dropout3d", "", X3)
for _arguments, _shape in (("3, padding=1", X2), ("2, stride=2", (2, 3, 8, 6)), ("3, dilation=2", X2)):
    add("Unfold", _arguments, _shape)
add("Fold", "(8, 6), 2, stride=2", (2, 12, 12))
add("Fold", "(6, 5), 3, padding=1", (2, 18, 30))
add("PixelShuffle", "2", (2, 8, 5, 4))
add("PixelUnshuffle", "2", (2, 3, 8, 6))
add("CosineSimilarity", "", (3, 7), (3, 7))
add("CosineSimilarity", "dim=2", (3, 4, 7), (3, 4, 7))
add("PairwiseDistance", "", (3, 7), (3, 7))
add("PairwiseDistance", "p=1, keepdim=True", (3, 7), (3, 7))
add("Bilinear", "5, 4, 6", (3, 5), (3, 4))
for _arguments in ("", "margin=0.5, p=1", "swap=True", "reduction='none'"):
    add("TripletMarginLoss", _arguments, (4, 7), (4, 7), (4, 7))
add("TripletMarginWithDistanceLoss", "", (4, 7), (4, 7), (4, 7))
for _mode, _shape in (("nearest", X1), ("linear", X1), ("nearest", X2), ("nearest-exact", X2), ("bilinear", X2),
                      ("bicubic", X2), ("area", X2), ("trilinear", X3), ("nearest", X3)):  # fmt: skip
    add("Upsample", f"scale_factor=2, mode='{_mode}'", _shape)
    if _mode in ("linear", "bilinear", "bicubic", "trilinear"):
        add("Upsample", f"scale_factor=2, mode='{_mode}', align_corners=True", _shape)
for _arguments in ("size=(13, 7), mode='bilinear'", "size=(5, 4), mode='bilinear'", "size=(13, 7), mode='nearest'",
                   "scale_factor=1.5, mode='bilinear'", "scale_factor=0.5, mode='nearest'",
                   "size=(13, 17), mode='bicubic', align_corners=True"):  # fmt: skip
    add("Upsample", _arguments, X2)
add("UpsamplingBilinear2d", "scale_factor=2", X2)
add("UpsamplingNearest2d", "scale_factor=2", X2)
for _name, _arguments in (
    ("ReflectionPad1d", "2"), ("ReplicationPad1d", "(1, 3)"), ("ConstantPad1d", "2, 3.5"), ("CircularPad1d", "2"),
    ("ZeroPad1d", "(0, 2)"),
):  # fmt: skip
    add(_name, _arguments, X1)
for _name, _arguments in (
    ("ReflectionPad2d", "(1, 2, 3, 1)"), ("ReplicationPad2d", "2"), ("ConstantPad2d", "(1, 0, 2, -1), 3.5"),
    ("ZeroPad2d", "1"), ("CircularPad2d", "(1, 2, 0, 1)"),
):  # fmt: skip
    add(_name, _arguments, X2)
add("ReplicationPad3d", "1", X3)
add("ReflectionPad3d", "1", X3)
add("Embedding", "10, 6", inputs=lambda: (ints(10, 3, 4),))
add("Embedding", "10, 6, padding_idx=0", inputs=lambda: (ints(10, 3, 4),))
for _mode in ("sum", "mean", "max"):
    add("EmbeddingBag", f"10, 6, mode='{_mode}'", inputs=lambda: (ints(10, 3, 4),))
for _name in ("RNN", "GRU", "LSTM"):
    for _arguments in ("5, 7, batch_first=True", "5, 7, num_layers=2, bidirectional=True, batch_first=True", "5, 7",
                       "5, 7, bias=False, batch_first=True", "5, 7, num_layers=2, dropout=0.5"):  # fmt: skip
        add(_name, _arguments, (3, 6, 5))
add("RNN", "5, 7, nonlinearity='relu', batch_first=True", (3, 6, 5))
add("LSTM", "5, 7, proj_size=3, batch_first=True", (3, 6, 5))
add("LSTM", "5, 7, batch_first=True", inputs=lambda: (floats(3, 6, 5), (floats(1, 3, 7), floats(1, 3, 7))))
add("GRU", "5, 7, batch_first=True", (3, 6, 5), (1, 3, 7))
add("LSTMCell", "5, 7", inputs=lambda: (floats(3, 5), (floats(3, 7), floats(3, 7))))
add("GRUCell", "5, 7", (3, 5), (3, 7))
add("RNNCell", "5, 7", (3, 5), (3, 7))
for _arguments in ("", "bias=False", "add_bias_kv=True", "add_zero_attn=True"):
    add("MultiheadAttention", f"16, 4, batch_first=True, {_arguments}".rstrip(", "), *[(2, 5, 16)] * 3)
add("MultiheadAttention", "16, 4, kdim=8, vdim=6, batch_first=True", (2, 5, 16), (2, 7, 8), (2, 7, 6))
for _arguments in ("", ", norm_first=True", ", activation='gelu'"):
    add("TransformerEncoderLayer", f"16, 4, 32, batch_first=True{_arguments}", (2, 5, 16))
_LAYER = "TransformerEncoderLayer(16, 4, 32, batch_first=True)"
add("TransformerEncoder", f"{_LAYER}, 2, enable_nested_tensor=False", (2, 5, 16))
add("TransformerEncoder", f"{_LAYER}, 2", (2, 5, 16))
add("TransformerDecoderLayer", "16, 4, 32, batch_first=True", (2, 5, 16), (2, 6, 16))
add("TransformerDecoder", "TransformerDecoderLayer(16, 4, 32, batch_first=True), 2", (2, 5, 16), (2, 6, 16))
add("Transformer", "16, 4, 1, 1, 32, batch_first=True", (2, 5, 16), (2, 6, 16))
add("AdaptiveLogSoftmaxWithLoss", "8, 20, [5, 12]", inputs=lambda: (floats(4, 8), ints(20, 4)))
add("CrossEntropyLoss", "label_smoothing=0.1", inputs=lambda: (floats(4, 6), ints(6, 4)))
add("CrossEntropyLoss", "", inputs=lambda: (floats(2, 6, 5, 4), ints(6, 2, 5, 4)))
for _arguments in (
    "Conv2d(6, 8, 3, padding=1), BatchNorm2d(8), ReLU(), MaxPool2d(2)",
    "Conv2d(6, 8, 3, bias=False), GroupNorm(2, 8), SiLU(), AdaptiveAvgPool2d(1), Flatten(), Linear(8, 5)",
    "Conv2d(6, 6, 3, groups=6, padding=1), Conv2d(6, 8, 1), Hardswish(), Upsample(scale_factor=2)",
    "ConvTranspose2d(6, 4, 2, stride=2), InstanceNorm2d(4), LeakyReLU(0.1)",
    "Flatten(), Linear(432, 16), Tanh(), Linear(16, 5), Softmax(1)",
    "LayerNorm(8), Linear(8, 16), GELU(), Dropout(), Linear(16, 8)",
):  # fmt: skip
    add("Sequential", _arguments, X2)


def samples() -> Iterator[Named]:
    for cls, entries in USUAL.items():
        for number, entry in enumerate(entries):
            yield f"{cls}_usual_{number}", partial(_sample, cls, *entry)


def _sample(
    cls: str, arguments: str, module: Callable[[], nn.Module], inputs: Callable[[], tuple[Any, ...]]
) -> Sample:
    return Sample(f"{cls}({arguments})", module(), inputs())
