"""A model that was exported somewhere else, compared with the module of the case."""

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import ModelProto, save

import conformance
from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.cells.red import explain_cell
from conformance.process.worker.progress_note import Progress
from conformance.results.records import text
from conformance.results.records.record import Record
from tests.kit.cases import problems_of, write_case
from tests.kit.models import model_of
from tests.kit.modules import net_of

MODULE = net_of("x * 2.0 + mask, (x - mask).sum(-1)", takes="x, mask")
CASE = """
module: beside.Net
inputs: {x: "float32[batch, 5]", mask: "float32[batch, 5]"}
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
"""


def shipped(takes: str, gives: str, scale: str = "two", opset: int = 17) -> ModelProto:
    nodes = f"scaled = Mul (x, {scale}) y = Add (scaled, m) d = Sub (x, m) z = ReduceSum <keepdims = 0> (d, axis)"
    constants = {"two": np.float32(2), "axis": np.array([-1]), "more": np.float32(2.5)}
    return model_of(f"net ({takes}) => ({gives}) {{ {nodes} }}", opset, **constants)


X, M = "float[N, 5] x", "float[N, 5] m"
Y, Z = "float[N, 5] y", "float[N] z"


def accuracy(folder: Path, model: ModelProto, more: str = "") -> Record:
    folder.mkdir(exist_ok=True)
    save(model, folder / "net.onnx")
    file = write_case(folder, f"{CASE}export: {{onnx: {{file: net.onnx}}}}\n{more}", MODULE)
    (cell,) = (cell for one in load(file) for cell in plan(one) if cell.check == "accuracy")
    return explain_cell(Progress(), cell, Settings(store=folder / "store", examples=4))


@pytest.mark.parametrize("takes, gives", [
    ("float[N, 5] x, float[N, 5] m", f"{Y}, {Z}"), ("float[N, 5] m, float[N, 5] x", f"{Z}, {Y}"),
], ids=["in order", "in another order"])  # fmt: skip
def test_inputs_are_found_by_name_or_as_the_only_one_left(tmp_path, takes, gives):
    record = accuracy(tmp_path, shipped(takes, gives))
    assert (record.status, record.shipped) == ("passed", "net.onnx"), record.reason


def test_a_wrong_model_is_at_fault_by_its_name(tmp_path):
    record = accuracy(tmp_path, shipped(f"{X}, {M}", f"{Y}, {Z}", "more"))
    assert (record.status, record.fault, record.error) == ("failed", "exporter", "WrongValue")
    assert "at fault: net.onnx" in text.failure(record)


@pytest.mark.parametrize("takes, gives, words", [
    ("float[N, 5] x, float[N, 4] m", f"{Y}, {Z}", ["mask: float32[batch, 5]  no match", "m: float32[N, 4]"]),
    ("float[N, 5] u, float[N, 5] v", f"{Y}, {Z}", ["x: float32[batch, 5]", "u: float32[N, 5]", "v: float32[N, 5]"]),
    (f"{X}, {M}", Y, ["no match"]), (f"{X}, {M}", f"{Y}, {Z}, float[N, 5] d", ["d: float32[N, 5]"]),
], ids=["a fixed size differs", "two that could be either", "an output less", "an output more"])  # fmt: skip
def test_what_cannot_be_matched_is_refused_with_both_sides(tmp_path, takes, gives, words):
    graph = shipped(f"{X}, {M}", gives)
    renamed = shipped(takes, gives) if "x" in takes and " m" in takes else None
    model = renamed or graph
    if renamed is None:
        for value, name in zip(model.graph.input, ("u", "v"), strict=True):
            for node in model.graph.node:
                node.input[:] = [name if one == value.name else one for one in node.input]
            value.name = name
    record = accuracy(tmp_path, model)
    assert (record.stage, record.error, record.fault) == ("declare", "OtherInterface", "case")
    assert all(word in (record.reason or "") for word in words), record.reason


def test_a_file_is_needed_beside_a_module(tmp_path):
    (problem,) = problems_of(
        tmp_path, f"net:\n  about: x\n  {CASE.strip().replace(chr(10), chr(10) + '  ')}\n  export: {{onnx: [17]}}\n"
    )
    assert "name the file of the model" in problem.message


# ---- in Python -----------------------------------------------------------------------------------------------
class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return x.relu() * scale


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1, max=8)
    shapes = {"x": {0: batch}, "scale": None}
    return torch.export.export(Net(), (torch.ones(2, 3), torch.ones(3)), dynamic_shapes=shapes)


@pytest.mark.parametrize("exported", [
    pytest.param(False, id="ExportedProgram", marks=pytest.mark.thorough), pytest.param(True, id="ONNXProgram"),
])  # fmt: skip
def test_check_takes_programs(program, exported):
    given = torch.onnx.export(program, dynamo=True, verbose=False) if exported else program
    records = conformance.check(given, runtimes="onnxruntime")
    assert {record.status for record in records} == {"passed"} and records.not_isolated is None


def test_a_program_that_was_changed_is_compared_as_it_is(program):
    given = torch.onnx.export(program, dynamo=True, verbose=False)
    assert given is not None
    (node,) = (node for node in given.model.graph if node.op_type == "Relu")
    node.op_type = "Abs"
    with pytest.raises(AssertionError, match=r"given\.onnx is wrong"):
        conformance.check(given, runtimes="onnxruntime")
