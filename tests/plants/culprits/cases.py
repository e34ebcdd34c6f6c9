"""Mistakes of whoever wrote the case; each with the same case written rightly, where there is such a thing."""

from __future__ import annotations

from collections.abc import Iterator

from tests.plants import sound as of
from tests.plants.plant import Plant, Written
from tests.plants.sound import BATCH, MODULES, X, Y, bounded, case, integers

OWN = """
import os
import time

import numpy as np
import torch
import torch.nn.functional as F


class Sine(torch.nn.Module):
    def __init__(self, times=1):
        super().__init__()
        self.times = times

    def forward(self, x):
        return torch.sin(x) * self.times


class Unbuildable(Sine):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, -2)


class Counts(Sine):
    count = 0

    def forward(self, x):
        type(self).count += 1
        return torch.sin(x) + self.count


class Remembers(Sine):
    last = 0.0

    def forward(self, x):
        y = torch.sin(x) + self.last
        type(self).last = float(x.flatten()[0])
        return y


class Clock(Sine):
    def forward(self, x):
        return torch.sin(x) + time.perf_counter() % 1


class Ends(Sine):
    def forward(self, x):
        os._exit(3)


class Waits(Sine):
    def forward(self, x):
        time.sleep(1000)
        return torch.sin(x)


class Replaces(Sine):
    def forward(self, x):
        np.isfinite = lambda x: np.ones(np.shape(x), bool)
        return torch.sin(x)


class TwoArguments(Sine):
    def forward(self, x, y):
        return torch.sin(x) + y


class ReadsAFile(Sine):
    def forward(self, x):
        with open("/nonexistent/planted") as file:
            return torch.sin(x) + float(file.read())


def right(shape, sizes, rng):
    return rng.standard_normal(shape).astype("float32")


def longer(shape, sizes, rng):
    return rng.standard_normal((*shape[:-1], shape[-1] + 1)).astype("float32")


def doubles(shape, sizes, rng):
    return rng.standard_normal(shape)


def raises(shape, sizes, rng):
    return rng.no_such_distribution(shape)


def nothing(shape, sizes, rng):
    return None


def draw_right(sizes, rng):
    return {"x": rng.standard_normal((sizes["batch"], 4, 3)).astype("float32")}


def draw_other_size(sizes, rng):
    return {"x": rng.standard_normal((sizes["batch"] + 1, 4, 3)).astype("float32")}


def draw_other_name(sizes, rng):
    return {"z": rng.standard_normal((sizes["batch"], 4, 3)).astype("float32")}


def no_arguments():
    return None


def symbolic(g):
    return g.op("Asinh", g)


def needless(g, x, y, alpha=None):
    return g.op("Sub", x, y)
"""


def own(what: str, inputs: str = X, *more: str, dims: str = BATCH, export: str = of.TORCHSCRIPT) -> Written:
    return case(what, inputs, dims, *more, export=export, python=OWN)


def made_by(function: str) -> Written:
    return own("torch.sin(x)", f'x: {{type: "float32[batch, 4, 3]", values: {{python: beside.{function}}}}}')


SINE = own("module beside.Sine")
MADE = made_by("right")
SUM = case("torch.sin(x) + y", f"{X}, {Y}", BATCH)
DRAWN = own("torch.sin(x)", X, "draw: beside.draw_right")
EMBEDDED = case("module beside.Embedding", integers(0, 6), BATCH)


def symbolic(operator: str, function: str) -> str:
    entry = f'{{function: beside.{function}, without: "another graph"}}'
    return f'{{torchscript: {{opsets: [17], symbolics: {{"{operator}": {entry}}}}}}}'


VARIANCE = "(x * x).sum(1) - x.sum(1) ** 2 / 300"
MISTAKES: list[tuple[str, Written, Written | None]] = [
    ("too few outputs declared", case("(torch.sin(x), torch.cos(x))", X, BATCH, "outputs: [a]"),
     case("(torch.sin(x), torch.cos(x))", X, BATCH, "outputs: [a, b]")),
    ("too many outputs declared", case("torch.sin(x)", X, BATCH, "outputs: [a, b]"), of.SIN),
    ("indices beyond an embedding", case("module beside.Embedding", integers(0, 9), BATCH), EMBEDDED),
    ("indices below an embedding", case("module beside.Embedding", integers(-9, 6), BATCH), EMBEDDED),
    ("indices beyond a gather",
     case("torch.gather(x, 1, i)", f'x: "float32[batch, 4]", {integers(0, 5)}', BATCH), of.GATHER),
    ("random numbers added", own("torch.sin(x) + torch.rand_like(x)"), of.SIN),
    ("dropout that is on", own("F.dropout(torch.sin(x), 0.5, training=True)"), of.SIN),
    ("random factors", own("torch.sin(x) * torch.randn(3)"), of.SIN),
    ("a counter that the class keeps", own("module beside.Counts"), SINE),
    ("the last call is remembered", own("module beside.Remembers"), SINE),
    ("the clock is read", own("module beside.Clock"), SINE),
    ("an output that is always zero", own("x - x"), of.SIN),
    ("an output that is constant", own("torch.ones_like(x) * 3"), of.SIN),
    ("one of two outputs is always zero", own("(torch.sin(x), x * 0)"), of.SIN),
    ("only NaN comes out", own("torch.sqrt(x)", bounded(-4, -1)), of.SQRT),
    ("digits cancel", own("(x + 100000000.0) - 100000000.0", bounded(1, 2)), own("(x + 1.0) - 1.0", bounded(1, 2))),
    ("digits cancel in a variance", own(VARIANCE, bounded(1000, 1001, "batch, 300")),
     own("x.sum(1) / 300", bounded(1000, 1001, "batch, 300"))),
    ("a module that cannot be built", own("module beside.Unbuildable"), SINE),
    ("a module that does not exist", own("module beside.Sinus"), SINE),
    ("arguments that the module does not take", own("module beside.Sine", X, "with: {factor: 2}"),
     own("module beside.Sine", X, "with: {times: 2}")),
    ("inputs that forward does not take", own("module beside.Sine", f"{X}, {Y}"), SINE),
    ("an input that is missing", own("module beside.TwoArguments"), own("module beside.TwoArguments", f"{X}, {Y}")),
    ("an expression that does not parse", own("torch.sin(x"), of.SIN),
    ("a name that nobody knows", own("torch.sin(z)"), of.SIN),
    ("a function that torch does not have", own("torch.sinus(x)"), of.SIN),
    ("forward returns text", own("'sine'"), of.SIN),
    ("forward returns bfloat16", own("torch.sin(x).bfloat16()"), of.SIN),
    ("values of another shape", made_by("longer"), MADE),
    ("a function for values raises", made_by("raises"), MADE),
    ("a function for values gives nothing", made_by("nothing"), MADE),
    ("a function for values takes nothing", made_by("no_arguments"), MADE),
    ("a draw hook of another size", own("torch.sin(x)", X, "draw: beside.draw_other_size"), DRAWN),
    ("a draw hook for another input", own("torch.sin(x)", X, "draw: beside.draw_other_name"), DRAWN),
    ("sizes that the module cannot do", own("x.reshape(-1, 24)"), own("x.reshape(-1, 12)")),
    ("an image below its kernel", case("F.max_pool2d(x, 5)", of.IMAGES, "batch: 1..3, h: 1..9, w: 5..9"),
     case("F.max_pool2d(x, 5)", of.IMAGES, "batch: 1..3, h: 5..9, w: 5..9")),
    ("a file that is not there", own("module beside.ReadsAFile"), SINE),
    ("a session option that does not exist",
     own("torch.sin(x)", X, "onnxruntime: {config: {session.plantd: 1}}"), of.SIN),
    ("a symbolic that takes other arguments",
     own("torch.asinh(x)", X, export=symbolic("aten::asinh", "symbolic")), None),
    ("a library that is not there", own("torch.sin(x)", X, "libraries: [planted.so]"), of.SIN),
    ("the process is ended", own("module beside.Ends"), SINE),
    ("a function is replaced that comparing rests on", own("module beside.Replaces"), SINE),
]  # fmt: skip


def plants() -> Iterator[Plant]:
    for name, mistaken, right in MISTAKES:
        yield Plant(name, "case", mistaken, sound=right)
    yield Plant("forward waits for ever", "case", own("module beside.Waits"), sound=SINE, timeout=15.0)
    needless = own("x - y", f"{X}, {Y}", export=symbolic("aten::sub", "needless"))
    yield Plant("a symbolic that changes nothing", "case", needless, check="registration")
    unknown = Written(of.NET.body.replace("fp16: {}", "fp16: {exclude: planted_node}"), MODULES)
    yield Plant("exclude names no node", "case", unknown, sound=of.NET, check="fidelity", precision="fp16")
    nothing = Written(f"{own('torch.sin(x)').body}\nprecisions: {{int8: {{}}}}", OWN)
    yield Plant("nothing to quantize", "case", nothing, check="fidelity", precision="int8")
