"""The first operator that parts: what a record of a wrong export names, and what it does not."""

import dataclasses
from typing import Any, NamedTuple

import pytest
from torch.fx.proxy import TracerBase
from torch.onnx._internal.torchscript_exporter import utils

from conformance.results.records.findings import findings
from conformance.results.records.subject import at_fault
from evidence.location.sound import look_at
from tests.kit.cases import details, module_of, say, verdict, with_symbolic, write_case
from tests.kit.planting import planted, untyped
from tests.kit.runs import run_suite
from tests.plants.edits import Edit, exchanged
from tests.plants.planting import exported

pytestmark = pytest.mark.own_store

PYTHON = """
import math
import os
import signal
import torch
import torch.nn.functional as F
calls = []
def half(size):
    return size // 2
class Padded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x, y):
        left = half(x.shape[1] - y.shape[1])
        moved = torch.nn.functional.pad(y, (left, 4 - left))
        return torch.relu(self.layer(x)).sum() + moved
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def middle(self, x):
        x = torch.tanh(self.first(x))
        x = F.hardswish(x * 3)
        return x + 1
    def forward(self, x):
        return torch.relu(self.second(self.middle(x)))
class Chosen(torch.nn.Module):
    def forward(self, x):
        def yes(x):
            y = x * 2
            return F.hardswish(y)
        return torch.cond(x.sum() > 0, yes, lambda x: x.cos(), (x,)) * 2  # of the branch
class Compiled(torch.nn.Module):
    def forward(self, x):
        if bool(x.sum() > 0):
            z = F.hardswish(x * 2)
        else:
            z = x.cos()
        return z * 2
class Baked(torch.nn.Module):
    def forward(self, x, y):
        scale = 1 / math.sqrt(y.shape[1])
        x = torch.tanh(x) * scale
        return x + y.sum()
class Counted(torch.nn.Module):
    def forward(self, x, y):
        x = torch.tanh(x) * int(y.shape[1])
        return x + y.sum()
class Shaped(torch.nn.Module):
    def forward(self, x, y):
        scale = y.sum(0).reshape([int(y.shape[1])]).sum()
        return torch.tanh(x) * scale + y.sum()
class Folded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
    def forward(self, x):
        x = self.norm(self.conv(x))
        return F.hardswish(x)
class Sound(Folded):
    def forward(self, x):
        x = self.norm(self.conv(x))
        return F.gelu(x)  # of opset 20, which the raw graph of dynamo is not yet at
class Chunked(torch.nn.Module):
    def forward(self, x):
        left, right = x.chunk(2, -1)
        return F.hardswish(left * 3) + right
def symbolic(g, x):
    return g.op("HardSigmoid", x)
def another_graph_each_time(g, x):
    calls.append(1)
    return symbolic(g, x) if len(calls) == 1 else g.op("Abs", symbolic(g, x))
def crashes_the_second_time(g, x):
    calls.append(1)
    if len(calls) > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return symbolic(g, x)
def translation(x):
    from onnxscript import opset18
    return opset18.HardSigmoid(x)
"""
LINES = PYTHON.splitlines()


def at(source: str, place: int = 0) -> dict[str, Any]:
    """The line of the module's file, of several the one at a place, as a record has it."""
    number = [number for number, line in enumerate(LINES, 1) if line.strip() == source][place]
    return {"line": f"beside.py:{number}", "source": source}


def exporting(function: str) -> str:
    return with_symbolic("aten::hardswish", without="none", function=f"beside.{function}")


TORCHSCRIPT, DYNAMO = "export: {torchscript: [17]}", "export: {dynamo: [18]}"
WRONG = {
    "torchscript": exporting("symbolic"),
    "dynamo": 'export: {dynamo: {opsets: [18], translations: {"aten::hardswish": beside.translation}}}',
}


class Located(NamedTuple):
    """A wrong export, what the record has of its operator, and lines of its text."""

    case: str
    told: dict[str, Any]
    lines: tuple[str, ...] = ()
    edit: Edit | None = None
    """What the exporter's graph is changed by, where it is right without."""
    without: tuple[str, ...] = ()
    """What the record does not have."""


HALVED = {**at("return size // 2"), "type": "Div", "dtype": "int64", "sizes": True, "got": 0, "wanted": -1,
          "arguments": [-1, 2]}  # fmt: skip
SWISH = {"operator": "aten.hardswish", "type": "HardSigmoid"}
IN_FUNCTION = {**SWISH, **at("x = F.hardswish(x * 3)"), "how": "value", "dtype": "float32"}
ACT = say('inputs: {x: "float32[batch, 4]"}', "outputs: [named]", "dims: {batch: 1..4}")
LAST = say("forward: torch.relu(torch.sin(x) + 1)", ACT)
SILU = say("forward: torch.sin(F.silu(torch.cos(x)))", ACT)
LOCATED = {
    "a size, torchscript": Located(
        say(module_of("Padded", "n: 3..9"), TORCHSCRIPT), {**HALVED, "operator": "aten.floor_divide"},
        ("first wrong operator at {line}  return size // 2  (aten.floor_divide)", "node {node} (Div), of int64 sizes",
         "its inputs agree; -1 // 2: got 0, wanted -1")),
    "a size, dynamo": Located(
        say(module_of("Padded", "n: 3..9"), DYNAMO), {**HALVED, "operator": "operator.floordiv"}),
    **{f"inside a function, {exporter}": Located(say(module_of("Network"), export), IN_FUNCTION, without=("untied",))
       for exporter, export in WRONG.items()},
    # in a branch torch keeps less of where code is from: the line of torch.cond, or that of its own function
    "inside a branch, torchscript": Located(
        say(module_of("Compiled"), WRONG["torchscript"], "script: true"), {**SWISH, "inside": "prim.If"},
        ("  inside of the branch that is taken at prim.If",), without=("removed",)),
    "inside a branch, dynamo": Located(
        say(module_of("Chosen"), WRONG["dynamo"]),
        {**SWISH, "inside": "higher_order.cond",
         **at("return torch.cond(x.sum() > 0, yes, lambda x: x.cos(), (x,)) * 2  # of the branch")},
        ("  inside of the branch that is taken at higher_order.cond",), without=("removed",)),
    "a number that tracing bakes in": Located(
        say(module_of("Baked", "n: 2..9"), TORCHSCRIPT),
        {"stage": "capture", "how": "constant", "operator": "aten.mul", **at("x = torch.tanh(x) * scale")},
        ("captured with {got:.9g}, which here is {wanted:.9g}",)),
    "a number that tracing bakes in, and that is 1 here": Located(
        say(module_of("Counted", "n: 1..9"), TORCHSCRIPT),
        {"stage": "capture", "how": "number or path", "operator": "aten.mul",
         **at("x = torch.tanh(x) * int(y.shape[1])")},
        ("captured with {got:.9g} for one input and left out for the other, as x * 1 and x + 0 are",)),
    "a shape with which the graph cannot be computed": Located(
        say(module_of("Shaped", "n: 2..9"), TORCHSCRIPT),
        {"how": "constant", "operator": "aten.reshape", **at("scale = y.sum(0).reshape([int(y.shape[1])]).sum()")}),
    # a batch norm in the weights of a convolution is no defect, whichever operator its node was made of; in dynamo's
    # graph it has outputs that nobody takes, and other shapes than PyTorch's
    **{f"behind a folded batch norm, {exporter}": Located(
        say(module_of("Folded", shape="batch, 2, 3, 3"), export), {**SWISH, **at("return F.hardswish(x)")})
       for exporter, export in WRONG.items()},
    # TorchScript keeps the number of chunks as an attribute, as in every multi-head attention
    "behind constant chunks": Located(
        say(module_of("Chunked"), WRONG["torchscript"]), {**SWISH, **at("return F.hardswish(left * 3) + right")}),
    "made wrong by the exporter's passes": Located(
        say(module_of("Network"), DYNAMO),
        {"operator": "aten.tanh", "type": "Atan", "stage": "optimizer", **at("x = torch.tanh(self.first(x))")},
        edit=exchanged("Tanh", "Atan")),
    # the last node is wrong, whose tensor was given the output's name
    "an output that only the final graph names": Located(
        say(LAST, TORCHSCRIPT), {"operator": "aten.relu", "type": "Neg"}, edit=exchanged("Relu", "Neg"),
        without=("among",)),
    "a value at a step, where nothing is rounded": Located(
        say("forward: torch.heaviside(torch.relu(x), torch.full((), 0.5)) + torch.cos(x)", ACT, DYNAMO),
        {"operator": "aten.heaviside", "how": "value", "got": 1.0, "wanted": 0.5}, edit=exchanged("Equal", "Less")),
    # of what is between the nodes that an operator becomes, PyTorch has nothing
    "one of the nodes of an operator": Located(
        say(SILU, TORCHSCRIPT), {"operator": "aten.silu", "type": "Mul"},
        ("  or another of the 2 nodes that compute it: Erf ",), exchanged("Sigmoid", "Erf")),
}  # fmt: skip
SLOW = (
    "made wrong by the exporter's passes", "a size, dynamo", "inside a branch, dynamo", "inside a function, dynamo",
    "behind a folded batch norm, dynamo",
)  # fmt: skip
"""Of which there is one that is faster: in test_rewrites.py, and with TorchScript."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in SLOW)) for name in LOCATED]
)
def test_the_first_operator_that_parts_is_named_with_its_line(bench, name):
    row = LOCATED[name]
    with planted(*([exported(untyped(row.edit))] if row.edit else [])):
        record = bench.run(row.case, PYTHON)
    own = "symbolics:" in row.case or "translations:" in row.case
    assert (record.status, record.fault) == ("failed", "case" if own else "exporter")
    told = record.operator
    assert told is not None and record.seconds["locate"] > 0
    assert {key: told.get(key) for key in row.told} == row.told
    assert not told.keys() & {*row.without}
    lines = details(record)
    assert all(any(line.startswith(said.format(**told)) for line in lines) for said in row.lines), lines


WRONG_VALUE = ("failed", "compare", "WrongValue")


@pytest.mark.parametrize("exporter", ["torchscript", pytest.param("dynamo", marks=pytest.mark.thorough)])
def test_what_torch_lacks_is_said_and_the_verdict_stays(bench, exporter, monkeypatch):
    """As with a torch that calls what is private otherwise. Then the exporter may be at fault as well."""
    case = say(module_of("Network"), WRONG[exporter])
    before = verdict(bench.run(case, PYTHON))
    owner, name = {
        "torchscript": (utils, "_create_jit_graph"), "dynamo": (TracerBase, "_filter_traceback_frames"),
    }[exporter]  # fmt: skip
    monkeypatch.delattr(owner, name)
    record = bench.run(case, PYTHON)
    assert (before, verdict(record)) == ((*WRONG_VALUE, "case"), (*WRONG_VALUE, "exporter"))
    assert at_fault(record).startswith("the exporter, or the case's own beside.")
    assert record.operator is not None and record.operator["unable"] == "torch"
    (line,) = [line for line in details(record) if line.startswith("the first wrong operator is not known: ")]
    assert line.endswith(record.operator["detail"]) and name in line


@pytest.mark.parametrize("symbolic, told", [
    ("another_graph_each_time", {"unable": "changed"}),
    ("crashes_the_second_time", {"unable": "raised", "detail": "Lost: SIGSEGV"}),
])  # fmt: skip
def test_where_exporting_again_does_not_show_the_same_graph_nothing_is_named(bench, symbolic, told):
    record = bench.run(say(module_of("Network"), exporting(symbolic)), PYTHON)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter") and record.operator == told


@pytest.mark.parametrize("export", [TORCHSCRIPT.replace("17", "20"), DYNAMO.replace("18", "20")])
def test_a_model_that_is_right_has_nothing_named(bench, export):
    """Asked of a cell that passes, where every difference would have to be one that kernels may have."""
    cells = bench.cells(say(module_of("Sound", shape="batch, 2, 3, 3"), export), PYTHON)
    (cell,) = (one for one in cells if one.check == "accuracy" and one.runtime == "onnxruntime")
    found = look_at(cell, bench.store)
    assert (found.named, found.unable, found.parted) == ("", "", 0) and found.compared >= 2


def test_a_run_names_the_operator_that_parts_as_one_finding(tmp_path):
    source = "F.avg_pool2d(torch.relu(x) * 2, 2, divisor_override=3)"
    case = say(f"forward: {source}", 'inputs: {x: "float32[batch, 3, 8, 8]"}', "dims: {batch: 1..4}",
               "export: {torchscript: [13, 17]}")  # fmt: skip
    write_case(tmp_path / "cases", case, name="pool")
    outcome = run_suite(tmp_path, "--cases", "cases", "--store", "store", "-k", "accuracy and onnxruntime-fp32")
    assert outcome.code == 1, outcome.text
    records = [record for record in outcome.records.values() if record["check"] == "accuracy"]
    small = [record["smallest"] for record in records]
    assert (tmp_path / small[0]["repro"]).is_file() and small[1] == {"as": records[0]["id"]}
    assert f"  where      cases/pool.yaml:1  {source}" in outcome.text
    assert "aten.avg_pool2d is exported as" in outcome.text
    assert "2 red cells: 1 finding" in outcome.text


BRANCH = """
import torch
class Branches(torch.nn.Module):
    def forward(self, x):
        x = torch.sin(x)
        if bool(x.sum() > 0):
            return torch.cos(x)
        return torch.exp(x)
"""


def test_a_branch_on_data_is_one_finding_at_its_line_whether_it_is_frozen_or_refused(bench):
    frozen = bench.run(say(module_of("Branches"), TORCHSCRIPT), BRANCH)
    refused = bench.run(say(module_of("Branches"), DYNAMO), BRANCH, check="export")
    assert frozen.operator is not None
    assert any("to a Python boolean" in one["text"] and "beside.py:6" in one["text"] for one in frozen.warnings)
    assert frozen.hints == ["branch"]
    assert (frozen.operator["how"], frozen.operator["line"], frozen.operator["source"]) == (
        "path", "beside.py:6", "if bool(x.sum() > 0):",
    )  # fmt: skip
    assert refused.place is not None and refused.place["line"] == 6
    folders = [
        dataclasses.replace(record, source={"file": "cases/a.yaml", "line": 1}) for record in (frozen, refused)
    ]
    (finding,) = findings(folders)
    assert (finding.key.by, finding.key.of) == ("branch", "cases/beside.py:6")
