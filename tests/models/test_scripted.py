"""The float64 form of a scripted module: its rounding is known, and its mistakes are still mistakes."""

import numpy as np
import torch

from conformance.case.files.python import Folder
from conformance.models.reference.module_reference import ModuleReference
from tests.kit.cases import details, say, verdict, with_symbolic
from tests.kit.modules import net_of

BRITTLE = """
module: beside.Brittle
script: true
inputs: {x: "float32[n, 3]"}
dims: {n: 1..9}
export:
  torchscript:
    opsets: [17]
    symbolics: {"aten::add": beside.first, "aten::sub": beside.first}
"""
PYTHON = """
import torch
class Brittle(torch.nn.Module):
    # loses digits in float32, where the exported model has none to lose
    def __init__(self):
        super().__init__()
        self.register_buffer("far", torch.tensor(4096.0))
    def forward(self, x):
        if x.shape[0] > 100:
            x = x * 2
        return (x + self.far) - self.far
def first(g, x, *rest):
    return g.op("Identity", x)
"""


def test_the_rounding_of_a_scripted_module_accuses_nobody(bench):
    record = bench.run(BRITTLE, PYTHON)
    assert record.status == "passed" and record.ill_conditioned > 0 and record.examples > 0, record.reason


def test_a_wrong_model_of_a_scripted_module_is_wrong(bench):
    record = bench.run(BRITTLE, PYTHON.replace('"Identity", x', '"Add", x, x'))
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    assert not any("float64" in line for line in details(record))


COUNTS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
    def forward(self, x):
        self.calls += 1
        return x * {what}
"""


def test_a_scripted_module_that_changes_itself_is_compared_as_it_was_built(bench):
    """Its first call gives what that of a fresh copy gives, whatever was called before."""
    body = say(SCRIPTED, "export: {torchscript: [17]}")
    for check in ("export", "accuracy"):
        record = bench.run(body, COUNTS.format(what="2"), check=check)
        assert record.status == "passed", record.reason
        assert any("calling the module changes calls" in one["text"] for one in record.warnings)
    record = bench.run(body, COUNTS.format(what="self.calls"))
    assert record.error != "NotDeterministic", record.reason


SCRIPTED = say("module: beside.Net\nscript: true", 'inputs: {x: "float32[n, 3]"}', "dims: {n: 1..4}")


def exact(bench, python, array):
    """The float64 outputs of a scripted module, and why there are none."""
    case = bench.cells(say(SCRIPTED, "export: {torchscript: [17]}"), python)[0].case
    with Folder.of(case.folder).active() as folder:
        reference = ModuleReference(case, folder)
        return reference.oracle({"x": array}), reference.oracle_missing


LOOP = net_of(
    "x",
    "for _ in range(int(x.shape[0])):",
    "    x = torch.tanh(self.layer(x)) + torch.ones(3) * 0.1",
    layer="Linear(3, 3)",
)


def test_the_float64_form_keeps_control_flow_and_default_dtypes(bench):
    x = np.float32([[0.1, 0.2, 0.3]] * 3)
    outputs, missing = exact(bench, LOOP, x)
    assert missing is None
    assert outputs[0].dtype == np.float64
    scope: dict = {}
    exec(LOOP, scope)
    torch.manual_seed(0)
    layer = scope["Net"]().double().layer
    y = torch.from_numpy(x).double()
    with torch.no_grad():
        for _ in range(3):
            y = torch.tanh(layer(y)) + torch.ones(3, dtype=torch.float64) * 0.1
    assert np.abs(outputs[0] - y.numpy()).max() < 1e-14


ONLY_FLOAT = net_of(
    "self.layer(x)", "if torch.jit.is_scripting():", "    return self.layer(x.to(torch.float32)){other}",
    layer="Linear(3, 3)",
)  # fmt: skip


def test_the_eager_module_stands_in_where_it_computes_the_same(bench):
    x = np.float32([[0.1, 0.2, 0.3]])
    outputs, missing = exact(bench, ONLY_FLOAT.replace("{other}", ""), x)
    assert missing is None
    assert outputs[0].dtype == np.float64
    outputs, missing = exact(bench, ONLY_FLOAT.replace("{other}", " * 1.001"), x)
    assert outputs is None
    assert "in eager mode the module computes something else" in missing


def test_what_a_scripted_module_computes_otherwise_is_not_excused_by_the_eager_one(bench):
    """The eager module is off by as much as the model is: it must not count as the rounding of the scripted one."""
    python = ONLY_FLOAT.replace("{other}", "").replace("x.to(torch.float32)", "torch.relu(x.to(torch.float32))")
    python += "\ndef symbolic(g, x):\n    return g.op('Identity', x)\n"
    body = say(SCRIPTED, with_symbolic('"aten::relu"'))
    assert verdict(bench.run(body, python)) == ("failed", "compare", "WrongValue", "case")
