"""Small networks in which a precision loses accuracy at a known place."""

import numpy as np
import torch
from torch import nn


class Features(nn.Module):
    """A convolutional network of the usual parts: a stem, a depthwise block with a skip, and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.mix = nn.Conv2d(16, 16, 1)
        self.classify = nn.Linear(16, 5)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = x + self.mix(torch.relu(self.depthwise(x)))
        return self.classify(x.mean((2, 3)))


class Uneven(nn.Module):
    """Between its two convolutions the channels differ in size by up to ``ratio``, and all count alike in the end.

    That is what folding a batch norm with small variances leaves behind. One scale for the whole tensor then has no
    step small enough for the small channels.
    """

    def __init__(self, ratio):
        super().__init__()
        self.spread = nn.Conv2d(3, 8, 3, padding=1)
        self.gather = nn.Conv2d(8, 4, 1)
        sizes = torch.logspace(0, float(np.log10(ratio)), 8)
        with torch.no_grad():
            self.spread.weight *= sizes[:, None, None, None]
            self.spread.bias *= sizes
            self.gather.weight /= sizes[None, :, None, None]

    def forward(self, x):
        return self.gather(self.spread(x))


class Energy(nn.Module):
    """The energy of a signal relative to its loudest part. Squares of sounds as recorded do not fit fp16."""

    def forward(self, x):
        energy = (x * x).sum(-1, keepdim=True)
        return torch.sqrt(energy) / x.abs().amax(-1, keepdim=True)


def photos(shape, dims, rng):
    """Smooth brightness with a few glaring spots, so that the range and the bulk of the values are far apart."""
    array = rng.normal(0.0, 1.0, shape)
    spots = rng.random(shape) < 0.002
    return np.where(spots, 12.0, array).astype(np.float32)


def photos_of_a_day(rng):
    """Calibration data as a generator gives it: batches of a size of its own."""
    while True:
        yield {"x": photos((4, 3, 24, 24), {}, rng)}


class TwoOutputs(nn.Module):
    """Features, and what a linear layer over their channels makes of them."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        x = self.features(x)
        return self.last(x.permute(0, 2, 3, 1)), x
