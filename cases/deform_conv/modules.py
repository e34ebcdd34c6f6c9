"""Deformable convolution as detectors use it: the offsets (and the mask) are predicted from the input."""

import torch
from torch import nn
from torchvision.ops import DeformConv2d, deform_conv2d  # noqa: F401 - the case file names the function


class PredictedDeformConv(nn.Module):
    """A plain convolution predicts where the deformable one looks.

    Torchvision has no argument for the groups of the offsets: it reads them from the number of channels.
    """

    def __init__(self, masked=False, groups=1, offset_groups=1, stride=1, padding=0, dilation=1, kernel=3):
        super().__init__()
        self.masked = masked
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        self.places = offset_groups * height * width
        same = {"stride": stride, "padding": padding, "dilation": dilation}
        self.predict = nn.Conv2d(4, (3 if masked else 2) * self.places, kernel, **same)
        self.deform = DeformConv2d(4, 6, kernel, groups=groups, **same)

    def forward(self, x):
        predicted = self.predict(x)
        if not self.masked:
            return self.deform(x, predicted)
        offset, mask = predicted.split([2 * self.places, self.places], dim=1)
        return self.deform(x, offset, torch.sigmoid(mask))
