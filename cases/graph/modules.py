"""Small modules whose exported graphs are looked at."""

import torch
from torch import nn

# ---- one operator, two heads ------------------------------------------------------------------------


class CopiedLinear(nn.Module):
    """A linear layer with given weights: small whole numbers, so that its outputs are exact."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[1.0, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]))

    def forward(self, x):
        return self.linear(x)


class TwoHeads(nn.Module):
    """One trunk, a classifier and a box regressor, as in a detector."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(6, 8)
        self.classes = nn.Linear(8, 5)
        self.boxes = nn.Linear(8, 4)

    def forward(self, x):
        shared = torch.relu(self.trunk(x))
        return self.classes(shared), self.boxes(shared)


# ---- batch norm --------------------------------------------------------------------------------------


class ConvBatchNormReLU(nn.Module):
    """Statistics and weights of the batch norm are away from 0 and 1, so that leaving it out would show. One variance
    is so small that its epsilon shows."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        with torch.no_grad():
            for tensor in (self.norm.weight, self.norm.running_var):
                tensor.uniform_(0.5, 1.5)
            for tensor in (self.norm.bias, self.norm.running_mean):
                tensor.normal_()
            self.norm.running_var[0] = 0.01

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


# ---- several inputs and outputs ----------------------------------------------------------------------


class Mixed(nn.Module):
    """Floats, indices, a mask and a 0-d scale in; floats, integers, bools and a 0-d count out, nested."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)

    def forward(self, x, index, mask, scale):
        found = x * scale + self.table(index)
        kept = torch.where(mask.unsqueeze(-1), found, torch.zeros_like(found))
        return kept, (kept.argmax(-1), {"any": mask.any(-1), "count": mask.sum()})


class Keyword(nn.Module):
    """A mask that callers pass by keyword, past an argument that they leave out."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 5)

    def forward(self, x, bias=None, mask=None):
        y = self.linear(x)
        if bias is not None:
            y = y + bias
        return y if mask is None else y.masked_fill(mask, -1.0)


class KeywordOnly(Keyword):
    """The same with a mask that can be passed in no other way."""

    def forward(self, x, bias=None, *, mask=None):
        return super().forward(x, bias, mask)


class Square(torch.autograd.Function):
    """Exports as a node of a domain of one's own."""

    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def symbolic(g, x):
        return g.op("course.example::Square", x)


class CustomSquare(nn.Module):
    def forward(self, x):
        return Square.apply(x) + 1
