"""The smallest PyTorch function that an exporter gets wrong: its calls, its script, its text, and what has none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.checks import smallest_function
from conformance.checks.reduce.written import MOST_LINES
from conformance.checks.runner import Runner
from conformance.plan.settings import Settings
from conformance.records.record import Record
from conformance.records.shape import record_of
from tests.support import Bench, details, say, verdict

WRONG = ("failed", "compare", "WrongValue", "exporter")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in ("SECONDS", "SCRIPT"):
        monkeypatch.setattr(smallest_function, name, 600.0)  # whatever else the host does
    return Bench(tmp_path, tmp_path / "store")


def ends(record: Record, **instead: str) -> int:
    """How the script of a record ends, in a process of its own; after texts in the file beside it were replaced."""
    assert record.smallest is not None and "repro" in record.smallest, record.smallest
    file = Path(record.smallest["repro"])
    beside = file.with_name("beside.py")
    for old, new in instead.items():
        text = beside.read_text(encoding="utf-8")
        assert old in text
        beside.write_text(text.replace(old, new), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], cwd="/", capture_output=True, check=False, timeout=600)
    return done.returncode


def script(record: Record) -> str:
    assert record.smallest is not None and "repro" in record.smallest, record.smallest
    text = Path(record.smallest["repro"]).read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES
    assert "conformance" not in text
    return text


FUNCTIONS = """
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


def symbolic(g, x):
    return g.op("HardSigmoid", x)


def translation(x):
    from onnxscript import opset18
    return opset18.HardSigmoid(x)


def without_bias(g, x, weight, bias):
    return g.op("MatMul", x, g.op("Transpose", weight, perm_i=[1, 0]))


def translated_without_bias(x, weight, bias=None):
    from onnxscript import opset18
    return opset18.MatMul(x, opset18.Transpose(weight, perm=[1, 0]))
"""
BODY = """
module: beside.Net
inputs: {x: "float32[batch, 4]"}
dims: {batch: 1..4}
"""


def torchscript(operator: str, function: str, without: str = "none") -> str:
    symbolics = f'{{"{operator}": {{function: beside.{function}, without: "{without}"}}}}'
    return f"export: {{torchscript: {{opsets: [17], symbolics: {symbolics}}}}}"


def dynamo(operator: str, function: str) -> str:
    return f'export: {{dynamo: {{opsets: [18], translations: {{"{operator}": beside.{function}}}}}}}'


@pytest.mark.parametrize("export, function", [
    (torchscript("aten::hardswish", "symbolic"), "symbolic"),
    (dynamo("aten::hardswish", "translation"), "translation"),
])  # fmt: skip
def test_a_wrong_translation_is_one_call_whose_script_ends_with_0_once_it_is_mended(bench, export, function):
    record = bench.run(say(BODY, export), FUNCTIONS)
    assert verdict(record) == WRONG
    told = record.smallest
    assert told is not None and (told["calls"], told["operators"]) == (1, ["aten.hardswish"])
    assert told["of"] > 1 and told["own_code"] == [f"beside.{function}"]
    text = script(record)
    assert "torch.ops.aten.hardswish.default(x)" in text and "tanh" not in text
    assert ends(record) == 1
    issue = Path(told["issue"]).read_text(encoding="utf-8")
    assert text.strip() in issue and f"with `beside.{function}` gives wrong values for aten.hardswish" in issue
    assert "- torch " in issue and "reference evaluator computes the same" in issue
    lines = details(record)
    at = lines.index(f"smallest PyTorch function that fails alike: 1 of {told['of']} calls (aten.hardswish)")
    assert lines[at + 1] == f"  python {told['repro']} shows it; to report: {told['issue']}"
    assert record_of(record.as_dict())["smallest"] == told
    assert ends(record, HardSigmoid="HardSwish") == 0


def test_one_cell_of_each_cause_looks_for_it_and_none_where_nobody_asks(bench):
    cells = {
        (cell.opset, cell.runtime): cell
        for cell in bench.cells(
            say(BODY, torchscript("aten::hardswish", "symbolic").replace("[17]", "[16, 17]")), FUNCTIONS
        )
        if cell.check == "accuracy"
    }
    run = Runner(Settings(store=bench.store, examples=2), 600, None)
    first, again = (run(cells[opset, "onnxruntime"]) for opset in (17, 16))
    assert verdict(first) == verdict(again) == WRONG
    assert first.smallest is not None and first.smallest["calls"] == 1
    assert again.smallest == {"as": first.id} == record_of(again.as_dict())["smallest"]
    assert f"smallest PyTorch function that fails alike: looked for in {first.id}" in details(again)

    without = Runner(Settings(store=bench.store, examples=2, smallest=False), 600, None)(cells[17, "onnxruntime"])
    assert verdict(without) == WRONG
    assert without.operator == first.operator and without.smallest is None


POOL = """
forward: F.avg_pool2d(torch.relu(x) * 2, 2, divisor_override=3)
inputs: {x: "float32[batch, 3, 8, 8]"}
dims: {batch: 1..4}
"""


@pytest.mark.parametrize("export", ["export: {torchscript: [17]}", "export: {dynamo: [20]}"])
def test_a_function_without_submodules_keeps_the_attributes_that_matter(bench, export):
    """Both exporters drop ``divisor_override``; nothing of the case's own is in it."""
    record = bench.run(say(POOL, export))
    assert verdict(record) == WRONG
    told = record.smallest
    assert told is not None and (told["operators"], told["own_code"]) == (["aten.avg_pool2d"], [])
    text = script(record)
    assert "beside" not in text and "avg_pool2d.default(x, [2, 2]" in text and "True, 3" in text
    assert ends(record) == 1
    file = Path(told["repro"])
    mended = file.with_name("mended.py")
    mended.write_text(text.replace("True, 3", "True, None"), encoding="utf-8")
    assert (
        subprocess.run([sys.executable, str(mended)], capture_output=True, check=False, timeout=600).returncode == 0
    )


@pytest.mark.parametrize("export, good", [
    (torchscript("aten::linear", "without_bias"), 'g.op("Add", bias, g.op("MatMul", '),
    (dynamo("aten::linear", "translated_without_bias"), "opset18.Add(bias, opset18.MatMul("),
])  # fmt: skip
def test_parameters_are_the_functions_own_tensors(bench, export, good):
    record = bench.run(say(BODY.replace("Net", "Layered"), export), FUNCTIONS)
    assert verdict(record) == WRONG
    told = record.smallest
    assert told is not None and told["operators"] == ["aten.linear"]
    text = script(record)
    assert "small.register_buffer('c0', " in text and "linear.default(x, self.c0, self.c1)" in text
    assert ends(record) == 1
    beside = Path(told["repro"]).with_name("beside.py")
    for line in beside.read_text(encoding="utf-8").splitlines():
        if "MatMul" in line:
            head = 'g.op("MatMul", ' if "g.op" in line else "opset18.MatMul("
            if head in line and (head.startswith("g.") == good.startswith("g.")):
                fixed = f"{line.replace(head, good)})"
                beside.write_text(beside.read_text(encoding="utf-8").replace(line, fixed), encoding="utf-8")
    assert ends(record) == 0


DEFINED = """
import torch


@torch.library.custom_op("{space}::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


class Net(torch.nn.Module):
    def forward(self, x):
        return doubled(torch.sin(x))
"""
WRONG_OF_DEFINED = """
def doubled(g, x):
    return g.op("Neg", x)
"""


@pytest.mark.parametrize("said", ["module: beside.Net", "forward: beside.Net()(x)"])
def test_an_operator_of_the_cases_own_comes_with_the_file_that_defines_it(bench, said):
    """Its symbolic stands in another file."""
    space = "defined_by_module" if said.startswith("module") else "defined_by_expression"
    export = f'export: {{torchscript: {{opsets: [17], symbolics: {{"{space}::doubled": symbolics.doubled}}}}}}'
    cells = bench.cells(say(BODY.replace("module: beside.Net", said), export), DEFINED.replace("{space}", space))
    (cell,) = (one for one in cells if (one.check, one.runtime) == ("accuracy", "onnxruntime"))
    (cell.case.folder / "symbolics.py").write_text(WRONG_OF_DEFINED, encoding="utf-8")
    record = bench.run_cell(cell, examples=8)
    assert verdict(record) == WRONG
    told = record.smallest
    assert told is not None and told["operators"] == [f"{space}.doubled"], told
    assert "import beside" in script(record)
    assert ends(record) == 1
    symbolics = Path(told["repro"]).with_name("symbolics.py")
    symbolics.write_text(WRONG_OF_DEFINED.replace('"Neg", x', '"Add", x, x'), encoding="utf-8")
    assert ends(record) == 0


SIZES = """
import torch


class Padded(torch.nn.Module):
    def forward(self, x, y):
        left = (x.shape[1] - y.shape[1]) // 2
        return torch.nn.functional.pad(torch.sin(y), (left, 4 - left)) + torch.cos(x).sum()
"""
PADDED = """
module: beside.Padded
inputs: {x: "float32[batch, 4]", y: "float32[batch, n]"}
dims: {batch: 1..4, n: 3..9}
"""


@pytest.mark.parametrize("export", ["export: {torchscript: [17]}", "export: {dynamo: [18]}"])
def test_a_call_of_sizes_comes_with_where_they_are_from(bench, export):
    """The division alone is computed in Python, and rightly."""
    record = bench.run(say(PADDED, export), SIZES)
    assert verdict(record) == WRONG
    told = record.smallest
    assert told is not None and told["calls"] == 3, told
    text = script(record)
    assert "floordiv" in text and "sin" not in text
    assert ends(record) == 1
    file = Path(told["repro"])
    mended = file.with_name("mended.py")
    (line,) = (one for one in text.splitlines() if "floordiv" in one)
    mended.write_text(text.replace(line, line.replace("operator.floordiv", "max")), encoding="utf-8")
    assert (
        subprocess.run([sys.executable, str(mended)], capture_output=True, check=False, timeout=600).returncode == 0
    )


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


def test_calls_before_come_along_where_the_call_alone_is_right(bench):
    python = NEIGHBOURS.replace("ROUNDS", "2")
    record = bench.run(say(BODY, torchscript("aten::relu", "symbolic", "another graph")), python)
    assert verdict(record) == WRONG
    assert record.smallest is not None
    assert record.smallest["operators"] == ["aten.sin", "aten.sin", "aten.relu"]
    assert ends(record) == 1
    assert ends(record, Abs="Relu") == 0


def test_what_takes_more_calls_than_are_tried_says_so(bench):
    python = NEIGHBOURS.replace("ROUNDS", "9")
    record = bench.run(say(BODY, torchscript("aten::relu", "symbolic", "another graph")), python)
    assert verdict(record) == WRONG
    assert record.operator is not None and record.operator["operator"] == "aten.relu"
    told = record.smallest
    assert told is not None and told["why_not"] == "right" and "repro" not in told
    assert (
        "no smaller PyTorch function could be made: its call alone is exported rightly, and so it is with those "
        "before it" in details(record)
    )


BRANCHES = """
import math

import torch
import torch.nn.functional as F


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: F.hardswish(x * 2), lambda x: x.cos(), (x,)) * 2


class Baked(torch.nn.Module):
    def forward(self, x, y):
        return torch.tanh(x) * (1 / math.sqrt(y.shape[1])) + y.sum()


def translation(x):
    from onnxscript import opset18
    return opset18.HardSigmoid(x)
"""


@pytest.mark.parametrize("body, export, why, said", [
    (BODY, dynamo("aten::hardswish", "translation"), "call", "Python cannot write higher_order.cond by itself"),
    (PADDED.replace("Padded", "Baked"), "export: {torchscript: [17]}", "capture",
     "the program was captured wrongly"),
])  # fmt: skip
def test_what_cannot_be_one_call_says_why(bench, body, export, why, said):
    record = bench.run(say(body, export), BRANCHES)
    assert record.fault == "exporter"
    assert record.smallest is not None and record.smallest["why_not"] == why
    assert any(line.startswith(f"no smaller PyTorch function could be made: {said}") for line in details(record))


@pytest.mark.parametrize("planted, why", [
    (lambda *arguments: 1 / 0, "ZeroDivisionError: division by zero"),
    (lambda *arguments: __import__("os").abort(), "Lost: SIGABRT"),
])  # fmt: skip
def test_the_cell_keeps_its_result_where_the_search_breaks(bench, monkeypatch, planted: Any, why: str):
    monkeypatch.setattr(smallest_function, "fewest", planted)
    record = bench.run(say(BODY, torchscript("aten::hardswish", "symbolic")), FUNCTIONS)
    assert verdict(record) == WRONG
    assert record.operator is not None and record.operator["operator"] == "aten.hardswish"
    assert record.smallest is not None and record.smallest["why_not"] == why


def test_without_time_nothing_is_made_and_that_is_said(bench, monkeypatch):
    monkeypatch.setattr(smallest_function, "SECONDS", -1.0)
    record = bench.run(say(BODY, torchscript("aten::hardswish", "symbolic")), FUNCTIONS)
    assert verdict(record) == WRONG
    assert record.smallest is not None and record.smallest["why_not"] == "time"
    assert "no smaller PyTorch function could be made: there was no time for it" in details(record)


def test_what_passes_has_none(bench):
    assert bench.run(say(BODY, "export: {torchscript: [17]}"), FUNCTIONS).smallest is None


UNKNOWN = """
module: beside.Unknown
inputs: {x: "float32[batch, 4]"}
dims: {batch: 1..4}
"""
ASINH = """
import torch


class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.asinh(torch.sin(x) + 1) * 2)
"""


def test_of_an_export_that_fails_the_call_is_left_that_cannot_be_exported(bench: Bench) -> None:
    record = bench.run(UNKNOWN, ASINH, check="export")
    assert verdict(record) == ("failed", "export", "UnsupportedOperatorError", "exporter")
    told = record.smallest
    assert told is not None and (told["calls"], told["operators"]) == (1, ["aten.asinh"]), told
    text = script(record)
    assert "onnxruntime" not in text and "torch.ops.aten.asinh.default" in text
    assert ends(record) == 1
    issue = Path(told["issue"]).read_text(encoding="utf-8")
    assert issue.startswith("# torch.onnx.export(dynamo=False) raises an error for aten.asinh\n")
    assert "actual is the error" in issue and "optimizer" not in issue
    assert any(line.startswith("smallest PyTorch function that fails alike: 1 of ") for line in details(record))


def test_a_symbolic_that_raises_is_kept_with_the_call_it_is_for(bench: Bench) -> None:
    own = (
        ASINH
        + """

def asinh(g, x):
    raise RuntimeError("not thought of")
"""
    )
    record = bench.run(
        say(UNKNOWN, "export: {torchscript: {opsets: [17], symbolics: {'aten::asinh': beside.asinh}}}"),
        own, check="export",
    )  # fmt: skip
    assert (record.stage, record.fault) == ("export", "exporter"), record.as_dict()
    assert record.smallest is not None and record.smallest["own_code"] == ["beside.asinh"], record.smallest
    assert ends(record) == 1
    assert ends(record, **{'raise RuntimeError("not thought of")': 'return g.op("Asinh", x)'}) == 0


def test_a_declared_failure_of_an_export_is_not_looked_into(bench: Bench) -> None:
    declared = """
        fails:
          - {stage: export, error: UnsupportedOperatorError, fault: exporter, because: it has no symbolic}
    """
    record = bench.run(say(UNKNOWN, declared), ASINH, check="export")
    assert record.status == "xfailed" and record.smallest is None


def test_an_export_that_stops_before_it_captures_says_so(bench: Bench) -> None:
    python = ASINH.replace("torch.relu(", "helped(").replace(
        "class Unknown",
        """def helped(x):
    if torch.onnx.is_in_onnx_export():
        raise RuntimeError("not here")
    return x


class Unknown""",
    )
    record = bench.run(UNKNOWN, python, check="export")
    assert (record.stage, record.fault) == ("export", "exporter"), record.as_dict()
    assert record.smallest is not None and record.smallest["why_not"] == "uncaptured"
    assert "no smaller PyTorch function could be made: the exporter stops before it has captured a program" in [
        line.strip() for line in details(record)
    ]


def test_other_cells_whose_export_fails_alike_point_to_the_first(bench: Bench) -> None:
    body = say(UNKNOWN, "export: {torchscript: [13, 17]}")
    cells = [cell for cell in bench.cells(body, ASINH) if cell.check == "export"]
    first, second = map(Runner(Settings(store=bench.store), 600, None), cells)
    assert first.smallest is not None and first.smallest["calls"] == 1
    assert second.smallest == {"as": first.id}
