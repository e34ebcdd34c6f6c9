"""A case whose Python replaces how tensors become arrays: with other values nothing after that is anybody else's."""

import pytest

from tests.kit.cases import PASSED, module_of, say, verdict
from tests.kit.modules import net_of

REPLACED = ("failed", "declare", "ReplacedFunction", "case")
BODY = say(module_of("Net"), "runtimes: onnxruntime", "specials: false")
WRONG = {
    "numpy": "numpy = lambda self, *a, **k: original(self.detach(), *a, **k) + 1",
    "cpu": "cpu = lambda self, *a, **k: original(self, *a, **k).round()",
    "tolist": "tolist = lambda self: original(self)[::-1]",
}
SOUND = {
    "numpy": "numpy = lambda self, *a, **k: original(self.float() if self.is_sparse else self, *a, **k)",
    "cpu": "cpu = lambda self, *a, **k: original(self, *a, **k).clone()",
}


def python_of(name, replacing):
    return f"""
import torch
original = torch.Tensor.{name}
torch.Tensor.{replacing}
{net_of("self.linear(x)", linear="Linear(4, 2)")}
"""


@pytest.fixture(autouse=True)
def _tensor_as_it_was(monkeypatch):
    """Cells run in this process, where the fence keeps what a case replaces while it is imported."""
    import torch

    held = dict(vars(torch.Tensor))
    yield
    for name in {*WRONG, *SOUND}:
        if name in held:
            setattr(torch.Tensor, name, held[name])
        elif name in vars(torch.Tensor):
            delattr(torch.Tensor, name)


@pytest.mark.parametrize("export", [
    "{torchscript: [17]}", pytest.param("{dynamo: [18]}", marks=pytest.mark.thorough),
])  # fmt: skip
@pytest.mark.parametrize("name", WRONG)
def test_one_that_gives_other_values_is_the_cases_own(bench, name, export):
    record = bench.run(say(BODY, f"export: {export}"), python_of(name, WRONG[name]))
    assert verdict(record) == REPLACED, record.reason
    assert f"torch.Tensor.{name}" in record.reason


@pytest.mark.parametrize("name", SOUND)
def test_one_that_gives_the_same_values_may_stay(bench, name):
    record = bench.run(BODY, python_of(name, SOUND[name]))
    assert verdict(record) == PASSED, record.reason
    assert [change["what"] for change in record.changed] == [f"torch.Tensor.{name}"]
