"""The operators that ``--fix`` can write, all of them in the place of torch's own, against PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.checks.edits import flow
from conformance.repairs.written import NAMESAKES, written
from tests.support import Bench, say

OPERATORS = {
    "arithmetic": (
        "add sub rsub mul div floor_divide remainder fmod trunc frac round clamp clamp_min clamp_max where "
        "masked_fill lerp addcmul addcdiv xlogy logaddexp sign",
        """
torch.add(x, y, alpha=2); torch.sub(x, y, alpha=3); torch.rsub(x, 2.0); x * y; x / y
torch.div(x, y, rounding_mode='floor'); torch.div(x, y, rounding_mode='trunc'); torch.floor_divide(x, 0.7)
torch.remainder(x, -0.7); torch.remainder(x, y); torch.fmod(x, y); torch.trunc(x); torch.frac(x); torch.round(x)
torch.clamp(x, -0.5); torch.clamp(x, -0.5, 0.5); torch.clamp_min(x, 0.1); torch.clamp_max(x, 0.2); torch.sign(x)
torch.where(x > 0, x, y); x.masked_fill(x > 0, 2.0); torch.lerp(x, y, 0.3); torch.lerp(x, y, y)
torch.addcmul(x, x, y, value=2); torch.addcdiv(x, x, y + 3, value=2); torch.xlogy(x.abs(), y.abs())
torch.logaddexp(x, y)
""",
    ),
    "whole numbers": (
        "floor_divide remainder fmod div mul add sum clamp cumsum sign",
        """
i // j; i % j; torch.fmod(i, j); torch.div(i, j, rounding_mode='trunc'); i / j; i // 3; i % -3; i * 2.5
torch.div(i, 3, rounding_mode='floor'); torch.sum(i > 0); torch.sum(i, 1); torch.clamp(i, -2, 2); torch.cumsum(i, 1)
torch.sign(i); x[:, :3] // i.abs().clamp(1)
""",
    ),
    "activations": (
        "leaky_relu elu celu selu softplus log_sigmoid gelu hardsigmoid hardswish hardtanh relu6 hardshrink "
        "softshrink threshold silu mish prelu",
        """
F.leaky_relu(x, 0.3); F.elu(y, 0.4); F.celu(y, 0.7); F.selu(y); F.softplus(x, 3.0); F.logsigmoid(x); F.gelu(x)
F.gelu(x, approximate='tanh'); F.hardsigmoid(x); F.hardswish(x); F.hardtanh(x, -0.3, 0.4); F.relu6(x * 5)
F.hardshrink(x, 0.3); F.softshrink(x, 0.3); F.threshold(x, 0.1, -2.0); F.silu(x); F.mish(x)
F.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4]))
""",
    ),
    "reductions": (
        "mean sum amax amin logsumexp softmax log_softmax cumsum layer_norm rms_norm cosine_similarity roll "
        "batch_norm argmax argmin addmm baddbmm",
        """
x.mean(); x.mean(1); x.mean((0, 1), keepdim=True); x.sum(-1); x.sum(); x.amax(1); x.amin(0, keepdim=True)
torch.logsumexp(x, 1); torch.softmax(x, 1); torch.log_softmax(x, -1); torch.cumsum(x, 1); F.cosine_similarity(x, y)
F.layer_norm(x, (4,), w, w, 1e-3); F.layer_norm(x, (4,)); F.rms_norm(x, (4,), w, 1e-3); F.rms_norm(x, (4,))
torch.roll(x, 3, 1); torch.roll(x, (5, -2), (0, -1)); torch.roll(x, 3); F.batch_norm(x, w, w, w, w, eps=1e-2)
torch.argmax(x, 1); torch.argmin(x, 1, keepdim=True); torch.argmax(x)
torch.addmm(x, y, torch.eye(4) + 0.3, beta=0.5, alpha=2.0)
torch.baddbmm(x[None], x[None], torch.eye(4)[None] + 0.3, beta=0.5, alpha=2.0)
""",
    ),
    "pools": (
        "avg_pool1d avg_pool2d avg_pool3d",
        """
F.avg_pool2d(p, 2, divisor_override=3); F.avg_pool2d(p, 3, 2, 1); F.avg_pool2d(p[0], 2)
F.avg_pool2d(p, 3, 2, 1, count_include_pad=False); F.avg_pool2d(p, (2, 3), (1, 2))
F.avg_pool2d(p, 3, 2, 1, False, True, 3); F.avg_pool1d(p[:, 0], 3, 2, 1)
F.avg_pool3d(p[None], 2, 2, divisor_override=5)
""",
    ),
}  # fmt: skip
"""Operators, and expressions that call them with arguments of all kinds."""
INPUTS = """
inputs:
  x: float32[batch, 4]
  y: {type: "float32[batch, 4]", values: {uniform: {low: -3, high: -1}}}
  i: {type: "int64[batch, 3]", values: {integers: {low: -9, high: 9}}}
  j: {type: "int64[batch, 3]", values: {integers: {low: 1, high: 4}}}
  p: float32[batch, 2, 7, 6]
dims: {batch: 1..4}
trace: {batch: 3}
examples: {values: 2, shapes: 2}
runtimes: onnxruntime
"""


@pytest.mark.parametrize("exporter, opset", [("torchscript", 17), ("torchscript", 12), ("dynamo", 20)])
@pytest.mark.parametrize("kind", OPERATORS)
def test_what_is_written_computes_what_pytorch_does(tmp_path: Path, kind: str, exporter: str, opset: int) -> None:
    names, calls = OPERATORS[kind]
    table: dict[str, object] = {}
    files: dict[str, str] = {}
    for name in names.split():
        made = written(None, exporter, [f"aten::{name}"])
        assert made is not None
        files[f"right_{name}.py"] = made.text
        for operator, function in made.functions.items():
            dotted = f"right_{name}.{function}"
            table[operator] = dotted if exporter == "dynamo" else {"function": dotted, "without": "another graph"}
    expressions = calls.strip().replace("\n", "; ").replace("; ", ", ")
    python = (
        "import torch\nimport torch.nn.functional as F\n\nclass Calls(torch.nn.Module):\n"
        "    def forward(self, x, y, i, j, p):\n        w = torch.tensor([1.0, 2.0, 3.0, 4.0])\n"
        f"        return x + 0, y + 0, i + 0, j + 0, p + 0, {expressions}\n"
    )
    key = "translations" if exporter == "dynamo" else "symbolics"
    body = say("module: beside.Calls", INPUTS.replace("[batch, 4]", "[4, 4]") if kind == "reductions" else INPUTS,
               f"export: {{{exporter}: {{opsets: [{opset}], {key}: {flow(table)}}}}}")  # fmt: skip
    bench = Bench(tmp_path, tmp_path / "store")
    (cell,) = (one for one in bench.cells(body, python) if one.check == "accuracy")
    for name, text in files.items():
        (cell.case.folder / name).write_text(text, encoding="utf-8")
    record = bench.run_cell(cell, examples=3)
    assert record.error in (None, "Hollow"), record.reason  # some of the calls are of inputs that are whole numbers


def test_names_of_the_library_are_told_apart() -> None:
    assert not NAMESAKES.keys() & {*" ".join(names for names, _ in OPERATORS.values()).split()} - {"threshold"}
