"""Code of a case's own that only an export runs, by doors that nobody declares: it is named where it is wrong."""

import dataclasses
import html
from pathlib import Path

import pytest

from conformance.case.plan.cell import Cell
from conformance.diagnose.own_code import Own, accused, told_of
from conformance.process.errors import Stopped
from conformance.results.records import text
from conformance.results.records.explanation import fail
from conformance.results.records.finding_block import describe
from conformance.results.records.findings import findings
from conformance.results.records.location import places_of
from conformance.results.records.record import Record
from conformance.results.records.subject import at_fault
from conformance.results.report.annotations import github
from conformance.results.report.html import page
from conformance.results.report.markdown import summary
from tests.kit.cases import PASSED, details, load_case, module_of, say, verdict
from tests.kit.planting import planted, untyped
from tests.plants.edits import exchanged
from tests.plants.planting import exported

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
    assert verdict(record) == ("failed", "compare", "WrongValue", "case")
    assert record.own_code == [own], record.operator
    assert f"the export used the case's own {own}: look there first" in details(record)
    assert record.operator is not None
    assert (record.operator["operator"], record.operator["line"], record.operator["source"]) == (
        operator, line(source), source,
    )  # fmt: skip
    file, number = next(places_of(record))
    assert Path(file).name == "beside.py"
    assert LINES[number - 1].strip() in ("@classmethod", "def half(g, x):", source)
    (finding,) = findings([record])
    assert (finding.key.component, finding.key.by, finding.key.of) == ("case", "code", own)
    assert describe(finding).who == f"the case's own {own} is wrong" and at_fault(record) == "the case"


@pytest.mark.parametrize("operator, named", [("aten.sub", True), ("aten.add", False), ("prims.sub", False)])
def test_code_for_an_overload_is_named_for_its_operator_alone(operator, named):
    own = [
        Own("beside.sub", "aten::sub.Tensor", written=("/cases/beside.py", 7)),
        Own("beside.forward", captures=True),
    ]
    told = told_of(accused(own, {"operator": operator}))
    assert told["own_code"] == (["beside.sub for aten::sub.Tensor"] if named else [])
    record = Record("export[a]", "a", "dynamo", 20, None, "fp32", "export", {}, **told)
    places = list(places_of(dataclasses.replace(record, operator={"line": "beside.py:12"})))
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


OWN_OPERATOR = """
import torch
@torch.library.custom_op("{space}::lift", mutates_args=())
def lift(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by
@lift.register_fake
def _(x, by):
    return torch.empty_like(x)
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.{space}.lift(x, 3.0)
"""


SHAPELESS = {
    "custom_op": """
import torch
@torch.library.custom_op("shapeless_one::lift", mutates_args=())
def lift(x: torch.Tensor) -> torch.Tensor:
    return x * 3
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.shapeless_one.lift(x)
""",
    "library": """
import torch
LIBRARY = torch.library.Library("shapeless_two", "DEF")
LIBRARY.define("lift.other(Tensor x) -> Tensor")
LIBRARY.impl("lift.other", lambda x: x * 3, "CPU")
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.shapeless_two.lift.other(x)
""",
}  # fmt: skip


@pytest.mark.parametrize("python", SHAPELESS.values(), ids=SHAPELESS)
def test_an_operator_of_the_cases_own_whose_shapes_nobody_knows_is_the_cases(bench, python):
    record = bench.run(say(module_of("Net"), EXPORTS["dynamo"]), python, check="export")
    assert (record.status, record.stage, record.fault) == ("failed", "export", "case"), record.reason


@pytest.mark.parametrize("exporter", ["torchscript", pytest.param("dynamo", marks=pytest.mark.thorough)])
def test_an_operator_of_the_cases_own_is_the_cases_to_translate_with_the_lines_to_add(bench, exporter):
    space = f"own_operator_{exporter}"
    body, python = say(module_of("Net"), EXPORTS[exporter]), OWN_OPERATOR.format(space=space)
    record = bench.run(body, python, check="export")
    assert (record.status, record.stage, record.fault, record.smallest) == ("failed", "export", "case", None)
    remedy, (finding,) = record.remedy, findings([record])
    assert remedy is not None and remedy["lacks"] == f"{space}::lift"
    block = describe(finding)
    assert block.who == "the case needs a change" and f"the case's own operator {space}::lift" in block.what
    assert "report" not in dict(block.rows) and f"  {remedy['yaml']}" in dict(block.rows)["to do"]
    # the lines, filled in
    told = remedy["python"].replace('"NAME", x', '"Mul", x, by').replace("op.NAME(x)", "op.Mul(x, by)")
    assert told != remedy["python"]
    mended = body.replace(EXPORTS[exporter], f"export: {{{remedy['yaml']}}}")
    mended = mended.replace(f"{remedy['file'].removesuffix('.py')}.lift", "beside.lift_to_onnx")
    own = python.replace(space, f"{space}_mended") + told.replace("def lift(", "def lift_to_onnx(")
    assert verdict(bench.run(mended.replace(space, f"{space}_mended"), own)) == PASSED


def test_an_operator_of_torchvision_without_a_symbolic_stays_the_exporters(bench):
    python = "import torch, torchvision\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return "
    python += "torchvision.ops.deform_conv2d(x, x.new_zeros(1, 2, 4, 4), x.new_ones(1, 1, 1, 1))\n"
    record = bench.run(say("module: beside.Net", 'inputs: {x: "float32[1, 1, 4, 4]"}'), python, check="export")
    assert (record.stage, record.fault, record.remedy) == ("export", "exporter", None)
    assert record.hints == ["symbolic"]


@pytest.mark.parametrize("own, located, known", [
    ("f for aten::sin", {"operator": "aten.sin"}, True), ("f for aten::sinh", {"operator": "aten.sin"}, False),
    ("f for aten::sub.Tensor", {"operator": "aten.rsub", "within": "aten.sub"}, True),
    ("f for aten::sin", {"operator": "aten.sin", "stage": "optimizer"}, False), ("f for aten::sin", {}, False),
])  # fmt: skip
def test_one_cause_has_one_fault_wherever_it_is_told(tmp_path, own, located, known):
    """The fault of the record, and with it JUnit's, the block's, the page's, the summary's and the annotation's."""
    case = load_case(tmp_path, "forward: torch.sin(x)\ninputs: {x: 'float32[3]'}")
    record = Cell(case, "accuracy", "dynamo", 20).record()
    details = {"own_code": [own], "operator": located or None}
    fail(record, Stopped("compare", "WrongValue", "output 0: 1 of 3 values", "exporter", details))
    assert record.fault == ("case" if known else "exporter")
    who = "the case" if known else f"the exporter, or the case's own {own}"
    block = f"the case's own {own} is wrong" if known else f"the case's own {own}, or the exporter, is wrong"
    said = {"summary": summary({}, [record]), "page": html.unescape(page([("run", {}, [record])])),
            "annotation": "".join(github([record])), "text": text.failure(record)}  # fmt: skip
    assert describe(findings([record])[0]).who == block and block in said["summary"] and block in said["page"]
    assert f"| `{who}` |" in said["summary"] and f"1 × {who} at fault." in said["page"]
    assert all(f"at fault: {who}" in said[name] for name in ("annotation", "text"))


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
