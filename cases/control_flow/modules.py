"""Modules whose path depends on data."""

import torch
from torch import nn


class Branch(nn.Module):
    """Doubles an input with a positive sum, and negates others."""

    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return -x


class CondBranch(nn.Module):
    """The same, in the form that torch.export understands."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, (x,))


class Loop(nn.Module):
    """A recurrence with one step for each row; how many there are is known only when it runs."""

    def forward(self, x):
        state = x[0]
        for i in range(1, x.size(0)):
            state = torch.tanh(state) + x[i]
        return state
