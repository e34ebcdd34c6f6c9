"""What PyTorch offers beside plain modules, as modules of cases: ExportableModule and torch.onnx.ops.symbolic."""

import pytest

from tests.kit.cases import PASSED, details, say, verdict

PYTHON = """
import torch

class Exportable(torch.onnx.ExportableModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x):
        return torch.tanh(self.linear(x))

    def example_arguments(self):  # others than the case's, which are what counts
        return (torch.randn(7, 3),), None

    def input_names(self):
        return ("another",)

class Largest(torch.nn.Module):
    axis = 1

    def forward(self, x):
        if torch.onnx.is_in_onnx_export():
            given = {"dtype": x.dtype, "shape": x.shape, "version": 13}
            return torch.onnx.ops.symbolic("Hardmax", [x], {"axis": self.axis}, **given)
        return torch.nn.functional.one_hot(x.argmax(1), 3).to(x.dtype)

class OfTheBatch(Largest):
    axis = 0
"""


def run(bench, module, exporter="dynamo"):
    body = say(
        f"module: beside.{module}", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 2..5}",
        f"export: {{{exporter}: [18]}}", "runtimes: onnxruntime", "specials: false",
    )  # fmt: skip
    return bench.run(body, PYTHON)


@pytest.mark.parametrize("module", ["Exportable", "Largest"])
def test_what_is_sound_passes(bench, module):
    record = run(bench, module)
    assert verdict(record) == PASSED and record.examples > 1, record.reason


def test_an_exportable_module_is_not_called_right_by_the_exporter_that_did_not_export_it(bench):
    record = run(bench, "Exportable", "torchscript")
    assert verdict(record) == ("failed", "export", "OtherExporter", "case")
    assert "ExportableModule to dynamo" in str(record.reason)


def test_an_operator_that_is_written_wrong_is_the_modules_own(bench):
    record = run(bench, "OfTheBatch")
    assert verdict(record) == ("failed", "compare", "WrongValue", "case")
    assert any("the module itself goes another way here while it is exported" in line for line in details(record))
