"""The most precise place that is known of code that no file has, or that is called in unusual ways, and its kind."""

from typing import Any, NamedTuple

import pytest
from onnxscript import opset18 as op

from conformance.results.records.location import places_of
from tests.diagnose.operators.test_refused import lowering, symbolic
from tests.kit.cases import details, module_of, say
from tests.kit.planting import planted
from tests.kit.runs import ROOT

pytestmark = pytest.mark.own_store

HEAD = "import functools, linecache\nimport torch\nimport torch.nn.functional as F\n"
PLAIN = """
class Net(torch.nn.Module):
    def forward(self, x):
        y = torch.sin(x)
        return F.hardswish(y * 3)  # here
"""


def executed(code: str, before: str = "") -> str:
    """A module whose text is no file's."""
    return f"{HEAD}text = '''{PLAIN}'''\n{before}exec({code}, globals())\n"


IN_A_NOTEBOOK = """
name = "<ipython-input-1-abc>"
linecache.cache[name] = (len(text), None, text.splitlines(True), name)
"""
DECORATED = """
def logged(function):
    @functools.wraps(function)
    def called(self, x):
        return function(self, x)
    return called
class Net(torch.nn.Module):
    @logged
    def run(self, x):
        y = torch.sin(x)
        return F.hardswish(y * 3)  # here
    forward = run
"""
SCRIPTED = """
@torch.jit.script
def inner(x):
    y = x * 3
    return torch.nn.functional.hardswish(y)  # here
class Net(torch.nn.Module):
    def forward(self, x):
        return inner(torch.sin(x))
"""


INSIDE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.fx.symbolic_trace(Plain())
    def forward(self, x):
        return self.inner(x)
"""


class Placed(NamedTuple):
    """A module, the kind of the place that is told, and how it is called."""

    python: str
    place: str
    said: str
    by: str = "torchscript dynamo"


HERE = "beside.py:{line}  return {call}  # here  (aten.hardswish)"
PLACED = {
    "a decorated method that is called forward": Placed(
        HEAD + DECORATED, "file", HERE.format(line=14, call="F.hardswish(y * 3)")),
    "a function that torch.jit.script has compiled": Placed(
        HEAD + SCRIPTED, "call", "the call of aten.hardswish, in torch/nn/functional.py:", "torchscript"),
    "a text that exec runs": Placed(executed("text"), "call", "the call of aten.hardswish, in <string>:5"),
    "a notebook": Placed(
        executed("compile(text, name, 'exec')", IN_A_NOTEBOOK), "call",
        "the call of aten.hardswish, in <ipython-input-1-abc>:5  return F.hardswish(y * 3)  # here"),
    "a file that is not there": Placed(
        executed("compile(text, '/nowhere/compiled.py', 'exec')"), "call",
        "the call of aten.hardswish, in compiled.py:5"),
    "one of two calls": Placed(
        executed("text.replace('y * 3', 'F.hardswish(y)')"), "call", "call 1 of 2 of aten.hardswish, in <string>:5"),
    "torch.fx": Placed(
        f"{HEAD}{PLAIN.replace('Net', 'Plain')}def Net():\n    return torch.fx.symbolic_trace(Plain())\n", "call",
        "the call of aten.hardswish", "dynamo"),
    "torch.fx inside of a module": Placed(
        HEAD + PLAIN.replace("Net", "Plain") + INSIDE, "file",
        "beside.py:15  return self.inner(x)  (aten.hardswish)"),
}  # fmt: skip


def gate(g: Any, x: Any) -> Any:
    return g.op("HardSigmoid", x)


def gate_of_dynamo(x: Any) -> Any:
    return op.HardSigmoid(x)


@pytest.mark.parametrize("name, exporter", [
    pytest.param(name, exporter, marks=[pytest.mark.thorough] * (exporter == "dynamo"))
    for name, row in PLACED.items() for exporter in row.by.split()
])  # fmt: skip
def test_the_place_has_its_kind_and_no_file_is_named_that_is_not_there(bench, name, exporter):
    row, opset = PLACED[name], {"torchscript": 17, "dynamo": 18}[exporter]
    with planted(symbolic(gate) if exporter == "torchscript" else lowering(gate_of_dynamo)):
        record = bench.run(say(module_of("Net"), f"export: {{{exporter}: [{opset}]}}"), row.python)
    assert record.operator is not None and record.operator["place"] == row.place, record.operator
    (said,) = (line for line in details(record) if line.startswith("first wrong operator at "))
    assert said.startswith(f"first wrong operator at {row.said}"), said
    named = [file for file, _ in places_of(record) if file.endswith(".py") and "/" not in file]
    assert named == (["beside.py"] if row.place == "file" else [])


@pytest.mark.thorough
@pytest.mark.needs("compiler")
def test_an_operator_of_a_cpp_extension_has_the_line_that_calls_it(bench):
    python = (ROOT / "cases/cpp_extension/modules.py").read_text(encoding="utf-8")
    case = say(
        "module: beside.Added", 'inputs: {a: "float32[batch, 5]", b: "float32[batch, 5]"}', "dims: {batch: 1..4}",
        "export: {torchscript: [17]}", 'needs: [ninja, "command:g++"]',
    )  # fmt: skip
    record = bench.run(case, python.replace('g.op("Mul", a, two)', 'g.op("Sub", a, two)'))
    assert (record.error, record.fault) == ("WrongValue", "exporter"), record.as_dict()
    told = record.operator or {}
    assert (told.get("place"), told.get("source")) == ("file", "return MyAdd.apply(a, b)"), told
