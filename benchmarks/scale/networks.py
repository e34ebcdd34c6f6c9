"""Networks of the usual sizes, with weights of a seed that the caller sets; a copy lies beside the case."""

from __future__ import annotations

import torch
from torch import nn
from torchvision.models import resnet
from torchvision.models.vision_transformer import VisionTransformer


class ViT(VisionTransformer):
    """ViT-B/16 unless it is to be smaller; its last layer begins with zeros, whose outputs are zeros."""

    def __init__(self, side: int = 224, layers: int = 12, width: int = 768) -> None:
        super().__init__(side, 16, layers, width // 64, width, 4 * width)
        nn.init.normal_(self.heads[-1].weight, std=0.02)


class ResNet(resnet.ResNet):
    """ResNet-50 unless it is to be smaller. Its norms have seen images, else values grow with every block."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__(resnet.Bottleneck, list(blocks))
        with torch.no_grad():
            for _ in range(3):
                self(torch.randn(4, 3, 64, 64))


class Decoder(nn.Module):
    """A decoder that norms before each block, of values that were embedded before."""

    def __init__(self, layers: int = 12, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.last(self.blocks(x))
        return y


class Block(nn.Module):
    """Causal attention and two layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.parts, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.parts(self.first(x)).chunk(3, -1)
        )
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -1e4).softmax(-1) @ value
        x = x + self.merge(mixed.transpose(1, 2).flatten(2))
        y: torch.Tensor = x + self.wide(self.second(x))
        return y
