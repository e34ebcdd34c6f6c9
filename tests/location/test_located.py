"""The first operator that parts: what a record of a wrong export names, and what it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import Bench, details, say, verdict


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


SIZES = """
import torch


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
"""
PADDED = """
module: beside.Padded
inputs: {x: "float32[batch, 4]", y: "float32[batch, n]"}
dims: {batch: 1..4, n: 3..9}
"""


@pytest.mark.parametrize("exporter, operator", [
    ("dynamo: [18]", "operator.floordiv"), ("torchscript: [17]", "aten.floor_divide"),
])  # fmt: skip
def test_a_size_that_is_divided_wrongly_is_named_with_its_line(bench, exporter, operator):
    """Both exporters translate ``//`` of sizes to a division that cuts off."""
    record = bench.run(say(PADDED, f"export: {{{exporter}}}"), SIZES)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    told = record.operator
    assert told is not None
    assert (told["operator"], told["line"], told["source"]) == (operator, "beside.py:6", "return size // 2")
    assert (told["type"], told["dtype"], told["sizes"]) == ("Div", "int64", True)
    assert (told["got"], told["wanted"], told["arguments"]) == (0, -1, [-1, 2])
    lines = details(record)
    at = lines.index(f"parts first at beside.py:6  return size // 2  ({operator})")
    assert lines[at + 1] == f"node {told['node']} (Div), of int64 sizes"
    assert lines[at + 2] == "its inputs agree; -1 // 2: got 0, wanted -1"


NETWORK = """
import torch
import torch.nn.functional as F


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
"""
BODY = """
module: beside.Network
inputs: {x: "float32[batch, 4]"}
dims: {batch: 1..4}
"""
SYMBOLIC = """

def symbolic(g, x):
    return g.op("HardSigmoid", x)
"""
TRANSLATION = """

def translation(x):
    from onnxscript import opset18
    return opset18.HardSigmoid(x)
"""
WRONG = {
    "torchscript": (
        '{torchscript: {opsets: [17], symbolics: {"aten::hardswish": {function: beside.symbolic, without: "none"}}}}',
        SYMBOLIC,
    ),
    "dynamo": ('{dynamo: {opsets: [18], translations: {"aten::hardswish": beside.translation}}}', TRANSLATION),
}  # fmt: skip


def wrong(bench: Bench, exporter: str, **options: Any) -> Any:
    export, python = WRONG[exporter]
    return bench.run(say(BODY, f"export: {export}"), NETWORK + python, **options)


@pytest.mark.parametrize("exporter", WRONG)
def test_a_wrong_translation_inside_a_function_is_named(bench, exporter):
    record = wrong(bench, exporter)
    told = record.operator
    assert (told["operator"], told["line"], told["source"]) == (
        "aten.hardswish",
        "beside.py:13",
        "x = F.hardswish(x * 3)",
    )
    assert (told["type"], told["how"], told["dtype"]) == ("HardSigmoid", "value", "float32")
    assert "untied" not in told
    assert record.seconds["locate"] > 0
    got = 1 / 6 * told["arguments"][0] + 0.5
    assert told["wanted"] == pytest.approx(told["arguments"][0] * got, abs=1e-4)


@pytest.mark.parametrize("exporter", WRONG)
def test_what_torch_lacks_is_said_and_the_verdict_stays(bench, exporter, monkeypatch):
    """As with a torch that calls what is private otherwise."""
    from torch.fx.proxy import TracerBase
    from torch.onnx._internal.torchscript_exporter import utils

    before = verdict(wrong(bench, exporter))
    from conformance.align.operators import dynamo, torchscript

    monkeypatch.setattr(dynamo, "_CORE", "torch.onnx._internal.exporter._elsewhere")
    monkeypatch.setattr(torchscript, "_UTILS", "torch.onnx._internal.torchscript_exporter.elsewhere")
    record = wrong(bench, exporter)
    assert verdict(record) == before
    assert record.operator["unable"] == "torch"
    (line,) = [line for line in details(record) if line.startswith("which operator parts first is not known: ")]
    assert line.endswith(record.operator["detail"])
    assert hasattr(TracerBase, "_filter_traceback_frames") and hasattr(utils, "_create_jit_graph")


@pytest.mark.parametrize("exporter", WRONG)
def test_instruments_that_change_the_graph_name_nothing(bench, exporter, monkeypatch):
    from conformance.align.operators import locate

    monkeypatch.setattr(locate.graph, "structure", lambda model: "another")
    monkeypatch.setattr("conformance.export.graph.structure", lambda model: "another")
    before = wrong(bench, exporter)
    assert before.operator["operator"] == "aten.hardswish"
    given = iter(range(10**9))
    monkeypatch.setattr("conformance.export.graph.structure", lambda model: f"another {next(given)}")
    record = wrong(bench, exporter)
    assert record.operator == {"unable": "changed"}
    assert verdict(record) == verdict(before)


def test_looking_for_an_operator_may_crash(bench, monkeypatch):
    import os
    import signal

    from conformance.checks import locate

    monkeypatch.setattr(locate, "locate", lambda failing: os.kill(os.getpid(), signal.SIGSEGV))
    record = wrong(bench, "torchscript")
    assert record.operator == {"unable": "raised", "detail": "Lost: SIGSEGV"}
    assert record.fault == "exporter"


def test_a_cell_that_passes_has_no_operator(bench):
    assert bench.run(say(BODY, "export: {torchscript: [17]}"), NETWORK).operator is None


BRANCHES = """
import torch
import torch.nn.functional as F


class Chosen(torch.nn.Module):
    def forward(self, x):
        def yes(x):
            y = x * 2
            return F.hardswish(y)

        return torch.cond(x.sum() > 0, yes, lambda x: x.cos(), (x,)) * 2


class Compiled(torch.nn.Module):
    def forward(self, x):
        if bool(x.sum() > 0):
            z = F.hardswish(x * 2)
        else:
            z = x.cos()
        return z * 2
"""


@pytest.mark.parametrize("exporter, module, line, around", [
    ("dynamo", "Chosen", "beside.py:12", "higher_order.cond"),
    ("torchscript", "Compiled", "functional.py", "prim.If"),
])  # fmt: skip
def test_the_branch_that_is_taken_is_looked_into(bench, exporter, module, line, around):
    """In a branch torch keeps less of where code is from: the line of ``torch.cond``, or that of its own function."""
    export, python = WRONG[exporter]
    script = "script: true" if module == "Compiled" else ""
    body = BODY.replace("Network", module)
    record = bench.run(say(body, f"export: {export}", script), BRANCHES + python)
    told = record.operator
    assert (told["operator"], told["type"], told["inside"]) == ("aten.hardswish", "HardSigmoid", around)
    assert told["line"].startswith(line)
    assert "removed" not in told
    assert f"  inside of the branch that is taken at {around}" in details(record)


BAKED = """
import math

import torch


class Baked(torch.nn.Module):
    def forward(self, x, y):
        scale = 1 / math.sqrt(y.shape[1])
        x = torch.tanh(x) * scale
        return x + y.sum()
"""


def test_what_a_trace_bakes_in_is_named_where_it_is_used(bench):
    body = PADDED.replace("Padded", "Baked").replace("3..9", "2..9")
    record = bench.run(say(body, "export: {torchscript: [17]}"), BAKED)
    told = record.operator
    assert (told["stage"], told["how"], told["operator"]) == ("capture", "constant", "aten.mul")
    assert (told["line"], told["source"]) == ("beside.py:10", "x = torch.tanh(x) * scale")
    (line,) = [line for line in details(record) if line.startswith("captured with ")]
    assert line == f"captured with {told['got']:.9g}, which here is {told['wanted']:.9g}"


def test_an_optimizer_that_is_wrong_is_told_from_a_translation(bench, monkeypatch):
    """What the exporter's passes make of a graph that was translated rightly."""
    from conformance.checks import models

    original = models.export

    def planted(*arguments, **options):
        exported = original(*arguments, **options)
        for node in exported.model.graph.node:
            node.op_type = {"Tanh": "Atan"}.get(node.op_type, node.op_type)
        return type(exported)(exported.model, exported.usage)

    monkeypatch.setattr(models, "export", planted)
    record = bench.run(say(BODY, "export: {dynamo: [18]}"), NETWORK)
    told = record.operator
    assert (told["operator"], told["type"], told["stage"]) == ("aten.tanh", "Atan", "optimizer")
    assert told["line"] == "beside.py:12"


@pytest.mark.parametrize("exporter", ["dynamo: [18]", "torchscript: [17]"])
def test_an_output_that_only_the_final_graph_names_is_named(bench, monkeypatch, exporter):
    """The last node is wrong, whose tensor was given the output's name."""
    from conformance.checks import models

    original = models.export

    def planted(*arguments, **options):
        exported = original(*arguments, **options)
        (node,) = (one for one in exported.model.graph.node if "named" in one.output)
        assert node.op_type == "Relu"
        node.op_type = "Neg"
        return type(exported)(exported.model, exported.usage)

    monkeypatch.setattr(models, "export", planted)
    record = bench.run(say("""
        forward: torch.relu(torch.sin(x) + 1)
        inputs: {x: "float32[batch, 4]"}
        outputs: [named]
        dims: {batch: 1..4}
    """, f"export: {{{exporter}}}"))  # fmt: skip
    told = record.operator
    assert told is not None and (told.get("operator"), told.get("type")) == ("aten.relu", "Neg"), told
    assert "among" not in told


@pytest.mark.parametrize("exporter", ["dynamo: [18]", "torchscript: [17]"])
def test_nodes_of_one_operator_are_told_together(bench, monkeypatch, exporter):
    """Of what is between the nodes that an operator becomes, PyTorch has nothing."""
    from conformance.checks import models

    original = models.export

    def planted(*arguments, **options):
        exported = original(*arguments, **options)
        (node,) = (one for one in exported.model.graph.node if one.op_type == "Sigmoid")
        node.op_type = "Erf"
        return type(exported)(exported.model, exported.usage)

    monkeypatch.setattr(models, "export", planted)
    record = bench.run(say("""
        forward: torch.sin(F.silu(torch.cos(x)))
        inputs: {x: "float32[batch, 4]"}
        dims: {batch: 1..4}
    """, f"export: {{{exporter}}}"))  # fmt: skip
    told = record.operator
    assert told is not None and (told["operator"], told["type"]) == ("aten.silu", "Mul"), told
    assert [name.split()[0] for name in told["among"]] == ["Erf", "Mul"]
    (line,) = [line for line in details(record) if "or another of" in line]
    assert line.startswith("  or another of the 2 nodes that compute it: Erf ")


def test_a_graph_that_cannot_be_computed_is_named_where_it_stops(bench):
    python = BAKED.replace("scale = 1 / math.sqrt(y.shape[1])", "scale = y.sum(0).reshape([int(y.shape[1])]).sum()")
    body = PADDED.replace("Padded", "Baked").replace("3..9", "2..9")
    record = bench.run(say(body, "export: {torchscript: [17]}"), python)
    told = record.operator
    assert (record.stage, told["operator"], told["line"], told["how"]) == (
        "run",
        "aten.reshape",
        "beside.py:9",
        "constant",
    )


FOLDED = """
import torch
import torch.nn.functional as F


class Folded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = self.norm(self.conv(x))
        return F.hardswish(x)
"""


@pytest.mark.parametrize("exporter", WRONG)
def test_a_batch_norm_in_the_weights_of_a_convolution_is_no_defect(bench, exporter):
    """The node that is left has the batch norm's values, whichever operator it was made of. In dynamo's graph the
    batch norm has outputs that nobody takes, and other shapes than PyTorch's."""
    export, python = WRONG[exporter]
    body = BODY.replace("Network", "Folded").replace("batch, 4", "batch, 2, 3, 3")
    record = bench.run(say(body, f"export: {export}"), FOLDED + python)
    assert (record.operator["operator"], record.operator["line"]) == ("aten.hardswish", "beside.py:15")


def test_a_model_that_is_right_has_nothing_named(bench):
    """Asked of a cell that passes, where every difference would have to be one that kernels may have."""
    from benchmarks.location.sound import look_at

    python = FOLDED.replace("hardswish", "gelu")  # of opset 20, which the raw graph of dynamo is not yet at
    body = BODY.replace("Network", "Folded").replace("batch, 4", "batch, 2, 3, 3")
    for exporter in ("dynamo: [20]", "torchscript: [17]"):
        cells = bench.cells(say(body, f"export: {{{exporter}}}"), python)
        (cell,) = (one for one in cells if one.check == "accuracy" and one.runtime == "onnxruntime")
        found = look_at(cell, bench.store)
        assert (found.named, found.unable, found.parted) == ("", "", 0)
        assert found.compared >= 2


CHUNKED = """
import torch


class Chunked(torch.nn.Module):
    def forward(self, x):
        left, right = x.chunk(2, -1)
        return torch.nn.functional.hardswish(left * 3) + right
"""


@pytest.mark.parametrize("exporter", WRONG)
def test_a_tensor_cut_into_constant_chunks_is_followed(bench, exporter):
    """TorchScript keeps the number of chunks as an attribute, as in every multi-head attention."""
    export, python = WRONG[exporter]
    record = bench.run(say(BODY.replace("Network", "Chunked"), f"export: {export}"), CHUNKED + python)
    assert (record.operator["operator"], record.operator["line"]) == ("aten.hardswish", "beside.py:8")


def test_nodes_that_may_be_wrong_are_found_where_the_first_output_is_left_out():
    import onnx

    from conformance.align.nodes import Graph
    from conformance.align.operators.named import _between

    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[3, 1, 2] x, float[1, 6, 2] w, float[1, 6, 2] r) => (float[1, 1, 2] h) {
            s = Sin(x)
            , h = GRU <hidden_size = 2> (s, w, r)
        }
    """.replace(", h = GRU", "unused, h = GRU")
    )
    gru = model.graph.node[1]
    gru.output[0] = ""
    known = Graph(model)
    assert _between(known, gru, frozenset()) == [0, 1]
    assert _between(known, gru, {"s"}) == [1]
