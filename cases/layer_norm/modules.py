"""What the cases of this folder share."""

import torch


def seeded_affine(module):
    """Weights and biases other than the ones and zeros they start with, which would hide their loss."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))


def layer_norm(size):
    return torch.nn.LayerNorm(size)
