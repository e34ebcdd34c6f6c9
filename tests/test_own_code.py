"""Code of a case's own that only an export runs, by doors that nobody declares: it is named where it is wrong."""

from pathlib import Path

import pytest

from benchmarks.culprits.edits import exchanged
from benchmarks.culprits.planting import exported
from conformance.checks.own_code import Own, accused, told_of
from conformance.records.findings import findings
from conformance.records.location import places_of
from tests.kit.cases import PASSED, details, module_of, say, verdict
from tests.kit.planting import planted, untyped

pytestmark = pytest.mark.own_store

PYTHON = """
import torch
from torch import nn
class Gate(torch.autograd.Function):
    alpha = 0.2
    @classmethod
    def symbolic(cls, g, x):
        return g.op("HardSigmoid", x, alpha_f=cls.alpha, beta_f=0.5)
    @staticmethod
    def forward(ctx, x):
        return (x * 0.2 + 0.5).clamp(0, 1)
class WrongGate(Gate):
    alpha = 0.25
    @classmethod
    def symbolic(cls, g, x):
        return g.op("HardSigmoid", x, alpha_f=cls.alpha, beta_f=0.5)
class Gated(nn.Module):
    gate = Gate
    def forward(self, x):
        return torch.cos(self.gate.apply(torch.sin(x)) * x)
class WronglyGated(Gated):
    gate = WrongGate
class Asks(nn.Module):
    factor = 1.0
    def forward(self, x):
        x = torch.sin(x)
        if torch.onnx.is_in_onnx_export():
            x = x * self.factor
        return x + 1
class AsksWrongly(Asks):
    factor = 1.5
class AsksInALine(nn.Module):
    def forward(self, x):
        return torch.sin(x) * (1.5 if torch.onnx.is_in_onnx_export() else 1.0)
class Notices(nn.Module):
    def scaled(self, x):
        return x * 2 if isinstance(x.shape[0], int) and not torch.jit.is_tracing() else x * 3
    def forward(self, x):
        return self.scaled(torch.sin(x))
class Raises(torch.autograd.Function):
    @staticmethod
    def symbolic(g, x):
        raise KeyError("planted")
    @staticmethod
    def forward(ctx, x):
        return x * 2
class RaisesInExport(nn.Module):
    def forward(self, x):
        return Raises.apply(x)
"""
LIBRARY = """
library = torch.library.Library("own_code_test", "DEF")
library.define("half(Tensor x) -> Tensor")
library.impl("half", lambda x: x / 2, "CPU")
library.impl("half", lambda x: x.new_empty(x.shape), "Meta")
def half(g, x):
    return g.op("Mul", x, g.op("Constant", value_t=torch.tensor(0.75)))
torch.onnx.register_custom_op_symbolic("own_code_test::half", half, 9)
class Registered(nn.Module):
    def forward(self, x):
        return torch.cos(torch.ops.own_code_test.half(torch.sin(x)) * x)
"""
"""What only one test may import: a process defines an operator once."""
LINES = (PYTHON + LIBRARY).splitlines()


def line(source: str) -> str:
    return f"beside.py:{next(number for number, text in enumerate(LINES, 1) if source in text)}"


EXPORTS = {"torchscript": "export: {torchscript: [17]}", "dynamo": "export: {dynamo: [20]}"}


@pytest.mark.parametrize("module, exporter, own, operator, source", [
    ("WronglyGated", "torchscript", "beside.WrongGate.symbolic for WrongGate", "WrongGate",
     "return torch.cos(self.gate.apply(torch.sin(x)) * x)"),
    ("Registered", "torchscript", "beside.half for own_code_test::half", "own_code_test.half",
     "return torch.cos(torch.ops.own_code_test.half(torch.sin(x)) * x)"),
    *(("AsksWrongly", exporter, f"beside.Asks.forward at {line('if torch.onnx.is_in')}", "beside.Asks.forward",
       "if torch.onnx.is_in_onnx_export():") for exporter in EXPORTS),
    ("AsksInALine", "torchscript", f"beside.AsksInALine.forward at {line('(1.5 if')}", "beside.AsksInALine.forward",
     "return torch.sin(x) * (1.5 if torch.onnx.is_in_onnx_export() else 1.0)"),
    ("Notices", "torchscript", f"beside.Notices.scaled at {line('return x * 2 if')}", "beside.Notices.scaled",
     "return x * 2 if isinstance(x.shape[0], int) and not torch.jit.is_tracing() else x * 3"),
])  # fmt: skip
def test_own_code_that_is_wrong_is_named_whichever_door_it_came_by(bench, module, exporter, own, operator, source):
    python = PYTHON + (LIBRARY if module == "Registered" else "")
    record = bench.run(say(module_of(module), EXPORTS[exporter]), python)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert record.own_code == [own], record.operator
    assert f"the export used the case's own {own}: look there first" in details(record)
    assert record.operator is not None
    assert (record.operator["operator"], record.operator["line"], record.operator["source"]) == (
        operator, line(source), source,
    )  # fmt: skip
    file, number = next(places_of(record.as_dict()))
    assert Path(file).name == "beside.py"
    assert LINES[number - 1].strip() in ("@classmethod", "def half(g, x):", source)
    (finding,) = findings([record.as_dict()])
    assert (finding.key.by, finding.key.of) == ("code", own)


@pytest.mark.parametrize("operator, named", [("aten.sub", True), ("aten.add", False), ("prims.sub", False)])
def test_code_for_an_overload_is_named_for_its_operator_alone(operator, named):
    own = [
        Own("beside.sub", "aten::sub.Tensor", written=("/cases/beside.py", 7)),
        Own("beside.forward", captures=True),
    ]
    told = told_of(accused(own, {"operator": operator}))
    assert told["own_code"] == (["beside.sub for aten::sub.Tensor"] if named else [])
    places = list(places_of({**told, "operator": {"line": "beside.py:12"}}))
    assert places == [*([("/cases/beside.py", 7)] if named else []), ("beside.py", 12)]


@pytest.mark.parametrize("module", ["Gated", "Asks"])
def test_own_code_that_is_right_passes(bench, module):
    assert verdict(bench.run(say(module_of(module), EXPORTS["torchscript"]), PYTHON)) == PASSED


@pytest.mark.parametrize("module", ["Gated", "Asks"])
def test_own_code_that_is_right_is_not_accused_of_what_the_exporter_did(bench, module):
    with planted(exported(untyped(exchanged("Sin", "Tan")))):
        record = bench.run(say(module_of(module), EXPORTS["torchscript"]), PYTHON)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert record.operator is not None and record.operator["operator"] == "aten.sin" and record.own_code == []


def test_own_code_that_raises_is_named_and_no_line_that_pytorch_runs_too(bench):
    record = bench.run(say(module_of("RaisesInExport"), EXPORTS["torchscript"]), PYTHON, check="export")
    assert verdict(record) == ("failed", "export", "KeyError", "exporter")
    assert record.own_code == ["beside.Raises.symbolic"]
    unsupported = bench.run(say("forward: torch.asinh(x)", 'inputs: {x: "float32[3]"}'), check="export")
    assert (unsupported.stage, unsupported.own_code) == ("export", [])
    # torch.cond is a function of Python, which raises when it is traced
    python = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return "
    python += "torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))\n"
    traced = bench.run(say(module_of("Net"), EXPORTS["torchscript"]), python, check="export")
    assert (traced.stage, traced.fault, traced.own_code) == ("export", "exporter", [])
