"""The causes: each is planted in two cases, whose cells are of several exporters, opsets and runtimes.

A cause is what would be mended at one place: an operator that exporters write wrongly, a kernel, a pass, a symbolic
of the case's own, a conversion, an operator of PyTorch. The same operator may be wrong in several of these places.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterator

from tests.plants import edits
from tests.plants import sound as of
from tests.plants.culprits import conversion, doors, reference
from tests.plants.location import defects
from tests.plants.location.exports import plants as wrong_exports
from tests.plants.passes.defects import ONNXRUNTIME
from tests.plants.passes.defects import plants as wrong_passes
from tests.plants.plant import Culprit, Plant, Planting, Written, written_into_the_case
from tests.plants.planting import exported, kernel

APART = ", case "
"""Between the name of a cause and of the case that it is planted in, in the name of a plant."""
OPERATORS = {
    "Sin": "torch.sin(x)", "Cos": "torch.cos(x * 0.5)", "Tanh": "torch.tanh(x)", "Sigmoid": "torch.sigmoid(x)",
    "Erf": "torch.erf(x)", "Exp": "torch.exp(-x.abs())", "Softmax": "torch.softmax(x, -1)", "Atan": "torch.atan(x)",
    "Relu": "torch.relu(x)", "Elu": "F.elu(x - 1)", "Selu": "F.selu(x.abs() + 0.5)", "Softplus": "F.softplus(x)",
    "Sqrt": "torch.sqrt(x.abs() + 1)", "Log": "torch.log(x.abs() + 1)", "ReduceMax": "x.amax(-1)",
    "ReduceMean": "x.mean(-1)", "ReduceSum": "x.sum(-1)", "LeakyRelu": "F.leaky_relu(x, 0.2)",
    "HardSigmoid": "F.hardsigmoid(x)", "Reciprocal": "torch.reciprocal(x.abs() + 1)",
    "Tan": "torch.tan(x * 0.3)", "Neg": "torch.neg(x)", "Max": "torch.maximum(x, x * 0.5)",
    "Asin": "torch.asin(torch.tanh(x))", "Min": "torch.minimum(x, x * 0.5)", "Abs": "torch.abs(x)",
    "ReduceMin": "x.amin(-1)", "CumSum": "torch.cumsum(x, 1)", "LogSoftmax": "torch.log_softmax(x, -1)",
    "Where": "torch.where(x > 0.1, x, x * 3)",
}  # fmt: skip
"""Operators that both exporters write, by the module that has them."""
PASSES = (
    "MatMulAddFusion", "ConvAddFusion", "ConvActivationFusion", "GemmActivationFusion", "QuickGeluFusion",
    "BiasGeluFusion", "NotWhereFusion", "MatMulScaleFusion", "LayerNormFusionL1", "ConstantFolding", "ConvMulFusion",
    "DivMulFusion", "GeluFusionL2", "MatmulTransposeFusion", "SimplifiedLayerNormFusion",
)  # fmt: skip
CONVERSIONS = ("a scale of weights off by two, int8", "one percent more, fp16")
REFERENCES = ("an error function one part in a thousand off", "an exponential one part in a thousand off",
              "a logarithm with its constant off", "a softmax with a sum in half precision")  # fmt: skip
SYMBOLICS = 17
UNDECLARED = ("autograd.Function", "is_in_onnx_export", "register_custom_op_symbolic")
EXPORTS = ("{torchscript: [16, 17], dynamo: [20]}", "{torchscript: [17], dynamo: [20]}")


def plants() -> Iterator[Plant]:
    """Two plants for each cause, named for it and for the case."""
    for operator, forward in OPERATORS.items():
        behind = edits.behind(operator, edits.times(1.02))
        yield from _both(f"kernel {operator}", "kernel", _cases(forward), kernel(behind))
        wrong = edits.behind(operator, edits.plus(0.05))
        yield from _both(f"exporter {operator}", "exporter", _cases(forward), exported(wrong))
    passes = {
        plant.name.partition(": ")[2]: plant for plant in wrong_passes() if plant.name.startswith("onnxruntime")
    }
    for name in PASSES:
        assert name in ONNXRUNTIME
        plant = passes[name]
        case = _more_opsets(plant.case)
        yield from _both(f"pass {name}", "optimizer", (case, _wrapped(case)), plant.planting)
    for plant in conversion.plants():
        if plant.name in CONVERSIONS:
            case = _more_opsets(plant.case)
            both = case, _wrapped(case, "Net")
            yield from _both(f"conversion {plant.name}", "conversion", both, plant.planting, plant.precision)
    for plant in reference.plants():
        if plant.name in REFERENCES:
            case = _more_opsets(plant.case)
            yield from _both(f"reference {plant.name}", "reference", (case, case), plant.planting)
    for name, (case, longer) in _own_code():
        yield from _both(name, "exporter", (case, longer), written_into_the_case)
    for plant in list(wrong_exports())[:SYMBOLICS]:
        assert plant.exporter == "torchscript" and len(defects.SYMBOLICS) >= SYMBOLICS
        body = f"{plant.body}\nruntimes: [onnxruntime, onnx-reference]\nspecials: false".replace("[17]", "[16, 17]")
        case = Written(body, plant.python)
        both = case, _wrapped(case, "Planted")
        yield from _both(plant.name, "exporter", both, written_into_the_case)


def _own_code() -> Iterator[tuple[str, tuple[Written, Written]]]:
    """Code of the case's own that nobody declares: each mistake by doors of the TorchScript exporter, in a net
    alone and in a net that computes something else before it."""
    for door in UNDECLARED:
        for mistake in doors.MISTAKES:
            name = f"{door}: {mistake.name}"
            case = doors.DOORS[door](mistake, True, doors.space(name, True))
            case = dataclasses.replace(case, body=f"{case.body}\nspecials: false")
            yield name, (case, dataclasses.replace(case, python=case.python.replace("x * 3) - y", "x * 2 + 1) - y")))


def cause_of(plant: Plant) -> str:
    return plant.name.rpartition(APART)[0]


def _both(
    name: str, culprit: Culprit, cases: tuple[Written, Written], planting: Planting, precision: str = "fp32"
) -> Iterator[Plant]:
    check = "fidelity" if precision != "fp32" else "accuracy"
    for number, case in enumerate(cases):
        yield Plant(f"{name}{APART}{number + 1}", culprit, case, planting, check=check, precision=precision,
                    settings={"examples": 2}, alone="torch.library" in case.python)  # fmt: skip


def _cases(forward: str) -> tuple[Written, Written]:
    """The operator alone, and between others."""
    more = "specials: false"
    alone = of.case(forward, of.X, of.BATCH, more, export=EXPORTS[0])
    among = forward.replace("(x", "((x.abs() * 0.7 - 0.3)", 1) if "(x" in forward else f"(-{forward})"
    longer = of.case(f"{among} * 1.5 - 0.25", of.X, of.BATCH, more, export=EXPORTS[1])
    return _on_both_runtimes(alone), _on_both_runtimes(longer)


def _on_both_runtimes(case: Written) -> Written:
    return dataclasses.replace(
        case, body=case.body.replace("runtimes: onnxruntime", "runtimes: [onnxruntime, onnx-reference]")
    )


def _more_opsets(case: Written) -> Written:
    return dataclasses.replace(case, body=case.body.replace("{torchscript: [17]}", "{torchscript: [16, 17]}"))


def _wrapped(case: Written, name: str = "Net") -> Written:
    """The case with its module inside another."""
    python = f"""

    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = {name}()

        def forward(self, *arguments):
            return self.inner(*arguments) * 1.5 - 0.25
    """
    body = re.sub(r"^module: beside\.\w+", "module: beside.Around", case.body, flags=re.MULTILINE)
    return Written(body, case.python + textwrap.dedent(python))
