import torch


class Blocks(torch.nn.Module):
    """Two convolutions of a size that a GPU has int8 and fp16 kernels for."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(8, 32, 3, padding=1)
        self.second = torch.nn.Conv2d(32, 16, 3, stride=2, padding=1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.sigmoid(1.5 * x)

    @staticmethod
    def symbolic(g, x):
        return g.op("vehicle::Gate", x).setType(x.type())


class Gated(torch.nn.Module):
    """Exports to an operator that only the vehicle's own runtime knows."""

    def forward(self, x):
        return _Gate.apply(x) + 1
