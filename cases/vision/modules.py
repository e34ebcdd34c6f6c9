"""Classifiers from torchvision with random weights, calibrated so that their numbers mean something."""

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional as F


def classifier(name):
    """A torchvision model with the seeded random weights that its own constructor draws."""
    return torchvision.models.get_model(name, weights=None)


def images(shape, dims, rng):
    """Smooth colours with a little noise, as in photographs, all within the same range."""
    batch, channels, height, width = shape
    coarse = torch.from_numpy(rng.uniform(-1, 1, (batch, channels, 4, 4)))
    colours = F.interpolate(coarse, size=(height, width), mode="bilinear").numpy()
    return (colours + 0.3 * rng.uniform(-1, 1, shape)).astype(np.float32)


def calibrate(module):
    """Keeps activations and outputs of a randomly initialised classifier at a scale of about 1.

    With random weights and untouched statistics, activations shrink or grow from layer to layer, and outputs of
    1e-9 to 1e-14 come out, which nothing can be verified with. Three things help:

    - Every batch norm gets the statistics of one batch of images such as the case draws (momentum None makes
      that batch count in full), and
    - a weight of a quarter, or of a tenth at the end of a residual branch, where what was there before then
      outweighs what is added. With 1, rounding is amplified from block to block, until PyTorch's own float32 has
      few right digits left and fp16 has none.
    - The last layer is scaled and shifted so that its outputs are spread around 0 by 1.
    """
    batch = torch.from_numpy(images((32, 3, 64, 64), {}, np.random.default_rng(0)))
    residual = isinstance(module, (torchvision.models.ResNet, torchvision.models.RegNet))
    for name, layer in module.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
            ends_branch = name.endswith((".bn3", ".f.c.1"))
            nn.init.constant_(layer.weight, (0.1 if ends_branch else 1.0) if residual else 0.25)
    last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        module.train()(batch)
        outputs = module.eval()(batch)
        mean = outputs.mean(0)
        spread = (outputs - mean).std()
        last.bias.copy_((last.bias - mean) / spread)
        last.weight.div_(spread)
