"""The wrong passes, each with a module that it changes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from tests.plants.culprits import real
from tests.plants.passes.planting import of_onnxruntime, of_pass, of_rule, of_simplifier
from tests.plants.plant import Plant, Planting, Written, written_into_the_case

HEAD = """
import torch
import torch.nn.functional as F


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.u = torch.nn.Parameter(torch.randn(4, 5)), torch.nn.Parameter(torch.randn(5))
        self.k, self.l = torch.nn.Parameter(torch.rand(4) + 0.5), torch.nn.Parameter(torch.randn(4))
        self.m, self.c = torch.nn.Parameter(torch.randn(2, 4, 5)[:1]), torch.nn.Parameter(torch.rand(4, 1, 1) + 0.5)
        self.one = torch.nn.Parameter(torch.ones(1))
        self.linear, self.conv = torch.nn.Linear(4, 5), torch.nn.Conv2d(3, 4, 3)
        self.rows, self.images = torch.nn.BatchNorm1d(5), torch.nn.BatchNorm2d(4)
        for norm in (self.rows, self.images):
            torch.nn.init.uniform_(norm.running_var, 0.5, 2)
            torch.nn.init.normal_(norm.running_mean)

    def forward(self, x):
"""
ROWS, BLOCKS, IMAGES = "float32[batch, 4]", "float32[batch, 4, 3]", "float32[batch, 3, 6, 6]"
POSITIVE = "{type: 'float32[batch, 4]', values: {uniform: {low: 0.5, high: 4}}}"

NORMED = """
centred = x - x.mean(-1, keepdim=True)
return centred / torch.sqrt(centred.pow({power}).mean(-1, keepdim=True) + 1e-5) * self.k + self.l
"""
SCALED = "return x / torch.sqrt(x.pow({power}).mean(-1, keepdim=True) + 1e-5) * self.k"

ONNXRUNTIME: dict[str, tuple[str, str]] = {
    "MatMulAddFusion": ("return x @ self.w + self.u", ROWS),
    "ConvAddFusion": ("return self.conv(x) + self.c", IMAGES),
    "ConvMulFusion": ("return self.conv(x) * self.c", IMAGES),
    "ConvActivationFusion": ("return torch.relu(self.conv(x))", IMAGES),
    "FuseReluClip": ("return torch.clamp(torch.relu(x), -1.0, 0.5)", ROWS),
    "NoopElimination": ("return torch.neg(x.abs() + 0.0)", ROWS),
    "DivMulFusion": ("return self.one / x * 3.0", POSITIVE),
    "GemmActivationFusion": ("return torch.relu(self.linear(x))", ROWS),
    "MatMul_BatchNormalization_Fusion": ("return self.rows(x @ self.w)", ROWS),
    "ConstantFolding": ("return x + torch.sin(self.k)", ROWS),
    "ReshapeFusion": ("return torch.neg(x.reshape(x.shape[0], -1))", BLOCKS),
    "NotWhereFusion": ("return torch.where(torch.logical_not(x > 0), x, self.k)", ROWS),
    "GeluFusionL2": ("return F.gelu(x.abs() - 1)", ROWS),
    "BiasGeluFusion": ("return F.gelu(x + self.k)", ROWS),
    "QuickGeluFusion": ("x = x.abs() - 1\nreturn x * torch.sigmoid(x * 1.702)", ROWS),
    "MatmulTransposeFusion": ("return x.transpose(1, 2) @ self.m", BLOCKS),
    "MatMulScaleFusion": ("return (x * 2.0) @ self.w", ROWS),
    "LayerNormFusionL1": (NORMED.format(power=2), ROWS),
    "SimplifiedLayerNormFusion": (SCALED.format(power=2), ROWS),
}
"""By pass: a body of ``forward`` whose graph the pass changes, and the input."""

KNOWN: dict[str, tuple[str, str, str, str]] = {
    "a power of 4 taken for 2 in a layer norm": (
        "LayerNormFusionL1", NORMED.format(power=4), ROWS, "{torchscript: [17]}"
    ),
    "zeros around what is below zero": (
        "Pad_Fusion", "return F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3)",
        "{type: 'float32[batch, 3, 6, 6]', values: {uniform: {low: -4, high: -1}}}", "{dynamo: [18]}",
    ),
}  # fmt: skip
"""Defects of ONNX Runtime 1.31 that nobody planted, each looked into by hand."""
MOVED = "TransposeOptimizer"
"""The pass that the shipped case ``features_beside_scores`` is declared for: at the lowest level that fails, the
graph has a QuantizeLinear before an output with this pass, and none without it. At higher levels more breaks it."""

RULES: dict[str, tuple[str, str]] = {
    "FuseSuccessiveReluClip": ("return torch.relu(torch.clamp(x, -1, 1)) + torch.tanh(x)", ROWS),
    "FuseSuccessiveClipRelu": ("return torch.clamp(torch.relu(x), -1, 1) + torch.tanh(x)", ROWS),
    "FuseSuccessiveClip": ("return torch.clamp(torch.clamp(x, -1, 1), -0.5, 0.5) + torch.tanh(x)", ROWS),
    "FuseSuccessiveRelu": ("return torch.relu(torch.relu(x)) + torch.tanh(x)", ROWS),
    "FuseSuccessiveMin": ("return torch.minimum(torch.minimum(x, self.one), self.k[:1]) + torch.tanh(x)", ROWS),
    "TransposeTranspose": ("return x.permute(0, 2, 1).permute(1, 0, 2) + 1", BLOCKS),
    "TransposeIdentity": ("return x.permute(0, 1, 2) + 1", BLOCKS),
    "ReshapeReshape": ("return x.reshape(-1, 12).reshape(-1, 3, 4) + 1", BLOCKS),
    "FuseConvPad": ("return self.conv(F.pad(x, (1, 1, 1, 1)))", IMAGES),
    "FuseBatchNormIntoConv": ("return self.images(self.conv(x))", IMAGES),
    "FuseBatchNormIntoGemm": ("return self.rows(self.linear(x))", ROWS),
}
"""Of onnxscript, for models of the dynamo exporter."""
PASSES: dict[str, tuple[str, str, str]] = {
    "FoldConstantsPass": (
        "onnxscript.optimizer._constant_folding",
        "return x * torch.arange(4.0).sin() + torch.tanh(x)",
        ROWS,
    ),
    "CommonSubexpressionEliminationPass": (
        "onnx_ir.passes.common.common_subexpression_elimination",
        "return torch.sin(x) * torch.sin(x) + x",
        ROWS,
    ),
}
SIMPLIFIED = [("Tanh", "Atan"), ("Sin", "Cos"), ("Relu", "Abs")]
"""An operator that onnxsim is made to take for another."""


def _written(body: str, given: str, export: str) -> Written:
    typed = given if given.startswith("{") else f'"{given}"'
    lines = [
        "module: beside.Net", f"inputs: {{x: {typed}}}", "dims: {batch: 2..6}", "runtimes: onnxruntime",
        "specials: false", f"export: {export}",
    ]  # fmt: skip
    return Written("\n".join(lines), HEAD + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) + "\n")


def plants() -> Iterator[Plant]:
    for name, (body, given) in ONNXRUNTIME.items():
        yield _plant(f"onnxruntime: {name}", body, given, of_onnxruntime(name))
    for name, (_, body, given, export) in KNOWN.items():
        yield _plant(f"known: {name}", body, given, written_into_the_case, export)
    for plant in real.plants():
        if plant.culprit == "optimizer":
            yield Plant(
                f"known: {plant.name.partition(': ')[2]}", "optimizer", plant.case, precision=plant.precision,
                settings=plant.settings,
            )  # fmt: skip
    for name, (body, given) in RULES.items():
        yield _plant(f"onnxscript: {name}", body, given, of_rule(name), "{dynamo: [18]}")
    for name, (module, body, given) in PASSES.items():
        yield _plant(f"onnxscript: {name}", body, given, of_pass(module, name), "{dynamo: [18]}")
    for operator, other in SIMPLIFIED:
        body = f"return torch.{operator.lower()}(x) * 2"
        export = "{dynamo: {opsets: [18], simplify: true}}"
        yield _plant(f"onnxsim: {operator} taken for {other}", body, ROWS, of_simplifier(operator, other), export)


def _plant(name: str, body: str, given: str, planting: Planting, export: str = "{torchscript: [17]}") -> Plant:
    return Plant(name, "optimizer", _written(body, given, export), planting)


def guilty() -> Mapping[str, str]:
    """By the name of a plant: the pass that is wrong."""
    known = {f"known: {name}": passed for name, (passed, *_) in KNOWN.items()}
    return {
        plant.name: known.get(plant.name) or {"known": MOVED, "onnxsim": "onnxsim"}.get(
            plant.name.partition(": ")[0], plant.name.partition(": ")[2]
        )
        for plant in plants()
    }  # fmt: skip
