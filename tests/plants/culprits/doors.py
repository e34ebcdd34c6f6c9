"""Code of the case's own that an export runs, by the doors that there are, and each kind of mistake by each door.

What is wrong is one function of two tensors. PyTorch computes it rightly; by one of the doors the exporter is given
something else, or, for the sound forms, the same. The line that a record has to name is within what stands between
``# door`` and the next empty line of ``beside.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.plants import edits
from tests.plants import sound as of
from tests.plants.plant import Plant, Planting, Written, written_into_the_case
from tests.plants.planting import exported

MARK = "# door"


@dataclass(frozen=True)
class Mistake:
    """One kind of mistake: expressions of ``x`` and ``y``, the right one and the wrong one of each language."""

    name: str
    operator: str
    """The operator of PyTorch that is computed, with its overload."""
    parameters: str
    """Those of a function of onnxscript for it, behind ``x``."""
    torch: tuple[str, str]
    symbolic: tuple[str, str]
    """With ``g`` at hand, and ``number(g, value)``."""
    translation: tuple[str, str]
    """With the operators ``op`` of ONNX at hand."""
    spelt: str = ""
    """The right one in operators that exporters have, where they lack that of PyTorch."""


MISTAKES = [
    Mistake(
        "a wrong constant", "aten::hardswish", "",
        ("F.hardswish(x)", "x * (x / 6 + 0.4).clamp(0, 1)"),
        ("g.op('Mul', x, g.op('HardSigmoid', x, alpha_f=1 / 6, beta_f=0.5))",
         "g.op('Mul', x, g.op('HardSigmoid', x, alpha_f=1 / 6, beta_f=0.4))"),
        ("op.Mul(x, op.HardSigmoid(x, alpha=0.16666667, beta=0.5))",
         "op.Mul(x, op.HardSigmoid(x, alpha=0.16666667, beta=0.4))"),
    ),
    Mistake(
        "operands swapped", "aten::sub.Tensor", ", y, alpha=1.0",
        ("torch.sub(x, y)", "torch.sub(y, x)"), ("g.op('Sub', x, y)", "g.op('Sub', y, x)"),
        ("op.Sub(x, y)", "op.Sub(y, x)"),
    ),
    Mistake(
        "another axis", "aten::softmax.int", ", dim, dtype=None",
        ("torch.softmax(x, 1)", "torch.softmax(x, 2)"),
        ("g.op('Softmax', x, axis_i=1)", "g.op('Softmax', x, axis_i=2)"),
        ("op.Softmax(x, axis=1)", "op.Softmax(x, axis=2)"),
    ),
    Mistake(
        "an operator left out", "aten::silu", "",
        ("F.silu(x)", "torch.sigmoid(x)"), ("g.op('Mul', x, g.op('Sigmoid', x))", "g.op('Sigmoid', x)"),
        ("op.Mul(x, op.Sigmoid(x))", "op.Sigmoid(x)"),
    ),
    Mistake(
        "an attribute left out", "aten::leaky_relu", ", slope=0.01",
        ("F.leaky_relu(x, 0.2)", "F.leaky_relu(x)"),
        ("g.op('LeakyRelu', x, alpha_f=0.2)", "g.op('LeakyRelu', x)"),
        ("op.LeakyRelu(x, alpha=0.2)", "op.LeakyRelu(x)"),
    ),
    Mistake(
        "another dtype", "aten::ceil", "",
        ("torch.ceil(x)", "torch.ceil(x).to(torch.int64)"),
        ("g.op('Ceil', x)", "g.op('Cast', g.op('Ceil', x), to_i=7)"),
        ("op.Ceil(x)", "op.Cast(op.Ceil(x), to=7)"),
    ),
    Mistake(
        "NaN at zero", "aten::sinc", "",
        ("torch.sinc(x)", "torch.sin(x * 3.14159265) / (x * 3.14159265)"),
        ("g.op('Where', g.op('Equal', x, number(g, 0)), number(g, 1), g.op('Div', g.op('Sin', g.op('Mul', x, "
         "number(g, 3.14159265))), g.op('Mul', x, number(g, 3.14159265))))",
         "g.op('Div', g.op('Sin', g.op('Mul', x, number(g, 3.14159265))), g.op('Mul', x, number(g, 3.14159265)))"),
        ("op.Where(op.Equal(x, 0.0), 1.0, op.Div(op.Sin(op.Mul(x, 3.14159265)), op.Mul(x, 3.14159265)))",
         "op.Div(op.Sin(op.Mul(x, 3.14159265)), op.Mul(x, 3.14159265))"),
        "torch.where(x == 0, torch.ones_like(x), torch.sin(x * 3.14159265) / (x * 3.14159265))",
    ),
    Mistake(
        "infinity for large values", "aten::softplus", ", beta=1.0, threshold=20.0",
        ("F.softplus(x)", "torch.log(torch.exp(x) + 1)"),
        ("g.op('Softplus', x)", "g.op('Log', g.op('Add', g.op('Exp', x), number(g, 1)))"),
        ("op.Softplus(x)", "op.Log(op.Add(op.Exp(x), 1.0))"),
    ),
]  # fmt: skip
SOME = [MISTAKES[number] for number in (0, 1, 2, 5, 6)]
"""Those by doors of which an export takes long."""

HEAD = """
import torch
import torch.nn.functional as F


def number(g, value):
    return g.op("Constant", value_t=torch.tensor(float(value)))

"""
NET = """

class Net(torch.nn.Module):
    def forward(self, x, y):
        x = torch.relu(x * 3) - y
        return {call}, torch.atan(x)
"""
X, Y = of.bounded(-60, 60), 'y: {type: "float32[batch, 4, 3]", values: {choice: [-1, 0, 0, 2]}}'
TORCHSCRIPT, DYNAMO = "{{torchscript: {{opsets: [17]{more}}}}}", "{{dynamo: {{opsets: [18]{more}}}}}"


def _net(python: str, call: str, export: str, more: str = "") -> Written:
    return of.case(
        "module beside.Net", f"{X}, {Y}", "batch: 2..3", export=export.format(more=more),
        python=f"{HEAD}{python}\n{NET.format(call=call)}",
    )  # fmt: skip


def _declared_symbolic(mistake: Mistake, wrong: bool, name: str) -> Written:
    operator = mistake.operator.partition(".")[0]
    more = f', symbolics: {{"{operator}": {{function: beside.written, without: "another graph"}}}}'
    python = f"""
{MARK}
def written(g, x, *rest):
    y = rest[0] if rest else None
    return {mistake.symbolic[wrong]}
"""
    return _net(python, mistake.torch[0], TORCHSCRIPT, more)


def _function(mistake: Mistake, wrong: bool, name: str) -> Written:
    python = f"""
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return {mistake.torch[0]}

    {MARK}
    @staticmethod
    def symbolic(g, x, y):
        return {mistake.symbolic[wrong]}
"""
    return _net(python, "Own.apply(x, y)", TORCHSCRIPT)


def _branch(condition: str) -> Callable[[Mistake, bool, str], Written]:
    def written(mistake: Mistake, wrong: bool, name: str) -> Written:
        python = f"""
def computed(x, y):
    {MARK}
    if {condition}:
        return {mistake.torch[1] if wrong else mistake.spelt or mistake.torch[0]}

    return {mistake.torch[0]}
"""
        return _net(python, "computed(x, y)", TORCHSCRIPT if "onnx" in condition else DYNAMO)

    return written


def _registered(mistake: Mistake, wrong: bool, name: str) -> Written:
    python = f"""
library = torch.library.Library("{name}", "DEF")
library.define("own(Tensor x, Tensor y) -> Tensor")
library.impl("own", lambda x, y: {mistake.torch[0]}, "CPU")


{MARK}
def written(g, x, y):
    return {mistake.symbolic[wrong]}

torch.onnx.register_custom_op_symbolic("{name}::own", written, 9)
"""
    return _net(python, f"torch.ops.{name}.own(x, y)", TORCHSCRIPT)


def _library(mistake: Mistake, wrong: bool, name: str) -> Written:
    """An operator with a kernel, of which the case file says how it is written in ONNX."""
    python = f"""
from onnxscript import opset18 as op


@torch.library.custom_op("{name}::own", mutates_args=())
def own(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return {mistake.torch[0]}


@own.register_fake
def _(x, y):
    return torch.empty_like(x)


{MARK}
def translated(x, y):
    return {mistake.translation[wrong]}
"""
    more = f', translations: {{"{name}::own": beside.translated}}'
    return _net(python, f"torch.ops.{name}.own(x, y)", DYNAMO, more)


def _composite(mistake: Mistake, wrong: bool, name: str) -> Written:
    """An operator that is made of others, which are others while it is exported."""
    python = f"""
library = torch.library.Library("{name}", "DEF")
library.define("own(Tensor x, Tensor y) -> Tensor")

def composed(x, y):
    {MARK}
    if torch.compiler.is_exporting():
        return {mistake.torch[1] if wrong else mistake.spelt or mistake.torch[0]}

    return {mistake.torch[0]}

library.impl("own", composed, "CompositeImplicitAutograd")
"""
    return _net(python, f"torch.ops.{name}.own(x, y)", DYNAMO)


def _translation(mistake: Mistake, wrong: bool, name: str) -> Written:
    python = f"""
from onnxscript import opset18 as op


{MARK}
def translated(x{mistake.parameters}):
    return {mistake.translation[wrong]}
"""
    return _net(python, mistake.torch[0], DYNAMO, f', translations: {{"{mistake.operator}": beside.translated}}')


QUICK = ("symbolics in the case file", "autograd.Function", "is_in_onnx_export", "register_custom_op_symbolic")
"""Those of the TorchScript exporter."""
DOORS: dict[str, Callable[[Mistake, bool, str], Written]] = {
    "symbolics in the case file": _declared_symbolic,
    "autograd.Function": _function,
    "is_in_onnx_export": _branch("torch.onnx.is_in_onnx_export()"),
    "is_exporting": _branch("torch.compiler.is_exporting()"),
    "torch.library": _library,
    "torch.library, composite": _composite,
    "translations in the case file": _translation,
    "register_custom_op_symbolic": _registered,
}


def plants() -> Iterator[Plant]:
    """A plant for each mistake by each door, or for some where an export takes long; and for each door right code
    beside an exporter that is wrong."""
    for door, written in DOORS.items():
        for mistake in MISTAKES if door in QUICK else SOME:
            name = f"{door}: {mistake.name}"
            case, right = (written(mistake, wrong, space(name, wrong)) for wrong in (True, False))
            yield _plant(name, case, right, written_into_the_case, door)
        name = f"{door}: sound, beside an arctangent that the exporter writes as a tangent"
        right = written(MISTAKES[0], False, space(name, False))
        yield _plant(name, right, None, exported(edits.exchanged("Atan", "Tan")), "")


def _plant(name: str, case: Written, right: Written | None, planting: Planting, door: str) -> Plant:
    lines = _marked(case.python) if door else None
    return Plant(
        name, "exporter", case, planting, sound=right, settings={"examples": 2}, own_code=bool(door), lines=lines,
        alone=True,
    )  # fmt: skip


def _marked(python: str) -> range:
    """The lines from the mark to the next empty one."""
    lines = python.splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip() == MARK)
    return range(start + 1, next(number for number, line in enumerate(lines) if number > start and not line) + 1)


def space(name: str, wrong: bool) -> str:
    """A namespace of operators, of which a process may define one only once."""
    return f"planted_{hashlib.sha256(f'{name} {wrong}'.encode()).hexdigest()[:12]}"
