"""``conformance.check``: a case in a test of one's own."""

import subprocess
import sys
import types

import pytest
import torch

import conformance
from conformance.front import api

QUICK = {
    "inputs": {"x": "float32[batch, 3]"}, "dims": {"batch": "1..4"}, "examples": {"shapes": 1, "values": 2},
    "export": {"torchscript": [17]}, "runtimes": "onnxruntime", "specials": False,
}  # fmt: skip


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(3, 2)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.line(x))


class Traced(torch.nn.Module):
    """The exporter cannot see the branch: every trace has but one side of it."""

    def __init__(self, branches: bool = True) -> None:
        super().__init__()
        self.branches = branches

    def forward(self, x):
        return x * 2 if not self.branches or float(x.sum()) > 0 else x - 1


class Raises(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("planted")


class Asinh(torch.nn.Module):
    def forward(self, x):
        return torch.asinh(x)


class Pool(torch.nn.Module):
    """Both exporters leave the divisor out."""

    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x[None, None], 1, divisor_override=2)[0, 0]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """What is kept of a module that is given by its name lies in the current folder."""
    monkeypatch.chdir(tmp_path)


def test_a_module_that_is_built_passes_in_a_process_of_its_own_and_stays_as_it_is():
    module = Scaled()
    assert module.training
    before = {name: value.clone() for name, value in module.state_dict().items()}
    records = conformance.check(module, **{**QUICK, "export": {"torchscript": [17], "dynamo": [20]}})
    assert records.not_isolated is None and module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert {record.status for record in records} == {"passed"} and {record.case for record in records} == {"Scaled"}
    assert {record.exporter for record in records} == {"torchscript", "dynamo"}
    assert all(record.source["file"].endswith("test_check.py") for record in records)


def test_what_is_wrong_is_reported_as_the_suite_reports_it_at_the_line_of_the_call():
    """And two modules of one class are two modules: the one before it passes."""
    conformance.check(Traced(branches=False), **QUICK)
    line = sys._getframe().f_lineno + 2
    with pytest.raises(AssertionError) as raised:
        conformance.check(Traced(), **QUICK)
    text = str(raised.value)
    assert f"test_check.py:{line})" in text and "the TorchScript exporter keeps what it saw" in text, text
    assert "run in this process" not in text


def test_what_is_known_of_the_exporter_is_named():
    from conformance.results.records.known import by_package

    with pytest.raises(AssertionError) as raised:
        conformance.check(Pool(), **QUICK)
    name, text = "exporters-leave-the-divisor-out", str(raised.value)
    here = [version for version, names in by_package().items() if name in names]
    assert f"\n  known      findings/{name} ({here[0]})\n" in text if here else name not in text, text


def test_a_failure_in_this_process_is_reported_as_such():
    with pytest.raises(AssertionError, match="run in this process: isolated=False"):
        conformance.check(Raises(), isolated=False, **QUICK)


def test_a_module_that_cannot_be_pickled_or_unpickled_elsewhere_runs_in_this_process(monkeypatch):
    class Local(Scaled):
        pass

    threads = torch.get_num_threads()
    records = conformance.check(Local(), **QUICK)
    assert records.not_isolated.startswith("the module cannot be pickled (")
    # As in a notebook: the class is of a module that no other process can import.
    monkeypatch.setitem(sys.modules, "only_here", types.SimpleNamespace(Local=Local))
    Local.__module__, Local.__qualname__ = "only_here", "Local"
    records = conformance.check(Local(), **QUICK)
    assert records.not_isolated.startswith("the module cannot be unpickled in another process (ModuleNotFoundError")
    assert torch.get_num_threads() == threads


def test_a_name_will_do(tmp_path):
    records = conformance.check("torch.nn.Linear", **QUICK, **{"with": {"in_features": 3, "out_features": 2}})
    assert {record.status for record in records} == {"passed"} and (tmp_path / ".conformance/models").is_dir()


@pytest.mark.parametrize("module, given, error, text", [
    (5, QUICK, TypeError, "or the name of one, or an ONNX file, and got a int"),
    (Scaled, QUICK, TypeError, "got the class Scaled; build it first"),
    (Scaled(), {**QUICK, "dimz": {}}, ValueError, "unknown key 'dimz'; did you mean 'dims'"),
    (Scaled(), {**QUICK, "inputs": {"x": "float33[3]"}}, ValueError, "float33"),
    ("Linear", QUICK, ValueError, "'Linear' is not file.name"),
])  # fmt: skip
def test_what_no_case_may_say_is_refused(module, given, error, text):
    with pytest.raises(error) as raised:
        conformance.check(module, **given)
    assert text in str(raised.value)


def test_where_nothing_was_compared_that_is_a_failure():
    with pytest.raises(AssertionError, match=r"nothing was compared:\nexport.*no_such_package"):
        conformance.check(Scaled(), **{**QUICK, "runtimes": "tensorrt", "needs": "no_such_package"})


def test_a_failure_that_is_declared_is_a_verdict():
    fails = {"stage": "export", "error": "UnsupportedOperatorError", "because": "TorchScript has no symbolic"}
    records = conformance.check(Asinh(), **{**QUICK, "fails": [fails]})
    assert {record.status for record in records} == {"xfailed"}


def test_a_failure_that_is_declared_and_gone_is_a_failure():
    with pytest.raises(AssertionError, match="a declared failure does not happen any more"):
        conformance.check(Scaled(), **{**QUICK, "fails": [{"stage": "compare", "because": "it was so once"}]})


def test_importing_the_package_imports_nothing():
    command = "import sys, conformance; print(sorted({'torch', 'pydantic', 'onnx', 'numpy'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
    assert not hasattr(conformance, "chekc") and conformance.check is api.check
