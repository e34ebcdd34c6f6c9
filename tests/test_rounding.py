"""What rounding inside a module excuses: a unit in the last place of an intermediate result, and no defect."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import numpy as np
import pytest

from conformance.case.python import Folder
from conformance.checks.stages import Stages
from conformance.checks.verify import Verifier
from conformance.draw.draw import Draw, Maker
from conformance.export.reference import Reference
from conformance.runtimes import onnxreference, onnxruntime
from conformance.worker.progress import Progress
from tests.support import Alter, altered, say, verdict


@pytest.fixture
def computing(monkeypatch):
    """``computing(f)``: every runtime gives what ``f`` makes of its inputs and outputs, so that none contradicts."""

    def replace(alter: Alter) -> None:
        for module, name in (
            (onnxruntime, "open_optimized"), (onnxruntime, "open_unoptimized"), (onnxreference, "open_model"),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, altered(getattr(module, name), alter))

    return replace


TANHSHRINK = """
forward: F.tanhshrink(x)
inputs: {x: "float32[n, 3]"}
dims: {n: 1..9}
"""


@pytest.mark.parametrize("units, verdicts", [
    (0, ("verified", "ill-conditioned")), (1, ("ill-conditioned",)), (-1, ("ill-conditioned",)),
    (64, ("failed",)), (1000, ("failed",)),
])  # fmt: skip
def test_a_unit_in_the_last_place_of_an_intermediate_result_is_no_finding(bench, units, verdicts):
    """Tanhshrink of 0.1 is 300 times smaller than the tanh in it. What only rounding excuses counts apart."""
    x = np.float32([[0.1, 0.1, 0.1]])
    tanh = np.tanh(x.astype(np.float64)).astype(np.float32)
    got = x - (tanh + units * np.spacing(tanh))
    with verifying(bench, TANHSHRINK) as verify:
        example = verify.example(Draw({"n": 1}, "plain", 0), {"x": x})
        assert verify.judged(example, [got]).verdict in verdicts


def test_a_tanh_that_is_off_by_three_units_is_no_finding_of_tanhshrink(bench):
    """Whichever way PyTorch's own tanh is rounded, an approximation may be off the other way."""
    x = np.float32([[0.1, -0.2, 0.0]])
    tanh = np.tanh(x.astype(np.float64)).astype(np.float32)
    with verifying(bench, TANHSHRINK) as verify:
        for units in (-3, 3):
            example = verify.example(Draw({"n": 1}, "grid", 0), {"x": x})
            got = x - (tanh + np.float32(units) * np.spacing(tanh))
            assert verify.judged(example, [got]).verdict != "failed"


@pytest.mark.parametrize("units, failed", [(0, False), (2, False), (-3, False), (100, True), (-1000, True)])
def test_what_rounding_leaves_inside_of_gelu_is_no_finding(bench, units, failed):
    """1 + tanh at -3.3 is 40 units of the tanh; PyTorch's kernel happens to be closer than that."""
    x = np.full((1, 3), -3.2981968, np.float32)
    body = say("forward: \"F.gelu(x, approximate='tanh')\"", 'inputs: {x: "float32[n, 3]"}', "dims: {n: 1..9}")
    wide = x.astype(np.float64)
    tanh = np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)).astype(np.float32)
    got = (0.5 * x * (1 + (tanh + np.float32(units) * np.spacing(tanh)))).astype(np.float32)
    with verifying(bench, body) as verify:
        example = verify.example(Draw({"n": 1}, "plain", 0), {"x": x})
        assert (verify.judged(example, [got]).verdict == "failed") == failed


NORMALISED = {
    "group": "F.group_norm(x, 2)", "layer": "F.layer_norm(x, (6, 9, 8))", "instance": "F.instance_norm(x)",
}  # fmt: skip


@pytest.mark.parametrize("units, failed", [(0, False), (5, False), (-6, False), (3000, True)])
@pytest.mark.parametrize("name", NORMALISED)
def test_a_mean_that_is_added_up_otherwise_is_no_finding(bench, name, units, failed):
    """Of equal values nothing is left but what their mean is off by, divided by the root of eps."""
    x = np.full((1, 6, 9, 8), 1.4526228, np.float32)
    body = say(f'forward: "{NORMALISED[name]}"', 'inputs: {x: "float32[n, 6, 9, 8]"}', "dims: {n: 1..9}")
    mean = x.flat[0] + np.float32(units) * np.spacing(x.flat[0])
    got = ((x - mean) / np.sqrt((x - mean).astype(np.float64) ** 2 + 1e-5)).astype(np.float32)
    with verifying(bench, body) as verify:
        example = verify.example(Draw({"n": 1}, "equal", 0), {"x": x})
        assert (verify.judged(example, [got]).verdict == "failed") == failed


def kept_bits(array, bits: int):
    """The values with so many bits of significand, cut off as tensor cores cut them off."""
    return (array.view(np.uint32) & np.uint32(0xFFFFFFFF << (24 - bits) & 0xFFFFFFFF)).view(np.float32)


def summed_in_fp16(x, w):
    total = np.zeros((len(x), w.shape[1]), np.float16)
    for term in range(len(w)):
        total = (total + (x[:, term, None] * w[term]).astype(np.float16)).astype(np.float16)
    return total.astype(np.float32)


def in_tf32(x, w):
    return kept_bits(x, 11) @ kept_bits(w, 11)


DENSE = """
forward: torch.relu(x @ a) @ b
inputs:
  x: float32[n, {k}]
  a: float32[{k}, 64]
  b: float32[64, 8]
dims: {{n: 1..5}}
"""


@pytest.mark.parametrize("terms", [16, 256, 2048])
@pytest.mark.parametrize("product", [in_tf32, summed_in_fp16])
def test_less_precision_than_float32_is_found_through_two_layers(bench, computing, product, terms):
    def compute(inputs, outputs):
        return [product(np.maximum(product(inputs["x"], inputs["a"]), 0), inputs["b"])]

    computing(compute)
    assert verdict(bench.run(DENSE.format(k=terms)))[:3] == ("failed", "compare", "WrongValue")


def test_another_order_of_the_same_sums_is_not(bench, computing):
    def backwards(x, w):
        return x[:, ::-1] @ w[::-1]

    def compute(inputs, outputs):
        return [backwards(np.maximum(backwards(inputs["x"], inputs["a"]), 0), inputs["b"])]

    computing(compute)
    assert bench.run(DENSE.format(k=256)).status == "passed"


CHAIN = """
module: beside.Chain
inputs: {x: "float32[n, 32]"}
dims: {n: 1..4}
"""
LAYERS = """
import torch

class Chain(torch.nn.Module):
    # twelve layers, as of a small transformer
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(32, 32) for _ in range(12)])

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.nn.functional.gelu(layer(torch.nn.functional.layer_norm(x, (32,), eps=EPS)) * SCALE)
        return x
"""


@pytest.mark.parametrize("defect", [
    pytest.param({"EPS": "1e-3"}, id="eps"), pytest.param({"SCALE": "0.70007"}, id="a constant off by 1e-4"),
])  # fmt: skip
def test_a_wrong_constant_shows_through_twelve_layers(bench, tmp_path, computing, defect):
    import torch

    right, wrong = LAYERS, LAYERS
    for name, value in {"EPS": "1e-5", "SCALE": "0.7"}.items():
        right, wrong = right.replace(name, value), wrong.replace(name, defect.get(name, value))
    assert bench.run(CHAIN, right).status == "passed"
    scope: dict = {}
    exec(wrong, scope)
    torch.manual_seed(0)
    module = scope["Chain"]().eval()

    def compute(inputs, outputs):
        with torch.no_grad():
            return [module(torch.from_numpy(inputs["x"].copy())).numpy()]

    computing(compute)
    assert verdict(bench.run(CHAIN, right))[:3] == ("failed", "compare", "WrongValue")


def test_a_step_that_jumps_excuses_nothing(bench, computing):
    """Rounding to whole numbers at ties: a unit in the last place moves the output by one, whatever the unit."""
    body = """
    forward: torch.floor(x * 3.0 / 3.0)
    inputs: {x: {type: "float32[n, 4]", values: {integers: {low: -50, high: 50}}}}
    dims: {n: 1..4}
    """
    computing(lambda inputs, outputs: [outputs[0] + 1])
    assert verdict(bench.run(body))[:3] == ("failed", "compare", "WrongValue")


MUTATED = """
import torch

class Mutated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.1, 0.2, 0.3]))

    def forward(self, x):
        y = x * self.scale
        y[:, 0].add_(1.7).mul_(0.3)
        return y - torch.tanh(y)
"""


@contextlib.contextmanager
def verifying(bench, body, python=""):
    """A verifier of the case, without a runtime."""
    cell = bench.cells(body, python)[0]
    with Folder.of(cell.case.folder).active() as folder:
        record = cell.record()
        stages = Stages(record, Progress(), cell.case.folder)
        yield Verifier(cell, record, stages, Reference(cell.case, folder), Maker(cell.case, folder.resolve), [])


def conditioned(bench, body, inputs, python=""):
    """How far each output moves; afterwards the module computes what it did before."""
    with verifying(bench, body, python) as verifier:
        reference = verifier.reference
        exact = reference.oracle(inputs)
        moved = verifier.conditioning(inputs, reference(inputs), exact)
        again = reference.oracle(inputs)
    assert all(np.array_equal(before, after) for before, after in zip(exact, again, strict=True))
    return moved


def test_results_that_are_written_in_place_move_and_weights_are_put_back(bench):
    body = say("module: beside.Mutated", 'inputs: {x: "float32[n, 3]"}', "dims: {n: 1..4}")
    inputs = {"x": np.float32([[1.0, 0.5, 0.25]])}
    (moved,) = conditioned(bench, body, inputs, MUTATED)
    assert 1e-8 < moved < 1e-6


@pytest.mark.parametrize("forward", ["x * 2", "torch.relu(-x)", "x[:, :2].contiguous() + 0", "torch.cat([x, x])"])
def test_what_is_exact_in_every_computation_moves_with_its_inputs_alone(bench, forward):
    body = say(f'forward: "{forward}"', 'inputs: {x: "float32[n, 3]"}', "dims: {n: 1..4}")
    inputs = {"x": np.float32([[1.0, -0.5, 0.25]])}
    (moved,) = conditioned(bench, body, inputs)
    assert moved <= 2 * 2.0**-23


def test_positions_are_exact_in_every_computation(bench):
    body = say('forward: "torch.sin(torch.arange(1000.) * 0.5) + x"', 'inputs: {x: "float32[1]"}')
    (moved,) = conditioned(bench, body, {"x": np.float32([0.1])})
    assert moved < 1e-6  # one unit in the last place of 999 is 6e-5


def test_a_module_that_cannot_be_run_so_moves_with_its_inputs(bench):
    body = say(
        'forward: "torch.cond(x.sum() > 0, lambda x: torch.tanh(x) * 3.1, lambda x: x / 3, (x,))"',
        'inputs: {x: "float32[n, 3]"}', "dims: {n: 1..4}",
    )  # fmt: skip
    (moved,) = conditioned(bench, body, {"x": np.float32([[1.0, 0.5, 0.25]])})
    assert moved > 1e-8


def test_rounding_does_not_import_the_compiler_of_pytorch():
    """It is imported at the first call of a mode that does not decline, which takes longer than importing torch."""
    code = """
import sys, torch
from conformance.export.rounding import Rounding, rounds
x = torch.tensor([0.1, 0.7], dtype=torch.float64)
with rounds(Rounding(24, 0)):
    y = torch.asinh(x)
assert not torch.equal(y, torch.asinh(x))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
