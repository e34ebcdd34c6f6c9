"""Who is at fault, decided on answers as data; and that what is slow is asked for once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conformance.bundle.layout import Bundle
from conformance.case.python import Folder
from conformance.checks import models
from conformance.checks.prepared import prepare
from conformance.export.reference import Reference
from conformance.records.record import FLOAT64, Witness
from conformance.runtimes import onnxruntime
from conformance.verdict.blame import decide
from tests.support import Bench, altered, say, with_symbolic


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


A, B = "onnxruntime-unoptimized", "onnx-reference"


@pytest.mark.parametrize(
    "suspect, stage, answers, fault, conclusion",
    [
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
    ],
)
def test_the_fault_follows_from_the_answers_alone(suspect, stage, answers, fault, conclusion):
    witnesses = [Witness(runtime, answer) for runtime, answer in answers.items()]
    assert decide(witnesses, suspect, stage, own_code=False) == (fault, conclusion)


def test_a_model_made_with_own_code_is_accused_where_nobody_else_can_be_asked():
    assert decide([Witness(A, "wrong")], "onnxruntime", "compare", own_code=True) == ("exporter", None)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_pytorch_runs_once_for_the_example_that_is_shown(bench, monkeypatch, precision):
    """Its answer serves the comparison, the witnesses, the loss by stage and the bundle that is left."""
    seen: list[bytes] = []
    run = Reference.__call__

    def noted(self, inputs):
        seen.append(b"".join(array.tobytes() for array in inputs.values()))
        return run(self, inputs)

    monkeypatch.setattr(Reference, "__call__", noted)
    wrong = altered(onnxruntime.open_optimized, lambda _, outputs: [array + np.float32(1e-2) for array in outputs])
    monkeypatch.setattr(onnxruntime, "open_optimized", wrong)
    body = 'forward: torch.sin(x)\ninputs: {x: "float32[batch, 40]"}\n'
    body += "dims: {batch: 2..4}\ntrace: {batch: 3}\nprecisions: {fp16: {}}\nruntimes: onnxruntime\n"
    body += "export: {torchscript: [17]}"
    (cell,) = (cell for cell in bench.cells(body) if (cell.check, cell.precision) == ("accuracy", precision))
    record = bench.run_cell(cell, examples=8)
    assert (record.status, record.stage) == ("failed", "compare")
    assert record.loss and record.bundle
    example = Bundle(Path(record.bundle))
    (shown,) = example.examples(example.entries[0])
    assert seen.count(shown.inputs["x"].tobytes()) == 1


COUNTED = """
import torch

calls = []


def draw(dims, rng):
    calls.append(dict(dims))
    return {"x": rng.standard_normal((dims["batch"], 3)).astype("float32")}
"""


def test_no_arrays_are_drawn_where_only_the_traced_sizes_are_asked_for(bench):
    body = 'forward: torch.sin(x)\ninputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..4}\ndraw: beside.draw\n'
    (cell,) = (
        cell for cell in bench.cells(say(body, "export: {torchscript: [17]}"), COUNTED) if cell.check == "export"
    )
    folder = Folder.of(cell.case.folder)
    with folder.active():
        prepared = prepare(cell.case, folder)
        calls = folder.resolve("beside.draw").__globals__["calls"]
        assert prepared.trace()["batch"] in range(1, 5)
        assert prepared.key(cell.exporter, cell.opset) and prepared.trace(odd=True)
        assert calls == []
        prepared.inputs()
        assert len(calls) == 1


@pytest.mark.parametrize("without", ["another graph", "the same graph"])
def test_a_registration_is_checked_with_two_exports(bench, monkeypatch, without):
    exports = []
    export = models.export
    monkeypatch.setattr(models, "export", lambda *given, **more: exports.append(more) or export(*given, **more))
    body = 'forward: x - y\ninputs: {x: "float32[batch, 3]", y: "float32[batch, 3]"}\ndims: {batch: 1..4}'
    graph = "g.op('Sub', x, y)" if without == "the same graph" else "g.op('Add', x, g.op('Neg', y))"
    python = f"def symbolic(g, x, y, alpha=None):\n    return {graph}\n"
    record = bench.run(say(body, with_symbolic('"aten::sub"')), python, check="registration")
    assert (record.status, record.error) == (
        ("passed", None) if without == "another graph" else ("failed", "NotNeeded")
    )
    assert [more["with_symbolics"] for more in exports] == [False, True]
