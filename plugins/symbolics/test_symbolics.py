"""One line registers the symbolics, which are what the README says: ``pytest plugins/symbolics``."""

import io
import re
from pathlib import Path

import more_symbolics
import numpy as np
import onnxruntime
import pytest
import torch
from more_symbolics.tensor import SYMBOLICS

from conformance.models.exporters.symbolics import registered

README = Path(__file__).parent / "README.md"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch says that this exporter is the old one
SMALL = np.array([1e-7, -3e-5, 0.5, -2.0, 88.0, -200.0], np.float32)


class Function(torch.nn.Module):
    """A module that calls one function of torch."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = getattr(torch, name)

    def forward(self, x):
        return self.function(x)


def exported(name, opset=17):
    file = io.BytesIO()
    torch.onnx.export(Function(name), (torch.from_numpy(SMALL),), file, opset_version=opset, dynamo=False)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: SMALL})[0]


def test_one_line_registers_what_an_export_lacks():
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError):
        exported("expm1")
    with registered({}, [more_symbolics.register], opset=17):
        assert exported("asinh").shape == SMALL.shape
    with registered({}, [lambda: more_symbolics.register(["aten::expm1"])], opset=17):
        np.testing.assert_allclose(exported("expm1"), np.expm1(SMALL), rtol=5e-7)
        with pytest.raises(torch.onnx.errors.UnsupportedOperatorError):
            exported("asinh")


def test_digits_that_the_plain_form_loses_are_kept():
    def plain(g, x):
        return g.op("Sub", g.op("Exp", x), g.op("Constant", value_t=torch.tensor(1.0)))

    with registered({"aten::expm1": plain}, opset=17), pytest.raises(AssertionError):
        np.testing.assert_allclose(exported("expm1"), np.expm1(SMALL), rtol=5e-7)


def test_below_the_least_opset_the_export_stops():
    with registered({}, [more_symbolics.register], opset=9), pytest.raises(Exception, match="aten::msort"):
        exported("msort", opset=9)


def test_the_readme_has_every_operator_with_its_least_opset():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| \d", README.read_text(encoding="utf-8"), re.M)
    assert dict(rows) == {name.removeprefix("aten::"): str(one.least) for name, one in SYMBOLICS.items()}
