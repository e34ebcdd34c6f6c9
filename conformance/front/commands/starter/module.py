"""The module of the case file beside this file; any torch.nn.Module will do, also one of your own package."""

import torch


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return torch.sigmoid(x) * self.factor
