"""The defects: wrong exports of which the operator is known, wrong passes, conversions that lose too much."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tests.plants.location.exports import plants as wrong_exports
from tests.plants.passes.defects import plants as wrong_passes
from tests.plants.plant import Plant, Written

PASSES = ("MatMulAddFusion", "ConvAddFusion", "ConvMulFusion", "ConvActivationFusion", "FuseReluClip", "GeluFusionL2",
          "NotWhereFusion", "QuickGeluFusion", "a power of 4 taken for 2 in a layer norm",
          "zeros around what is below zero")  # fmt: skip

NETWORKS = """
import torch


class Uneven(torch.nn.Module):
    '''Channels a hundred times apart, which 8 bits cannot hold by one scale.'''

    def __init__(self):
        super().__init__()
        self.spread, self.last = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(4, 4, 1)
        self.gather = torch.nn.Conv2d(8, 4, 1)
        sizes = torch.logspace(0, 2, 8)
        with torch.no_grad():
            self.spread.weight *= sizes[:, None, None, None]
            self.spread.bias *= sizes
            self.gather.weight /= sizes[None, :, None, None]

    def forward(self, x):
        return self.last(self.gather(self.spread(x)))


class Subnormal(torch.nn.Module):
    '''Weights that have three digits fewer in fp16 than others.'''

    def __init__(self):
        super().__init__()
        self.first, self.tiny = torch.nn.Linear(16, 16, bias=False), torch.nn.Linear(16, 16, bias=False)
        self.last = torch.nn.Linear(16, 4)
        with torch.no_grad():
            self.first.weight *= 1000
            self.tiny.weight *= 1e-5

    def forward(self, x):
        return self.last(torch.tanh(self.tiny(self.first(x)) * 100))


class Squares(torch.nn.Module):
    '''Digits that cancel in fp16.'''

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x) * 0.1
        return self.last((x + 100.0) - 100.0)
"""
PRECISION = {
    "channels a hundred times apart": ("Uneven", "float32[batch, 3, 8, 8]", "int8"),
    "weights that are subnormal": ("Subnormal", "float32[batch, 16]", "fp16"),
    "digits that cancel": ("Squares", "float32[batch, 16]", "fp16"),
}
"""By what is lost: the module, its input, the precision."""


def plants() -> Iterator[Plant]:
    for plant in wrong_exports():
        body = f"{plant.body}\nruntimes: onnxruntime\nspecials: false"
        yield Plant(plant.name, "exporter", Written(body, plant.python))
    for wrong in wrong_passes():
        if wrong.name.partition(": ")[2] in PASSES:
            yield dataclasses.replace(wrong, name=f"pass: {wrong.name.partition(': ')[2]}")
    for name, (module, given, precision) in PRECISION.items():
        lines = [
            f"module: beside.{module}", f'inputs: {{x: "{given}"}}', "dims: {batch: 1..4}", "runtimes: onnxruntime",
            "specials: false", "export: {torchscript: [17]}", f"precisions: {{{precision}: {{}}}}",
        ]  # fmt: skip
        yield Plant(
            f"precision: {name}", "conversion", Written("\n".join(lines), NETWORKS), check="fidelity",
            precision=precision, settings={"examples": 2},
        )  # fmt: skip
