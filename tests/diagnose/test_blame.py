"""Who is at fault, decided on answers as data; and that what is slow is asked for once."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.source import writes
from conformance import HOME
from conformance.case.files.python import Folder
from conformance.case.plan.cell import Cell
from conformance.models.bundle.bundle_layout import Bundle
from conformance.models.prepared import prepare
from conformance.results.records.explanation import NodeByNode, Shows, UnexplainedFailure, explain
from conformance.results.records.record import FLOAT64, Witness
from conformance.runtimes import onnxruntime
from tests.kit.cases import Bench, say
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

A, B, C = "onnxruntime-unoptimized", "onnx-reference", "openvino"


def decide(
    witnesses: list[Witness], suspect: str, stage: str, own_code: bool, *, special: bool = False
) -> tuple[str | None, str | None]:
    """The fault and the conclusion by what other runtimes make of a model."""
    found = explain(UnexplainedFailure(stage, None, suspect, own_code, special), witnesses)
    return found.fault, found.conclusion


@pytest.mark.smoke
@pytest.mark.parametrize("suspect, stage, answers, fault, conclusion", [
    ("onnxruntime", "compare", {FLOAT64: "agrees"}, "reference", None),
    ("onnxruntime", "compare", {A: "agrees"}, "runtime", "optimizer"),
    ("tensorrt", "compare", {A: "agrees"}, "runtime", None),
    ("onnxruntime", "compare", {FLOAT64: "abstains", A: "wrong", B: "agrees"}, "runtime", None),
    ("onnxruntime", "compare", {A: "wrong", B: "wrong"}, "exporter", None),
    ("onnxruntime", "compare", {A: "wrong", B: "abstains"}, None, "nobody"),
    ("onnxruntime", "compare", {A: "stops", B: "stops"}, None, "nobody"),
    ("tensorrt", "compare", {A: "wrong", B: "abstains"}, "exporter", None),
    ("onnxruntime", "run", {A: "stops", B: "stops"}, "exporter", None),
    ("onnxruntime", "run", {A: "stops", B: "agrees"}, None, "strictness"),
    ("onnxruntime", "load", {A: "stops", B: "agrees"}, "runtime", None),
    ("onnxruntime", "run", {A: "runs", B: "stops"}, None, "open"),
    ("onnxruntime", "run", {}, None, "nobody"),
    ("onnxruntime", "compare", {A: "wrong", B: "otherwise"}, None, "differ"),
    ("onnxruntime", "compare", {A: "otherwise", B: "wrong"}, "exporter", None),
    ("onnxruntime", "compare", {A: "otherwise", B: "abstains"}, None, "nobody"),
    ("onnx-reference", "compare", {A: "otherwise"}, None, "differ"),
    # OpenVINO's word counts for values only
    ("onnxruntime", "compare", {A: "wrong", B: "abstains", C: "agrees"}, "runtime", None),
    ("onnxruntime", "compare", {A: "wrong", B: "abstains", C: "wrong"}, "exporter", None),
    ("onnxruntime", "compare", {A: "wrong", B: "wrong", C: "agrees"}, None, "open"),
    ("onnxruntime", "load", {A: "stops", B: "abstains", C: "agrees"}, None, "nobody"),
    ("onnxruntime", "load", {A: "stops", B: "abstains", C: "stops"}, None, "nobody"),
    ("onnxruntime", "run", {A: "stops", B: "stops", C: "agrees"}, "exporter", None),
    ("onnxruntime", "compare", {A: "wrong", B: "lost", C: "lost"}, None, "nobody"),
])  # fmt: skip
def test_the_fault_follows_from_the_answers_alone(suspect, stage, answers, fault, conclusion):
    witnesses = [Witness(runtime, answer) for runtime, answer in answers.items()]
    assert decide(witnesses, suspect, stage, own_code=False) == (fault, conclusion)


ALL_WRONG = (Witness(A, "wrong"), Witness(B, "wrong"))
NOBODY = (Witness(A, "wrong"), Witness(B, "abstains"))
CLEARED = (Witness(A, "wrong"), Witness(B, "agrees"))
LESS_OFF = (Witness(A, "wrong"), Witness(B, "nearer"))
LENIENT = (Witness(A, "wrong"), Witness(B, "abstains"), Witness(C, "agrees"))
SWITCH = Witness("onnxruntime", "agrees", config={"a": "b"})


@pytest.mark.smoke
@pytest.mark.parametrize("findings, fault, conclusion", [
    ((*NOBODY, NodeByNode("kernel")), "runtime", "kernel"),
    ((*NOBODY, NodeByNode("nodes")), "exporter", "nodes"),
    ((*NOBODY, NodeByNode("open")), None, "open"),
    ((*NOBODY, NodeByNode("either")), None, "either"),
    ((*ALL_WRONG, NodeByNode("kernel")), "runtime", "kernel"),  # no other kernel agrees with PyTorch
    ((*ALL_WRONG, NodeByNode("open")), "exporter", None),
    ((*CLEARED, NodeByNode("kernels")), "runtime", None),  # what agrees with PyTorch outweighs the nodes
    ((*CLEARED, NodeByNode("rules")), "exporter", "rules"),  # but no rule of ONNX
    ((*LENIENT, NodeByNode("nodes", several=False)), "runtime", None),  # OpenVINO may have computed a single node
    ((*LENIENT, NodeByNode("nodes")), "exporter", "nodes"),
    ((*LESS_OFF, NodeByNode("nodes")), "exporter", "nodes"),  # log(1 - sigmoid(17)), by whatever kernels
    ((*LESS_OFF, NodeByNode("kernels")), "runtime", None),
    ((*ALL_WRONG, Shows("memory")), "runtime", "memory"),
    ((*ALL_WRONG, SWITCH), "runtime", None),
    ((*CLEARED, Shows("steps")), None, "steps"),
    ((*CLEARED, Shows("steps"), SWITCH), "runtime", "steps"),
    ((*CLEARED, Shows("ill-conditioned")), None, "apart"),
    ((*ALL_WRONG, Shows("ill-conditioned")), "case", None),
    ((*ALL_WRONG, Shows("ill-conditioned"), Shows("ties")), None, None),
])  # fmt: skip
def test_what_is_found_after_the_answers_outweighs_some_of_them(findings, fault, conclusion):
    found = explain(UnexplainedFailure("compare", None, "onnxruntime"), findings)
    assert (found.fault, found.conclusion) == (fault, conclusion)


@pytest.mark.smoke
@pytest.mark.parametrize("by_check, findings, fault, conclusion", [
    ("runtime", (), "runtime", None), ("runtime", (Witness(A, "agrees"),), "runtime", "optimizer"),
    ("runtime", (Witness(A, "agrees"), Shows("memory")), "runtime", "memory"),
    ("runtime", (Witness(A, "stops", model="exported"),), "exporter", None),
    ("precision", (Shows("export"),), "exporter", None),
    ("precision", (Shows("export"), Witness(C, "wrong")), "exporter", None),
    ("precision", (Shows("export"), Witness(C, "nearer")), "runtime", "meaning"),
    ("precision", (SWITCH,), "runtime", None), ("exporter", (Shows("not exported"),), "reference", None),
    ("exporter", (Shows("declared"),), "exporter", None), ("exporter", (Shows("declared", "case"),), "case", None),
    ("exporter", (Shows("after others"),), None, None),
])  # fmt: skip
def test_where_no_others_run_the_same_model_the_check_decides_or_what_was_seen(by_check, findings, fault, conclusion):
    found = explain(UnexplainedFailure("compare", by_check), findings)
    assert (found.fault, found.conclusion) == (fault, conclusion)


WRITTEN = (
    "details", "findings", "fault", "conclusion", "operator", "explained", "smallest", "loss", "cause", "hints",
    "unexplained", "witnesses", "parts_at", "optimizer", "own_code", "remedy", "vacuous", "traceback",
)  # fmt: skip


def test_one_module_writes_what_explains_a_failure_and_others_hand_it_values():
    writing = {str(file.relative_to(HOME)) for file in HOME.rglob("*.py") if writes(file, WRITTEN)}
    assert writing == {"results/records/explanation.py"}


@pytest.mark.parametrize("line, does", [
    ("stop.details['operator'] = found", True), ("stop.details |= found", True), ("record.hints = ['slow']", True),
    ("self.details = found", False), ("raise add(stop, {'operator': found})", False),
])  # fmt: skip
def test_a_module_that_writes_into_a_failure_is_found(line, does, tmp_path):
    (tmp_path / "engine.py").write_text(f"def look(stop, record, found, self):\n    {line}\n")
    assert writes(tmp_path / "engine.py", WRITTEN) == does


def test_a_model_made_with_own_code_is_accused_where_nobody_else_can_be_asked():
    assert decide([Witness(A, "wrong")], "onnxruntime", "compare", own_code=True) == ("exporter", None)


@pytest.mark.parametrize("own, other, answer", [
    (0.02, 0.001, "nearer"), (0.02, 0.003, "otherwise"), (-0.02, 0.001, "nearer"), (np.nan, 0.001, "otherwise"),
    (0.02, np.inf, "otherwise"),
])  # fmt: skip
def test_a_witness_that_is_off_ten_times_less_speaks_for_the_model(bench, monkeypatch, own, other, answer):
    monkeypatch.setitem(sys.modules, "openvino", None)
    off = dict.fromkeys(ANY_OPTIMIZER, own) | {B: other}
    with contextlib.ExitStack() as stack:
        for name, error in off.items():
            stack.enter_context(wrong_runtime(lambda _, outputs, error=error: [outputs[0] + np.float32(error)], name))
        record = bench.run("forward: torch.sin(x)\ninputs: {x: 'float32[3, 4]'}\nexport: {torchscript: [17]}")
    assert {witness["runtime"]: witness["answer"] for witness in record.witnesses}[B] == answer


COUNTED = """
import torch
calls, draws = [], []
class Noted(torch.nn.Module):
    def forward(self, x, y):
        if x.dtype == torch.float32 and not torch.jit.is_tracing():
            calls.append(x.numpy().tobytes() + y.numpy().tobytes())
        return torch.sin(x - y)
def draw(dims, rng):
    draws.append(dict(dims))
    return {name: rng.standard_normal((dims["batch"], 3)).astype("float32") for name in "xy"}
"""
BODY = say(
    "module: beside.Noted", 'inputs: {x: "float32[batch, 3]", y: "float32[batch, 3]"}', "dims: {batch: 2..4}",
    "trace: {batch: 3}", "runtimes: onnxruntime",
)  # fmt: skip


def cell_of(bench: Bench, check: str, more: str, precision: str = "fp32") -> tuple[Cell, Any]:
    """A cell of the module that notes its calls, and these."""
    (cell,) = (
        cell
        for cell in bench.cells(say(BODY, more), COUNTED)
        if cell.check == check and cell.precision in (None, precision)
    )
    with Folder.of(cell.case.folder).active() as folder:
        return cell, folder.resolve("beside.draw").__globals__


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_pytorch_runs_once_for_the_example_that_is_shown(bench, break_opener, precision):
    """Its answer serves the comparison, the witnesses, the loss by stage and the bundle that is left."""
    break_opener(onnxruntime, "open_optimized", lambda _, outputs: [array + np.float32(1e-2) for array in outputs])
    export = "precisions: {fp16: {}}\nexport: {torchscript: [17]}"
    cell, noted = cell_of(bench, "accuracy", export, precision=precision)
    record = bench.run_cell(cell, examples=8)
    assert (record.status, record.stage) == ("failed", "compare") and record.loss and record.bundle
    example = Bundle(Path(record.bundle))
    (shown,) = example.examples(example.entries[0])
    assert noted["calls"].count(shown.inputs["x"].tobytes() + shown.inputs["y"].tobytes()) == 1


def test_no_arrays_are_drawn_where_only_the_traced_sizes_are_asked_for(bench):
    cell, noted = cell_of(bench, "export", "draw: beside.draw\nexport: {torchscript: [17]}")
    folder = Folder.of(cell.case.folder)
    with folder.active():
        prepared = prepare(cell.case, folder)
        assert prepared.trace()["batch"] in range(1, 5)
        assert prepared.key(cell.exporter, cell.opset, "suite") and prepared.trace(odd=True)
        assert noted["draws"] == []
        prepared.inputs()
        assert len(noted["draws"]) == 1


@pytest.mark.parametrize("answers, plain, special", [
    ({A: "wrong", B: "abstains", C: "wrong"}, ("exporter", None), (None, "shared")),
    ({A: "wrong", B: "otherwise", C: "wrong"}, ("exporter", None), (None, "shared")),
    ({A: "wrong", B: "wrong", C: "wrong"}, ("exporter", None), ("exporter", None)),
    ({A: "wrong", B: "agrees"}, ("runtime", None), ("runtime", None)),
])  # fmt: skip
def test_of_nan_openvino_alone_convicts_no_exporter(answers, plain, special):
    witnesses = [Witness(runtime, answer) for runtime, answer in answers.items()]
    assert decide(witnesses, "onnxruntime", "compare", own_code=False) == plain
    assert decide(witnesses, "onnxruntime", "compare", own_code=False, special=True) == special
    assert decide(witnesses, "onnxruntime", "compare", own_code=True, special=True) == plain
