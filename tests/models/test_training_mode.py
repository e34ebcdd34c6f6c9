"""Files and modules that compute as in training: named first, with the node."""

import numpy as np
import pytest
from onnx import save

from conformance.case.plan.catalogue import plan
from conformance.runtimes.onnxgraph.random_nodes import training_nodes
from tests.kit.cases import PASSED, load_case, module_of, say, verdict
from tests.kit.models import model_of

BATCH = "net (float[n, 3] x) => (float[n, 3] y) {{ y = BatchNormalization {} (x, s, b, b, s) }}"
TRAINS, INFERS = BATCH.format("<training_mode = 1>"), BATCH.format("<training_mode = 0>")
DROPS = "net (float[n, 3] x) => (float[n, 3] y) { y = Dropout (x, r, t) }"
BEFORE_14 = "net (float[n, 3] x) => (float[n, 3] y) { y, m, v, p, q = BatchNormalization (x, s, b, b, s) }"
GIVEN = {"s": np.float32([1, 2, 3]), "b": np.float32([0, 1, 2])}


@pytest.mark.parametrize("text, opset, more, found", [
    (TRAINS, 17, {}, ["BatchNormalization 'y'"]),
    (INFERS, 17, {}, []),
    (BEFORE_14, 9, {}, ["BatchNormalization 'y'"]),
    (BATCH.format(""), 9, {}, []),
    (BEFORE_14.replace("[n, 3] y)", "[n, 3] y, float[3] m)"), 9, {}, []),
    (DROPS, 17, {"r": np.float32(0.5), "t": np.bool_(True)}, ["Dropout 'y'"]),
    (DROPS, 17, {"r": np.float32(0.0), "t": np.bool_(True)}, []),
    (DROPS, 17, {"r": np.float32(0.5), "t": np.bool_(False)}, []),
])  # fmt: skip
def test_nodes_that_train_are_found(text, opset, more, found):
    assert training_nodes(model_of(text, opset, **GIVEN, **more)) == found


@pytest.mark.parametrize("text, error", [(TRAINS, "TrainingMode"), (INFERS, None)])
def test_a_file_that_trains_is_named_before_anybody_is_compared(bench, tmp_path, text, error):
    save(model_of(text, **GIVEN), tmp_path / "net.onnx")
    cells = [*plan(load_case(tmp_path, "onnx: net.onnx\nspecials: false"))]
    records = [bench.run_cell(cell) for cell in cells]
    assert {record.error for record in records} == {error}
    if error:
        assert all("after module.eval()" in str(record.reason) for record in records)


def test_a_second_file_that_trains_is_what_the_difference_is(bench, tmp_path):
    save(model_of(INFERS, **GIVEN), tmp_path / "net.onnx")
    save(model_of(TRAINS, **GIVEN), tmp_path / "other.onnx")
    body = "onnx: net.onnx\nspecials: false\nexport: {onnx: {opsets: [17], file: other.onnx}}"
    records = [bench.run_cell(cell) for cell in plan(load_case(tmp_path, body))]
    assert {(record.stage, record.error, record.fault) for record in records} == {("check", "TrainingMode", "case")}


MODULES = """
import torch


class Drops(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x.exp(), 0.5)


class DropsInTraining(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x.exp(), 0.5, self.training)


class GoesByBatch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        return self.norm(x)


class SetsItselfToTrain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        self.norm.train()
        return self.norm(x)
"""


def test_a_module_that_always_drops_values_is_told_how_not_to(bench):
    record = bench.run(module_of("Drops"), MODULES)
    assert record.error == "NotDeterministic" and "needs training=self.training" in str(record.reason)
    assert verdict(bench.run(module_of("DropsInTraining"), MODULES)) == PASSED


def test_a_module_that_goes_by_the_batch_outside_of_training_is_right(bench):
    body = say(module_of("GoesByBatch"), "export: {dynamo: [20]}").replace("batch: 1..4", "batch: 2..5")
    assert verdict(bench.run(body, MODULES)) == PASSED


@pytest.mark.parametrize("check", ["export", "accuracy"])
def test_statistics_that_each_trace_leaves_behind_are_no_size(bench, check):
    body = say(module_of("SetsItselfToTrain"), "export: {torchscript: [17]}").replace("batch: 1..4", "batch: 2..5")
    assert verdict(bench.run(body, MODULES, check=check)) == PASSED


EXPORTED = """
import torch

def exported():
    inside = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5)).eval()
    dims = ({0: torch.export.Dim("batch")},)
    return torch.export.export(inside, (torch.zeros(2, 4),), dynamic_shapes=dims).module()
"""


@pytest.mark.parametrize("mode, result", [
    ("inference", PASSED), ("train", ("failed", "declare", "NotImplementedError", "case")),
])  # fmt: skip
def test_a_module_of_torch_export_is_taken_in_the_mode_that_it_was_exported_in(bench, tmp_path, mode, result):
    """As one that PT2E has quantized is; it refuses to set any mode."""
    body = say(module_of("exported"), "export: {dynamo: [18]}\nruntimes: onnxruntime\nspecials: false")
    case = load_case(tmp_path, say(body, f"mode: {mode}") if mode == "train" else body, EXPORTED)
    (cell,) = (cell for cell in plan(case) if cell.check == "accuracy")
    record = bench.run_cell(cell)
    assert verdict(record) == result, record.reason
