"""The smallest PyTorch function that an exporter gets wrong: its calls, its script, its text, and what has none."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.diagnose.smallest.reproduction import MOST_LINES
from conformance.results.records.record import Record
from conformance.results.records.run_file import validated
from tests.kit.cases import Bench, case_of, details, module_of, say, verdict, with_symbolic
from tests.kit.warm_python import warm_python

WRONG = ("failed", "compare", "WrongValue", "case")
LONG = 600.0
"""Seconds for a search, whatever else the host does."""


@pytest.fixture(autouse=True, scope="module")
def _warm() -> Iterator[None]:
    with warm_python():
        yield


FUNCTIONS = """
import math
import torch
import torch.nn.functional as F
class Net(torch.nn.Module):
    def forward(self, x):
        x = torch.tanh(x) * 3
        return F.hardswish(x) + 1
class Layered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
    def forward(self, x):
        return torch.tanh(self.layer(torch.sin(x))) + 1
class Padded(torch.nn.Module):
    def forward(self, x, y):
        left = (x.shape[1] - y.shape[1]) // 2
        return torch.nn.functional.pad(torch.sin(y), (left, 4 - left)) + torch.cos(x).sum()
class Branches(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: F.hardswish(x * 2), lambda x: x.cos(), (x,)) * 2
class Baked(torch.nn.Module):
    def forward(self, x, y):
        return torch.tanh(x) * (1 / math.sqrt(y.shape[1])) + y.sum()
class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.asinh(torch.sin(x) + 1) * 2)
class Stops(torch.nn.Module):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            raise RuntimeError("not here")
        return torch.asinh(x)
def symbolic(g, x):
    return g.op("HardSigmoid", x)
def translation(x):
    from onnxscript import opset18
    return opset18.HardSigmoid(x)
def crashes_alone(g, x):
    if x.node().kind() == "prim::Param":
        import os
        os.abort()
    return g.op("HardSigmoid", x)
def without_bias(g, x, weight, bias):
    return g.op("MatMul", x, g.op("Transpose", weight, perm_i=[1, 0]))
def asinh(g, x):
    raise RuntimeError("not thought of")
def off_by_less_than_most_cells_allow(g, x):
    return g.op("Mul", g.op("HardSwish", x), g.op("Constant", value_t=torch.tensor(1 + 8e-6)))
def right_at_the_exported_size(g, x):
    traced = g.op("Constant", value_t=torch.tensor(next(g.original_node.inputs()).type().sizes()[0]))
    size = g.op("Gather", g.op("Shape", x), g.op("Constant", value_t=torch.tensor(0)))
    return g.op("Mul", g.op("HardSwish", x), g.op("Cast", g.op("Equal", size, traced), to_i=1))
"""
DEFINED = """
import torch
operators = torch.library.Library("defined_by_module", "DEF")
operators.define("doubled(Tensor x) -> Tensor")
operators.impl("doubled", lambda x: 2 * x, "CompositeExplicitAutograd")
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.defined_by_module.doubled(torch.sin(x))
"""
WRONG_OF_DEFINED = 'def doubled(g, x):\n    return g.op("Neg", x)\n'
NEIGHBOURS = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        for _ in range(ROUNDS):
            x = torch.sin(x)
        return torch.relu(x) + 1
def symbolic(g, x):
    value = x
    for _ in range(ROUNDS):
        if value.node().kind() != "onnx::Sin":
            return g.op("Relu", x)
        value = next(value.node().inputs())
    return g.op("Abs", x)
"""
POOL = case_of("F.avg_pool2d(torch.relu(x) * 2, 2, divisor_override=3)", dims="batch: 1..4", x="[batch, 3, 8, 8]")
TORCHSCRIPT, DYNAMO = "export: {torchscript: [17]}", "export: {dynamo: [18]}"


def torchscript(operator: str, function: str, without: str = "none") -> str:
    return with_symbolic(operator, without=without, function=function)


def dynamo(operator: str, function: str) -> str:
    return f'export: {{dynamo: {{opsets: [18], translations: {{"{operator}": beside.{function}}}}}}}'


class Planted(NamedTuple):
    """A wrong export, the smallest function of it, and what mends a file of the script's folder."""

    case: str
    operators: list[str]
    file: str
    old: str
    new: str
    says: tuple[str, ...] = ()
    """What the script says."""
    python: str = FUNCTIONS
    symbolics: str = ""
    """A second file beside the case."""
    check: str = "accuracy"


HARDSWISH = say(module_of("Net"), torchscript("aten::hardswish", "beside.symbolic"))
LINEAR = ("small.register_buffer('c0', ", "linear.default(x, self.c0, self.c1)")
PLANTED = {
    "a symbolic": Planted(HARDSWISH, ["aten.hardswish"], "beside.py", "HardSigmoid", "HardSwish",
                          ("torch.ops.aten.hardswish.default(x)",)),
    "an attribute": Planted(
        say(POOL, TORCHSCRIPT), ["aten.avg_pool2d"], "repro.py", "True, 3", "True, None",
        ("avg_pool2d.default(x, [2, 2]",)),
    "parameters": Planted(
        say(module_of("Layered"), torchscript("aten::linear", "beside.without_bias")), ["aten.linear"], "beside.py",
        'g.op("MatMul", x, g.op("Transpose", weight, perm_i=[1, 0]))',
        'g.op("Gemm", x, weight, bias, transB_i=1)', LINEAR,
    ),
    "sizes, with where they are from": Planted(
        say(module_of("Padded", "n: 3..9"), TORCHSCRIPT), ["aten.size", "aten.sub", "aten.floor_divide"],
        "repro.py", "operator.floordiv", "max"),
    "an operator that the module's file defines": Planted(
        say(module_of("Net"), torchscript("defined_by_module::doubled", "symbolics.doubled")),
        ["defined_by_module.doubled"], "symbolics.py", '"Neg", x', '"Add", x, x', ("import beside",), DEFINED,
        WRONG_OF_DEFINED),
    "calls before that have to come along": Planted(
        say(module_of("Net"), torchscript("aten::relu", "beside.symbolic", "another graph")),
        ["aten.sin", "aten.sin", "aten.relu"], "beside.py", "Abs", "Relu", python=NEIGHBOURS.replace("ROUNDS", "2")),
    "a symbolic that raises": Planted(
        say(module_of("Unknown"), torchscript("aten::asinh", "beside.asinh")), ["aten.asinh"], "beside.py",
        'raise RuntimeError("not thought of")', 'return g.op("Asinh", x)', check="export"),
    "off by more than this case allows": Planted(
        say(HARDSWISH.replace("beside.symbolic", "beside.off_by_less_than_most_cells_allow"),
            "tolerance: {fp32: {rtol: 1e-6, atol: 1e-7}}"),
        ["aten.hardswish"], "beside.py", "1 + 8e-6", "1.0"),
    "right at the sizes that it is exported with": Planted(
        HARDSWISH.replace("beside.symbolic", "beside.right_at_the_exported_size"), ["aten.mul", "aten.hardswish"],
        "beside.py", 'g.op("Equal", size, traced)', 'g.op("Equal", size, size)', ("dynamic_axes={'x': [0]}",)),
    "a translation, by dynamo": Planted(
        say(module_of("Net"), dynamo("aten::hardswish", "translation")), ["aten.hardswish"], "beside.py",
        "HardSigmoid", "HardSwish", ("torch.ops.aten.hardswish.default(x)",)),
}  # fmt: skip
SIZES = PLANTED["sizes, with where they are from"]
BY_DYNAMO = SIZES._replace(
    case=say(module_of("Padded", "n: 3..9"), DYNAMO),
    operators=["aten.sym_size", "operator.sub", "operator.floordiv"],
)
SLOW = (
    "a translation, by dynamo", "sizes, by dynamo", "parameters", "right at the sizes that it is exported with",
    "an operator that the module's file defines", "off by more than this case allows",
)  # fmt: skip
EVERY = {**PLANTED, "sizes, by dynamo": BY_DYNAMO}


def script(record: Record) -> Path:
    assert record.smallest is not None and "repro" in record.smallest, record.smallest
    return Path(record.smallest["repro"])


def fault_of(case: str) -> str:
    """The case is at fault where code of its own makes the operator."""
    return "case" if "symbolics:" in case or "translations:" in case else "exporter"


def end_of(file: Path) -> int:
    """The exit code of a script, run from elsewhere."""
    command = [sys.executable, str(file)]
    return subprocess.run(command, cwd="/", capture_output=True, check=False, timeout=LONG).returncode


@pytest.mark.parametrize("plant", [
    pytest.param(plant, marks=[pytest.mark.thorough] * (name in SLOW), id=name) for name, plant in EVERY.items()
])  # fmt: skip
def test_the_smallest_function_is_kept_with_a_script_that_ends_with_0_once_the_export_is_mended(bench, plant):
    (cell,) = (
        one
        for one in bench.cells(plant.case, plant.python)
        if one.check == plant.check and one.runtime in (None, "onnxruntime")
    )
    if plant.symbolics:
        (cell.case.folder / "symbolics.py").write_text(plant.symbolics, encoding="utf-8")
    record = bench.run_cell(cell, examples=8, smallest=True, smallest_seconds=LONG)
    assert (record.status, record.fault) == ("failed", fault_of(plant.case)), record.reason
    file, told = script(record), record.smallest or {}
    assert (told["operators"], told["calls"]) == (plant.operators, len(plant.operators))
    assert told["of"] > told["calls"]
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES and "conformance" not in text
    assert all(part in text for part in plant.says)
    assert not {"torch.sin", "aten.tanh", "aten.cos"} & {*text.replace(".default", " ").split()}
    assert end_of(file) == 1
    wrong = file.with_name(plant.file)
    mended = wrong.read_text(encoding="utf-8").replace(plant.old, plant.new)
    assert mended != wrong.read_text(encoding="utf-8")
    wrong.write_text(mended, encoding="utf-8")
    assert end_of(file) == 0


# ---- cells with one cause --------------------------------------------------------------------------------------
def run_of(bench: Bench, module: str, export: str, check: str, **settings: Any) -> list[Record]:
    """The records of all cells of a check in ONNX Runtime, run one after another."""
    run = Runner(Settings(store=bench.store, examples=2, smallest_seconds=LONG, **settings), 600, None)
    cells = bench.cells(say(module_of(module), export), FUNCTIONS)
    return [run(one) for one in cells if one.check == check and one.runtime in (None, "onnxruntime")]


BOTH = torchscript("aten::hardswish", "beside.symbolic").replace("[17]", "[16, 17]")


def test_one_cell_of_a_cause_looks_for_the_function_and_says_so_in_its_text_and_its_issue(bench):
    first, again = run_of(bench, "Net", BOTH, "accuracy")
    assert verdict(first) == verdict(again) == WRONG
    told = first.smallest
    assert told is not None and (told["calls"], told["own_code"]) == (1, ["beside.symbolic"])
    assert validated(first.as_dict()).smallest == told
    lines = details(first)
    assert f"smallest PyTorch function that fails alike: 1 of {told['of']} calls (aten.hardswish)" in lines
    assert f"  python {told['repro']} shows it; to report: {told['issue']}" in lines
    issue = Path(told["issue"]).read_text(encoding="utf-8")
    assert script(first).read_text(encoding="utf-8").strip() in issue
    assert "with `beside.symbolic` gives wrong values for aten.hardswish" in issue
    assert "## Cause\n\n- `aten.hardswish` becomes the ONNX operator HardSigmoid." in issue
    assert again.smallest == {"as": first.id} == validated(again.as_dict()).smallest
    assert f"smallest PyTorch function that fails alike: looked for in {first.id}" in details(again)


def test_where_nobody_asks_for_the_function_none_is_looked_for(bench):
    (record,) = run_of(bench, "Net", torchscript("aten::hardswish", "beside.symbolic"), "accuracy", smallest=False)
    assert verdict(record) == WRONG and record.operator is not None and record.smallest is None


def test_of_exports_that_fail_alike_the_first_keeps_the_call_that_cannot_be_exported(bench):
    first, second = run_of(bench, "Unknown", "export: {torchscript: [13, 17]}", "export")
    assert verdict(first) == ("failed", "export", "UnsupportedOperatorError", "exporter")
    told = first.smallest
    assert told is not None and (told["calls"], told["operators"]) == (1, ["aten.asinh"]), told
    assert "onnxruntime" not in script(first).read_text(encoding="utf-8")
    issue = Path(told["issue"]).read_text(encoding="utf-8")
    assert issue.startswith("# torch.onnx.export(dynamo=False) raises an error for aten.asinh\n")
    assert second.smallest == {"as": first.id}


# ---- what has none -----------------------------------------------------------------------------------------------
MANY = say(module_of("Net"), torchscript("aten::relu", "beside.symbolic", "another graph"))
NONE = {
    "more calls than are tried": (MANY, NEIGHBOURS.replace("ROUNDS", "9"), LONG, "right",
                                  "its call alone is exported rightly, and so it is with those before it"),
    "no function that can be exported": (
        MANY, NEIGHBOURS.replace("ROUNDS", "9").replace('return g.op("Relu", x)', 'raise RuntimeError("not here")'),
        LONG, "untried", "its call cannot be exported by itself, nor with those before it"),
    "captured wrongly": (say(module_of("Baked", "n: 3..9"), TORCHSCRIPT), FUNCTIONS, LONG, "capture",
                         "the program was captured wrongly"),
    "no time": (HARDSWISH, FUNCTIONS, -1.0, "time", "there was no time for it"),
    "not captured": (module_of("Stops"), FUNCTIONS, LONG, "uncaptured",
                     "the exporter stops before it has captured a program"),
    "a search that crashes": (HARDSWISH.replace("beside.symbolic", "beside.crashes_alone"), FUNCTIONS, LONG,
                              "Lost: SIGABRT", "Lost: SIGABRT"),
    "no call that Python can write": (say(module_of("Branches"), dynamo("aten::hardswish", "translation")), FUNCTIONS,
                                      LONG, "call", "Python cannot write higher_order.cond by itself"),
}  # fmt: skip
RARE = ("no call that Python can write", "captured wrongly", "a search that crashes")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in RARE)) for name in NONE])
def test_where_no_function_can_be_made_the_verdict_stays_and_the_reason_is_said(bench, name):
    case, python, seconds, why, said = NONE[name]
    check = "export" if name == "not captured" else "accuracy"
    record = bench.run(case, python, check=check, smallest=True, smallest_seconds=seconds)
    assert (record.status, record.fault) == ("failed", fault_of(case)), record.as_dict()
    assert record.smallest is not None and record.smallest["why_not"] == why and "repro" not in record.smallest
    said = f"no smaller PyTorch function could be made: {said}"
    (line,) = (line for line in details(record) if line.strip().startswith(said))
    if why == "right":
        assert "; unlike these, the model " in line and "has the dims of the case open" in line


def test_what_passes_or_fails_as_declared_has_none(bench):
    assert bench.run(say(module_of("Net"), TORCHSCRIPT), FUNCTIONS, smallest=True).smallest is None
    declared = "fails: [{stage: export, error: UnsupportedOperatorError, fault: exporter, because: no symbolic}]"
    record = bench.run(say(module_of("Unknown"), declared), FUNCTIONS, check="export", smallest=True)
    assert record.status == "xfailed" and record.smallest is None
