"""Small seeded networks of the kinds that people convert, as ONNX files in float32.

``python -m evidence.converted.networks FOLDER`` writes them: ``NAME.onnx`` by TorchScript at opset 17 and
``NAME-21.onnx`` by dynamo at 21, which blocks of four bits need.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn


def _conv(inside: int, outside: int, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1, groups=groups), nn.BatchNorm2d(outside), nn.ReLU6())


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _conv(3, 8), nn.Conv2d(8, 8, 3, padding=1)
        self.end = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.end((x + self.second(x)).relu().mean((2, 3)))


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.end = nn.LayerNorm(32), nn.Linear(32, 32)
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        one = self.norm(x)
        heads = (part(one).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.query, self.key, self.value))
        query, key, value = heads
        weights = (query @ key.transpose(-1, -2) * 8**-0.5).softmax(-1)
        return x + self.end((weights @ value).transpose(1, 2).flatten(2))


class _Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.end = nn.Embedding(40, 32), nn.LayerNorm(32), nn.Linear(32, 32)

    def forward(self, ids: Tensor) -> Tensor:
        return self.end(self.norm(self.table(ids)))


class _Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(32, 64, bias=False), nn.Linear(32, 64, bias=False)
        self.down = nn.Linear(64, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.kind, self.end = kind(16, 24, batch_first=True), nn.Linear(24, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.kind(x)[0])


class _Step(nn.Module):
    """A decoder with a cache of keys and values, for one token or more behind those of the past."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place, self.norm = nn.Embedding(40, 32), nn.Embedding(64, 32), nn.LayerNorm(32)
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.head = nn.Linear(32, 40)

    def forward(self, tokens: Tensor, past_key: Tensor, past_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        past, count = past_key.shape[2], tokens.shape[1]
        x = self.embed(tokens) + self.place(torch.arange(count) + past)
        one = self.norm(x)
        query, key, value = (part(one).unflatten(-1, (4, 8)).transpose(1, 2)
                             for part in (self.query, self.key, self.value))  # fmt: skip
        key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        hidden = torch.arange(past + count) > torch.arange(count)[:, None] + past
        weights = (query @ key.transpose(2, 3) * 8**-0.5).masked_fill(hidden, -1e4).softmax(-1)
        return self.head(x + (weights @ value).transpose(1, 2).flatten(2)), key, value


def networks() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """Return each network in evaluation mode with an example: float32, or int64 below 40; the first dim is the
    batch."""
    torch.manual_seed(0)
    image, steps = torch.randn(2, 3, 16, 16), torch.randn(2, 6, 32)
    tokens, past = torch.randint(0, 40, (2, 3)), torch.randn(2, 4, 5, 8)
    made: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
        "mlp": (nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16), nn.GELU(), nn.Linear(16, 8)),
                (steps[:, 0],)),
        "tokenwise": (nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16), nn.GELU(), nn.Linear(16, 8)),
                      (steps,)),
        "cnn": (nn.Sequential(_conv(3, 8), nn.MaxPool2d(2), _conv(8, 16), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                              nn.Linear(256, 5)), (image,)),
        "depthwise": (nn.Sequential(_conv(3, 8), _conv(8, 8, groups=8), nn.Conv2d(8, 12, 1), nn.Hardswish()),
                      (image,)),
        "residual": (_Residual(), (image,)),
        "decoder": (nn.Sequential(_conv(3, 8), nn.Upsample(scale_factor=2), nn.ConvTranspose2d(8, 4, 2, 2),
                                  nn.Sigmoid()), (image,)),
        "attention": (_Attention(), (steps,)),
        "embedded": (_Embedded(), (torch.randint(0, 40, (2, 6)),)),
        "gated": (_Gated(), (steps,)),
        "lstm": (_Recurrent(nn.LSTM), (steps[..., :16],)),
        "gru": (_Recurrent(nn.GRU), (steps[..., :16],)),
        "step": (_Step(), (tokens, past, past.flip(0))),
    }  # fmt: skip
    for net, _ in made.values():
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):  # as training leaves it
                assert part.running_mean is not None and part.running_var is not None
                part.running_mean.normal_(0, 0.3)
                part.running_var.uniform_(0.5, 2)
        net.eval()
    return made


NAMES = {"step": (["x", "past_key", "past_value"], ["y", "present_key", "present_value"])}
"""Inputs and outputs; of the others ``x`` and ``y``."""


def write(folder: Path) -> None:
    for name, (net, example) in networks().items():
        takes, gives = NAMES.get(name, (["x"], ["y"]))
        axes = {each: {0: "batch"} for each in (*takes, *gives)}
        for each in ("past_key", "past_value", "present_key", "present_value"):
            if each in axes:
                axes[each][2] = "past" if each.startswith("past") else "total"
        if name == "step":
            axes["x"][1] = axes["y"][1] = "count"
        torch.onnx.export(net, example, folder / f"{name}.onnx", dynamo=False, opset_version=17, input_names=takes,
                          output_names=gives, dynamic_axes=axes)  # fmt: skip
        if name == "step":
            continue
        torch.onnx.export(net, example, folder / f"{name}-21.onnx", dynamo=True, opset_version=21,
                          input_names=takes, output_names=gives, external_data=False, verbose=False,
                          dynamic_shapes=({0: torch.export.Dim("batch")},))  # fmt: skip


if __name__ == "__main__":
    write(Path(sys.argv[1]))
