"""Networks whose submodules are hard to tell apart in a graph, symbolics that are wrong, and cases made of them."""

import pytest

from tests.kit.cases import say, with_symbolic

PYTHON = """
import numpy as np
import torch
from torch import nn
class Made(nn.Module):
    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
class Block(Made):
    def __init__(self, channels):
        super().__init__(
            conv1=nn.Conv2d(channels, channels, 3, padding=1), bn1=nn.BatchNorm2d(channels),
            relu=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(channels, channels, 1), bn2=nn.BatchNorm2d(channels),
        )
    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.relu(out)
class Network(Made):
    def __init__(self):
        super().__init__(
            stem=nn.Conv2d(3, 4, 3, padding=1), layers=nn.Sequential(Block(4), Block(4)), act=nn.Hardswish(),
            aside=nn.Sigmoid(), drop=nn.Dropout(), head=nn.Linear(4, 5),
        )
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
    def forward(self, x):
        x = self.stem(x)
        y = self.act(self.layers(x)) + self.aside(x)
        return self.head(self.drop(y).mean((2, 3)))
class Twice(Made):
    def __init__(self):
        sub = nn.Sequential(nn.Linear(4, 4), nn.Hardswish())
        super().__init__(before=nn.Linear(4, 4), sub=sub, after=nn.Linear(4, 4))
    def forward(self, x):
        return self.after(self.sub(torch.tanh(self.sub(self.before(x)))))
class Fewer(Made):
    '''Submodules that are not in the graph: one that does nothing, one nobody needs, one known beforehand.'''
    def __init__(self):
        super().__init__(
            first=nn.Linear(4, 4), same=nn.Identity(), idle=nn.Linear(4, 4), places=nn.Embedding(3, 4), solid=Solid()
        )
    def forward(self, x):
        x = self.same(x)
        y = self.first(x)
        self.idle(y)
        return self.solid(y) + self.places(torch.tensor([1]))
class Solid(Made):
    def __init__(self):
        super().__init__(last=nn.Linear(4, 4))
    def forward(self, x):
        return self.last(x).clone()
class Last(Made):
    def __init__(self):
        super().__init__(first=nn.Linear(4, 4), act=nn.Hardswish())
    def forward(self, x):
        return self.act(self.first(x)) * 2
class Branches(Made):
    def __init__(self):
        super().__init__(one=nn.Hardswish(), two=nn.Hardswish(), sound=nn.Sigmoid(), after=nn.Linear(4, 4))
    def forward(self, x):
        return self.after(self.one(x)) + self.two(x * 2) + self.sound(x)
class Loud(Made):
    '''Its second layer reaches some 100,000, its third brings that back.'''
    def __init__(self):
        super().__init__(**{name: nn.Linear(4, 4, bias=False) for name in ("first", "loud", "last")})
        with torch.no_grad():
            for layer, factor in ((self.first, 100), (self.loud, 1e4), (self.last, 1e-5)):
                layer.weight *= factor
    def forward(self, x):
        return self.last(self.loud(self.first(x)))
class Uneven(Made):
    def __init__(self):
        super().__init__(spread=nn.Conv2d(3, 8, 3, padding=1), gather=nn.Conv2d(8, 4, 1), last=nn.Conv2d(4, 4, 1))
        sizes = torch.logspace(0, 2, 8)
        with torch.no_grad():
            self.spread.weight *= sizes[:, None, None, None]
            self.spread.bias *= sizes
            self.gather.weight /= sizes[None, :, None, None]
    def forward(self, x):
        return self.last(self.gather(self.spread(x)))
def symbolic(g, x):
    '''Hardswish, one per cent too large.'''
    return g.op("Mul", g.op("HardSwish", x), g.op("Constant", value_t=torch.tensor(1.01)))
def flat(g, x):
    '''Of another shape.'''
    return g.op("Flatten", g.op("HardSwish", x), axis_i=0)
def poisoned(g, x):
    '''NaN where the input is below -1.'''
    low = g.op("Less", x, g.op("Constant", value_t=torch.tensor(-1.0)))
    return g.op("Where", low, g.op("Constant", value_t=torch.tensor(float("nan"))), g.op("HardSwish", x))
"""

IMAGES = 'inputs: {x: "float32[batch, 3, h, 6]"}\ndims: {batch: 1..4, h: 5..9}\nruntimes: onnxruntime'
ROWS = 'inputs: {x: "float32[batch, 4]"}\ndims: {batch: 2..4}\nruntimes: onnxruntime'
BOTH = "export: {torchscript: [17], dynamo: [20]}"
EXPORTERS = pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
DYNAMO_THOROUGH = pytest.mark.parametrize(
    "exporter", ["torchscript", pytest.param("dynamo", marks=pytest.mark.thorough)]
)
"""Both exporters, where what dynamo writes differs but little from what other tests have of it."""


def network(name: str, shapes: str = ROWS, *more: str) -> str:
    return say(f"module: beside.{name}", shapes, *(more or (BOTH,)))


def wrong(name: str, symbolic: str, shapes: str = ROWS) -> str:
    """A case whose Hardswish has a symbolic of its own."""
    return network(name, shapes, with_symbolic("aten::hardswish").replace("beside.symbolic", f"beside.{symbolic}"))


FP16 = network("Loud", ROWS, "export: {torchscript: [17]}", "precisions: {fp16: {}, fp16-kept: {exclude: /loud/*}}")
INT8 = network("Uneven", IMAGES, "export: {torchscript: [17]}", "precisions: {int8: {}}")
