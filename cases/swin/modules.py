"""Swin-T as torchvision has it, small and with random weights."""

import torch
from torchvision.models import swin_t


def small_swin_t():
    return swin_t(weights=None, num_classes=10)


def at_scale(module):
    """Random position biases and norms, so that each part of the model shows in its output.

    As torchvision initializes them they are almost or exactly neutral, and losing one would not show.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "relative_position_bias" in name:
                parameter.normal_(0, 1)
            elif "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
