"""Layers whose numbers are worth a look."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Several heads of scaled dot-product attention with a mask of the keys that count."""

    def __init__(self, heads=2, width=8):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, keep):
        batch, time, width = x.shape
        q, k, v = self.project(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        return self.out(y.transpose(1, 2).reshape(batch, time, width))


class GroupedConv(nn.Module):
    """A grouped convolution with stride and dilation."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 8, 3, stride=2, padding=1, dilation=2, groups=2)

    def forward(self, x):
        return self.conv(x)


class Linear(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.linear = nn.Linear(width, 16)

    def forward(self, x):
        return self.linear(x)


class LayerNorm(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        with torch.no_grad():
            self.norm.weight.uniform_(0.5, 1.5)
            self.norm.bias.normal_()

    def forward(self, x):
        return self.norm(x)


class GroupNorm(nn.Module):
    def __init__(self, groups=2):
        super().__init__()
        self.norm = nn.GroupNorm(groups, 6)
        with torch.no_grad():  # with ones and zeros nobody would notice that they are left out
            self.norm.weight.uniform_(0.5, 1.5)
            self.norm.bias.normal_()

    def forward(self, x):
        return self.norm(x)
