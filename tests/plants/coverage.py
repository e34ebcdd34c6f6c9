"""Ten fresh networks, each with a branch that does not reach the output, and defects in that branch.

A defect is a property of the module while it is exported, and of nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from tests.plants.plant import Plant, Planted, Planting, Written, written_into_the_case

DEFECTS = ("left out", "activation exchanged", "epsilon", "scale")
SOUND = "sound"
WAYS = {
    "as it is": "",
    "declared hollow": "hollow: it is fresh, and a branch of it is asleep",
    "woken": "weights: awake",
}
"""The ways in which the case of a network may be written."""

PYTHON = """
import torch
import torch.nn.functional as F

WIDTH = 8


class Branch(torch.nn.Module):
    '''A norm, two projections with an activation between them; the defects are here.'''

    defect = ""

    def __init__(self, std=None, zero=False):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(WIDTH, 16), torch.nn.Linear(16, WIDTH)
        self.weight, self.bias = torch.nn.Parameter(torch.ones(WIDTH)), torch.nn.Parameter(torch.zeros(WIDTH))
        for layer in (self.inner, self.outer):
            if std is not None:
                torch.nn.init.normal_(layer.weight, std=std)
                torch.nn.init.zeros_(layer.bias)
        if zero:
            torch.nn.init.zeros_(self.outer.weight)
            torch.nn.init.zeros_(self.outer.bias)

    def normed(self, x):
        return F.layer_norm(x, (WIDTH,), self.weight, self.bias, 1e-2 if self.defect == "epsilon" else 1e-5)

    def forward(self, x):
        x = self.inner(self.normed(x))
        x = self.outer(F.relu(x) if self.defect == "activation exchanged" else F.gelu(x))
        if self.defect in ("left out", "scale"):
            x = x * (0.0 if self.defect == "left out" else 1.1)
        return x


class Images(Branch):
    '''The same of images, with a batch norm.'''

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Conv2d(WIDTH, WIDTH, 3, padding=1), torch.nn.Conv2d(WIDTH, WIDTH, 1)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("variance", torch.ones(WIDTH))

    def normed(self, x):
        epsilon = 1e-2 if self.defect == "epsilon" else 1e-5
        return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias, eps=epsilon)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.branch, self.last = self.make(), torch.nn.Linear(WIDTH, 4)
        self.more()

    def make(self):
        return Branch()

    def more(self):
        pass

    def forward(self, x):
        return self.last(self.joined(x, self.branch(x)))


class LayerScale(Net):
    def more(self):
        self.gamma = torch.nn.Parameter(torch.full((WIDTH,), 1e-6))

    def joined(self, x, y):
        return x + self.gamma * y


class ReZero(Net):
    def more(self):
        self.alpha = torch.nn.Parameter(torch.zeros(1))

    def joined(self, x, y):
        return x + self.alpha * y


class ClosedGate(Net):
    def more(self):
        self.gate = torch.nn.Parameter(torch.zeros(WIDTH))

    def joined(self, x, y):
        return x + torch.tanh(self.gate) * y


class ZeroProjection(Net):
    def make(self):
        return Branch(zero=True)

    def joined(self, x, y):
        return x + y


class LastNorm(Net):
    '''A norm behind the branch whose weight begins at zero.'''

    def more(self):
        self.norm = torch.nn.LayerNorm(WIDTH)
        torch.nn.init.zeros_(self.norm.weight)

    def joined(self, x, y):
        return x + self.norm(y)


class Adapter(Net):
    '''Beside a projection, one that begins at zero.'''

    def make(self):
        return Branch(zero=True)

    def more(self):
        self.base = torch.nn.Linear(WIDTH, WIDTH)

    def joined(self, x, y):
        return self.base(x) + y


class Highway(Net):
    def more(self):
        self.gate = torch.nn.Linear(WIDTH, WIDTH)
        torch.nn.init.constant_(self.gate.bias, -20.0)

    def joined(self, x, y):
        open = torch.sigmoid(self.gate(x))
        return open * y + (1 - open) * x


class SmallNormals(Net):
    '''Projections of 0.02 normals one after another.'''

    def make(self):
        return Branch(std=0.02)

    def more(self):
        self.behind = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        torch.nn.init.normal_(self.behind.weight, std=0.02)

    def joined(self, x, y):
        return x + self.behind(self.behind(y))


class Squeeze(Net):
    '''Scales what it is given by a half, until its last projection is trained.'''

    def make(self):
        return Branch(zero=True)

    def joined(self, x, y):
        return x * torch.sigmoid(y)


class ZeroResidual(Net):
    '''A residual of images whose last batch norm begins at zero.'''

    def make(self):
        return Images()

    def more(self):
        self.norm = torch.nn.BatchNorm2d(WIDTH)
        torch.nn.init.zeros_(self.norm.weight)

    def joined(self, x, y):
        return (x + self.norm(y)).mean((2, 3))
"""
NETWORKS = ("LayerScale", "ReZero", "ClosedGate", "ZeroProjection", "LastNorm", "Adapter", "Highway", "SmallNormals",
            "Squeeze", "ZeroResidual")  # fmt: skip


def plants() -> Iterator[Plant]:
    """Each network with each defect and without one, in each way of writing its case."""
    for network in NETWORKS:
        shape = "batch, 8, 5, 5" if network == "ZeroResidual" else "batch, 5, 8"
        for way, line in WAYS.items():
            lines = [
                f"module: beside.{network}", f'inputs: {{x: "float32[{shape}]"}}', "dims: {batch: 1..4}",
                "runtimes: onnxruntime", "specials: false", "export: {torchscript: [17]}", *filter(None, [line]),
            ]  # fmt: skip
            for defect in (SOUND, *DEFECTS):
                planting = written_into_the_case if defect == SOUND else exported_with(defect)
                yield Plant(name_of(network, defect, way), "exporter", Written("\n".join(lines), PYTHON), planting)


def name_of(network: str, defect: str, way: str) -> str:
    return f"{network}, {defect}, {way}"


def exported_with(defect: str) -> Planting:
    """What is exported has the defect, and what PyTorch computes has not."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        from conformance.models import cell_run as models

        original: Callable[..., Any] = vars(models)["export"]

        def export(reference: Any, *arguments: Any, **options: Any) -> Any:
            planted.note()
            with mock.patch.object(reference.module.branch, "defect", defect):
                return original(reference, *arguments, **options)

        with mock.patch.object(models, "export", export):
            yield

    return planting
