"""Metrics, and preparations of raw data, of cases with data of their own (``make`` wrote the data)."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

MEAN, STD = (0.48, 0.45, 0.4), (0.22, 0.24, 0.21)


class Nearest(nn.Module):
    """The scores of four classes by how near a point is to their centres."""

    def __init__(self):
        super().__init__()
        centres = torch.tensor(_centres(np.random.default_rng(1)))
        self.scores = nn.Linear(6, 4)
        with torch.no_grad():
            self.scores.weight.copy_(centres)
            self.scores.bias.copy_(-centres.square().sum(1) / 2)

    def forward(self, x):
        return self.scores(x)


def top1(outputs, batch):
    """Return for each sample whether the label has the highest score."""
    return outputs[0].argmax(1) == batch["label"]


def as_trained(raw):
    """Prepare photos as the training does: RGB, channels first, by its mean and deviation."""
    return np.moveaxis((raw["photos"] / 255 - MEAN) / STD, -1, 1).astype(np.float32)


def as_deployed(raw):
    """The same with float32 alone, as the deployment computes it."""
    photos = raw["photos"].astype(np.float32)
    scale, shift = np.float32(1 / 255) / np.float32(STD), np.float32(MEAN) / np.float32(STD)
    return np.ascontiguousarray(np.moveaxis(photos * scale - shift, -1, 1))


def as_opened_by_opencv(raw):
    """The same of photos whose channels come as BGR."""
    return as_deployed({"photos": raw["photos"][..., ::-1]})


def _centres(rng):
    return rng.normal(0, 1.2, (4, 6)).astype(np.float32)


def make(folder):
    """Write points around the centres, and photos of smooth colours."""
    rng = np.random.default_rng(1)
    centres, labels = _centres(rng), rng.integers(0, 4, 600)
    points = (centres[labels] + rng.normal(0, 1, (600, 6))).astype(np.float32)
    np.savez_compressed(Path(folder) / "points.npz", x=points, label=labels.astype(np.int8))
    at = np.linspace(0, 3, 12)
    waves = [np.sin(at[:, None] * rng.normal() + at * rng.normal() + rng.normal()) for _ in range(12)]
    photos = np.moveaxis(np.reshape(waves, (4, 3, 12, 12)), 1, -1) * 110 + 128
    np.savez_compressed(Path(folder) / "raw_photos.npz", photos=photos.astype(np.uint8))
