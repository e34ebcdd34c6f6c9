"""torchvision's modules of operators, and its networks at small sizes with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torchvision
from torch import nn

from evidence.accusations.samples import Named, Sample

IMAGES = (2, 3, 32, 32)

NETWORKS: dict[str, tuple[int, ...]] = {
    "resnet18": IMAGES, "squeezenet1_1": IMAGES, "mobilenet_v2": IMAGES, "mobilenet_v3_small": IMAGES,
    "shufflenet_v2_x0_5": IMAGES, "mnasnet0_5": IMAGES, "regnet_y_400mf": IMAGES, "efficientnet_b0": IMAGES,
    "lraspp_mobilenet_v3_large": (1, 3, 48, 48),
}  # fmt: skip
"""By name, the shape of their input."""


def _vit() -> nn.Module:
    module = torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10)
    nn.init.normal_(module.heads[-1].weight)  # it begins with zeros, whose outputs are zeros
    return module


def _swin() -> nn.Module:
    return torchvision.models.SwinTransformer([4, 4], 16, [1, 1], [2, 4], [4, 4], num_classes=10)


def _convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig

    return torchvision.models.ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], num_classes=10)


def _densenet() -> nn.Module:
    return torchvision.models.DenseNet(8, (2, 2), 16, num_classes=10)


SMALL: dict[str, Callable[[], nn.Module]] = {
    "vision_transformer": _vit, "swin_transformer": _swin, "convnext": _convnext, "densenet": _densenet,
}  # fmt: skip


class Pyramid(nn.Module):
    """A feature pyramid of two levels; its module takes a mapping, which a case has no input for."""

    def __init__(self) -> None:
        super().__init__()
        self.pyramid = torchvision.ops.FeaturePyramidNetwork([4, 6], 5)

    def forward(self, fine: torch.Tensor, coarse: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.pyramid({"fine": fine, "coarse": coarse}).values())


class Regions(nn.Module):
    """An operator of regions of the first image: a corner and a size, from 0 to 1 each, so that all are regions."""

    def __init__(self, operator: nn.Module) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: torch.Tensor, regions: torch.Tensor) -> Any:
        low = regions[:, :2] * 5
        high = low + 2 + regions[:, 2:] * 5
        return self.operator(x, torch.cat([torch.zeros_like(low[:, :1]), low, high], 1))


UNIT = {1: "{uniform: {low: 0, high: 1}}"}

OPERATORS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]], dict[int, str]]] = {
    "RoIAlign(3, 0.5, 2)": (
        lambda: Regions(torchvision.ops.RoIAlign(3, 0.5, 2)), [(1, 4, 9, 8), (5, 4)], UNIT),
    "RoIAlign(3, 1.0, 2, aligned=True)": (
        lambda: Regions(torchvision.ops.RoIAlign(3, 1.0, 2, aligned=True)), [(1, 4, 9, 8), (5, 4)], UNIT),
    "RoIPool(3, 1.0)": (lambda: Regions(torchvision.ops.RoIPool(3, 1.0)), [(1, 4, 9, 8), (5, 4)], UNIT),
    "PSRoIAlign(2, 1.0, 2)": (
        lambda: Regions(torchvision.ops.PSRoIAlign(2, 1.0, 2)), [(1, 8, 9, 8), (5, 4)], UNIT),
    "PSRoIPool(2, 1.0)": (lambda: Regions(torchvision.ops.PSRoIPool(2, 1.0)), [(1, 8, 9, 8), (5, 4)], UNIT),
    "DeformConv2d(4, 6, 3, padding=1)": (
        lambda: torchvision.ops.DeformConv2d(4, 6, 3, padding=1), [(2, 4, 6, 5), (2, 18, 6, 5)],
        {1: "{uniform: {low: -2, high: 2}}"}),
    "FrozenBatchNorm2d(6)": (lambda: torchvision.ops.FrozenBatchNorm2d(6), [(2, 6, 5, 4)], {}),
    "SqueezeExcitation(8, 4)": (lambda: torchvision.ops.SqueezeExcitation(8, 4), [(2, 8, 5, 4)], {}),
    "SqueezeExcitation(8, 4, Hardsigmoid)": (
        lambda: torchvision.ops.SqueezeExcitation(8, 4, scale_activation=nn.Hardsigmoid), [(2, 8, 5, 4)], {}),
    "StochasticDepth(0.5, 'row')": (lambda: torchvision.ops.StochasticDepth(0.5, "row"), [(2, 8, 5, 4)], {}),
    "DropBlock2d(0.5, 3)": (lambda: torchvision.ops.DropBlock2d(0.5, 3), [(2, 4, 6, 5)], {}),
    "MLP(8, [16, 4])": (lambda: torchvision.ops.MLP(8, [16, 4]), [(3, 8)], {}),
    "MLP(8, [16, 4], LayerNorm, GELU)": (
        lambda: torchvision.ops.MLP(8, [16, 4], partial(nn.LayerNorm, eps=1e-6), nn.GELU), [(3, 8)], {}),
    "Conv2dNormActivation(4, 6)": (lambda: torchvision.ops.Conv2dNormActivation(4, 6), [(2, 4, 6, 5)], {}),
    "Conv2dNormActivation(4, 6, Hardswish)": (
        lambda: torchvision.ops.Conv2dNormActivation(4, 6, 5, 2, activation_layer=nn.Hardswish), [(2, 4, 6, 5)], {}),
    "Conv3dNormActivation(4, 6)": (lambda: torchvision.ops.Conv3dNormActivation(4, 6), [(2, 4, 4, 6, 5)], {}),
    "Permute([0, 2, 3, 1])": (lambda: torchvision.ops.Permute([0, 2, 3, 1]), [(2, 4, 6, 5)], {}),
    "Pyramid()": (Pyramid, [(2, 4, 8, 8), (2, 6, 4, 4)], {}),
}  # fmt: skip
"""By how they are called: the module, the shapes of its inputs, and what they have to be."""


def samples() -> Iterator[Named]:
    for number, about in enumerate(OPERATORS):
        yield f"{about.partition('(')[0]}_vision_{number}", partial(_operator, about)
    for name in (*NETWORKS, *SMALL):
        yield name, partial(_network, name)


def _operator(about: str) -> Sample:
    module, shapes, values = OPERATORS[about]
    given = [torch.rand(shape) if place in values else torch.randn(shape) for place, shape in enumerate(shapes)]
    # tensors whose range is declared are places and sizes, which NaN is none of
    specials = [0] if values else None
    return Sample(f"torchvision.ops.{about}", module(), given, values=values, specials=specials)


def _network(name: str) -> Sample:
    shape = NETWORKS.get(name, IMAGES)
    options = {"weights_backbone": None} if name.startswith("lraspp") else {}
    build = SMALL.get(name) or partial(torchvision.models.get_model, name, weights=None, **options)
    return Sample(f"torchvision.models: {name} at {shape}", _settled(build(), shape), [torch.randn(shape)], shapes=1)


def _settled(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """With statistics of its own kind of input, as a trained network has: fresh ones let values grow with every layer
    that is left out of a norm."""
    module.train()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(4, *shape[1:]))
    return module.eval()
