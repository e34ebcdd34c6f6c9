"""What a module holds besides plain tensors: it is fingerprinted, compared and copied whatever it is."""

import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from conformance import HOME
from conformance.models.reference.standing import Standing
from conformance.models.reference.state import byte_count, checksums, fingerprint
from conformance.process.worker.isolation import Death
from conformance.results.records import coverage_totals
from conformance.results.records.death import note_death
from tests.kit.cases import PASSED, module_of, say, verdict
from tests.kit.modules import net_of
from tests.results.report.support import record as report_record
from tests.results.test_record import record as recorded

pytestmark = pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:Sparse CSR:UserWarning")

FLOATS = [[0.5, -1.0], [1.5, 2.0]]


class Kept:
    def __init__(self, value: Any) -> None:
        self.value, self.itself = value, self


def quantized(floats: Any, scale: float = 0.5) -> Any:
    return torch.quantize_per_tensor(torch.tensor(floats), scale, 0, torch.qint8)


def by_channel(floats: Any, scale: float = 0.5) -> Any:
    scales, zeros = torch.tensor([0.5, scale]), torch.zeros(2, dtype=torch.long)
    return torch.quantize_per_channel(torch.tensor(floats), scales, zeros, 0, torch.qint8)


OTHER = [[0.5, -1.0], [1.5, 1.0]]
PAIRS = {
    "dtype": lambda: (torch.qint8, torch.quint8),
    "packed": lambda: ((quantized(FLOATS), None), (quantized(FLOATS), torch.zeros(2))),
    "quantized": lambda: (quantized(FLOATS), quantized(OTHER)),
    "quantized by another scale": lambda: (quantized(FLOATS), quantized(FLOATS, 0.25)),
    "by channel": lambda: (by_channel(FLOATS), by_channel(OTHER)),
    "by other scales": lambda: (by_channel(FLOATS), by_channel(FLOATS, 0.25)),
    "sparse": lambda: (torch.tensor(FLOATS).to_sparse(), torch.tensor(OTHER).to_sparse()),
    "rows": lambda: (torch.tensor(FLOATS).to_sparse_csr(), torch.tensor(OTHER).to_sparse_csr()),
    "complex": lambda: (torch.tensor([1 + 2j]), torch.tensor([1 + 3j])),
    "conjugate": lambda: (torch.tensor([1 + 2j]), torch.tensor([1 + 2j]).conj()),
    "eighths": lambda: (torch.ones(3).to(torch.float8_e4m3fn), torch.zeros(3).to(torch.float8_e4m3fn)),
    "empty": lambda: (torch.ones(0, 3), torch.ones(0, 4)),
    "numbers": lambda: ({"a": 1, "b": [2.0, None]}, {"a": 1, "b": [2.5, None]}),
    "a set": lambda: ({"one", "two", "three"}, {"one", "two", "four"}),
    "an array": lambda: (torch.ones(3).numpy(), torch.zeros(3).numpy()),
    "an object": lambda: (Kept([1, torch.ones(2)]), Kept([1, torch.zeros(2)])),
    "bytes": lambda: (b"1", bytearray(b"2")),
    "without values": lambda: (FakeTensorMode().from_tensor(torch.ones(3)), torch.ones(3)),
}


class Holding(torch.nn.Module):
    """Its state has any value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get_extra_state(self) -> Any:
        return self.value


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_any_state_has_a_fingerprint_that_is_its_own(pair):
    (one, other), (same, _) = pair(), pair()
    for measured in (fingerprint, checksums):
        assert measured(Holding(one)) == measured(Holding(same)) != measured(Holding(other))
    assert byte_count(Holding(one)) >= 0


def test_a_fingerprint_is_the_same_in_every_process():
    held = {"words": {f"word{number}" for number in range(20)}, "tensor": by_channel(FLOATS), "dtype": torch.qint8}
    script = (
        "import pickle, sys, torch\nfrom conformance.models.reference.state import fingerprint\n"
        "held = pickle.load(sys.stdin.buffer)\n"
        "Holding = type('Holding', (torch.nn.Module,), {'get_extra_state': lambda self: held})\n"
        "print(fingerprint(Holding()))"
    )
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], input=pickle.dumps(held), capture_output=True, check=True,
        cwd=HOME.parent, env={"PYTHONHASHSEED": "77"},
    )  # fmt: skip
    assert told.stdout.decode().strip() == fingerprint(Holding(held))


NORMED = net_of(
    "torch.tanh(self.second(torch.tanh(self.first(x))))", first="utils.spectral_norm(torch.nn.Linear(4, 4))",
    second="utils.weight_norm(torch.nn.Linear(4, 4))",
)  # fmt: skip
CASE = say(
    "module: beside.NAME", 'inputs: {x: "float32[batch, 4]"}', "dims: {batch: 1..4}", "specials: false",
    "runtimes: [onnxruntime]",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_a_module_that_keeps_computed_weights_is_copied_for_float64_and_coverage(bench):
    record = bench.run(CASE.replace("NAME", "Net"), NORMED)
    assert verdict(record) == PASSED
    assert record.coverage["seen"] == record.coverage["of"] > 2 and "unknown" not in record.coverage


UNCOPIED = """
import torch
class Uncopied(torch.nn.Module):
    def __deepcopy__(self, memo):
        raise TypeError("there is only one")
    def forward(self, x):
        return torch.sin(x)
"""


def test_a_module_that_cannot_be_copied_is_built_again_for_coverage(bench):
    record = bench.run(say(CASE.replace("NAME", "Uncopied")), UNCOPIED)
    assert verdict(record) == PASSED and (record.coverage["seen"], record.coverage["of"]) == (1, 1)


def test_a_run_says_of_which_case_coverage_is_not_known_and_why():
    known = {"seen": 1, "of": 1, "blind": []}
    unknown = {"seen": 0, "of": 0, "blind": [], "unknown": "raises", "why": "TypeError: there is only one"}
    records = [report_record(name, coverage=told) for name, told in (("a", known), ("b", unknown))]
    assert [line.strip() for line in coverage_totals.least(records)][1:] == ["b: TypeError: there is only one"]
    assert [*coverage_totals.least(records[:1])] == []


@pytest.mark.parametrize("innermost, fault", [
    (HOME / "models" / "reference" / "state.py", "harness"), (HOME / "runtimes" / "onnxruntime.py", "case"),
    ("/elsewhere/torch/nn/module.py", "case"),
])  # fmt: skip
def test_a_crash_in_the_suites_own_frame_is_the_harness_fault(tmp_path, innermost, fault):
    output = (
        f'Thread 0x1 (most recent call first):\n  File "{HOME}/worker/serve.py", line 3 in wait\n\n'
        f'Current thread 0x2 (most recent call first):\n  File "{innermost}", line 9 in it\n'
        f'  File "{HOME}/checks/run_cell.py", line 3 in run\n'
    )
    record = recorded()
    note_death(record, Death("SIGSEGV", {"stage": "declare", "draw": None}, output), tmp_path)
    assert (record.error, record.fault) == ("SIGSEGV", fault)
    hung = recorded()
    note_death(hung, Death("timeout after 1 s", {"stage": "declare", "draw": None}, output, "Timeout"), tmp_path)
    assert hung.fault == "case"


def test_hooks_that_a_call_registers_once_are_taken_back_with_the_note_that_it_has(bench):
    """As transformers has it: a flag says that they are there, and without it they would be registered once more."""
    python = """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.hooked = torch.nn.Linear(4, 4), False
            def forward(self, x):
                if not self.hooked:
                    self.layer.register_forward_hook(lambda module, inputs, output: output * 2)
                    self.hooked = True
                return self.layer(x)
    """
    record = bench.run(module_of("Net"), python, exporter="torchscript")
    assert record.status == "passed", record.reason


@pytest.mark.thorough
def test_a_tensor_without_values_that_a_capture_leaves_in_a_module_is_taken_back(bench):
    """torch.export runs a module with such tensors: what it keeps of them is neither its change nor its fault."""
    python = net_of("x * 2", "self.last = x.mean()")
    record = bench.run(say(module_of("Net"), "export: {dynamo: [20]}"), python, exporter="dynamo", check="export")
    assert record.status == "passed", record.reason


def test_transforms_that_a_failed_export_leaves_open_are_closed(bench):
    """vmap of grad cannot be exported, and the module was called inside of what was left of them."""
    net = net_of("torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(x)")
    record = bench.run(say(module_of("Net"), "export: {dynamo: [20]}"), net, exporter="dynamo", check="export")
    assert (record.status, record.stage, record.fault) == ("failed", "export", "exporter"), record.reason
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert bench.run(module_of("Net"), net_of("x * 2"), exporter="torchscript").status == "passed"


@pytest.mark.parametrize("before, after, other", [
    (0.0, -0.0, True), (1, True, True), (1, 1.0, True), (None, 0, True), ("a", "b", True), ((1, 2), (1, 3), True),
    ((1, [2]), (1, [3]), True), (float("nan"), float("nan"), False), (10**9, int("1000000000"), False),
])  # fmt: skip
def test_a_call_has_changed_what_reads_otherwise_than_before(before, after, other):
    module = torch.nn.Sequential(torch.nn.ReLU())
    module[0].kept = before
    standing = Standing(module, tensors=True)
    assert standing.changes() == []
    module[0].kept = after
    assert standing.changes() == ["0.kept"] * other
    assert standing.told(["0.kept"]) == ["0.kept"] * (not isinstance(before, tuple))
