"""What rounding inside a module excuses: a unit in the last place of an intermediate result, and no defect."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from conformance.case.draw.draw import Draw
from conformance.models.otherwise.rounded_run import Rounded
from conformance.models.otherwise.rounding import Rounding
from tests.kit.cases import case_of, say
from tests.kit.judging import judged, verifying
from tests.kit.modules import net_of


def test_a_unit_in_the_last_place_of_an_intermediate_result_is_no_finding(bench):
    """Tanhshrink of 0.1 is 300 times smaller than the tanh in it. What only rounding excuses counts apart.

    Whichever way PyTorch's own tanh is rounded, an approximation may be off by some units the other way.
    """
    x = np.float32([[0.1, 0.1, 0.1]])
    tanh = np.tanh(x.astype(np.float64)).astype(np.float32)
    units = (0, 1, -1, 3, -3, 64, 1000)
    answers = [x - (tanh + np.float32(unit) * np.spacing(tanh)) for unit in units]
    exact, *near, far, farther = judged(bench, case_of("F.tanhshrink(x)"), x, *answers)
    assert exact in ("verified", "ill-conditioned")
    assert set(near) == {"ill-conditioned"}
    assert (far, farther) == ("failed", "failed")


def test_a_result_below_the_normal_numbers_of_float32_may_be_flushed(bench):
    """The sigmoid of -91 is 3e-40, or zero by a form whose exponential overflows; 91 times it is a normal number."""
    x = np.float32([[-91, -86, -91]])
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    flushed = exact - 1e-38 * (x == -91)
    *sound, near, far = judged(
        bench, case_of("torch.sigmoid(x) * x"), x, exact, flushed, exact - 1e-38, exact - 1e-34
    )
    assert "failed" not in sound and near == far == "failed"


PARTS = (
    "F.layer_norm(x, [3])", "F.group_norm(x, 2)", "F.instance_norm(x)", "torch.var_mean(x, -1)",
    "F.batch_norm(x, None, None, training=True)", "torch.std(x)", "F.gelu(x)",
    "torch.addcmul(x, x, x)", "torch.lerp(x, x, 0.3)", "torch.logsumexp(x, 1)", "torch.softmax(x, 1)",
)  # fmt: skip


def take_apart():
    for expression in PARTS:
        with torch.no_grad(), Rounded(Rounding(24, 1)):
            eval(expression, {"F": F, "torch": torch, "x": torch.rand(2, 4, 3, dtype=torch.float64)})


def test_operators_are_taken_apart_without_the_compiler_of_pytorch():
    """Importing it takes longer than all comparisons of a norm, in every process that compares one. Asked in a new
    process, as that of another test may have it."""
    code = """
import sys
from tests.judge.test_rounding import take_apart
assert "torch._dynamo" not in sys.modules
take_apart()
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent.parent.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def one_by_one(x):
    """The sum over the last axis as a loop in float32 has it."""
    return np.add.accumulate(x, -1, dtype=np.float32)[..., -1:]


LONG_SUMS = {
    "instance norm": ("F.instance_norm(x)", True), "group norm": ("F.group_norm(x, 1)", True),
    "batch norm": ("F.batch_norm(x, None, None, training=True)", True),
    "layer norm": ("F.layer_norm(x, [SIZE])", True), "mean": ("x.mean(-1, keepdim=True)", False),
    "pool": ("F.adaptive_avg_pool1d(x, 1)", False), "a long window": ("F.avg_pool1d(x, SIZE)", False),
}  # fmt: skip


@pytest.mark.parametrize("operator, mean, spread", [
    *((operator, 10.0, 0.01) for operator in LONG_SUMS), ("instance norm", 0.0, 1.0), ("layer norm", 3.3, 0.0),
])  # fmt: skip
def test_a_long_sum_that_is_added_up_one_by_one_is_no_finding(bench, operator, mean, spread):
    """And one by 10 bits is, or with another eps. Of equal values a norm leaves no more than its mean is off."""
    forward, normalises = LONG_SUMS[operator]
    size = 16384
    x = (mean + spread * np.random.default_rng(0).standard_normal((1, 1, size))).astype(np.float32)

    def answer(eps=1e-5, off=0.0):
        means = one_by_one(x) / np.float32(size) * np.float32(1 + off)
        if not normalises:
            return means
        return (x - means) / np.sqrt(one_by_one(np.square(x - means)) / np.float32(size) + np.float32(eps))

    wrong = answer(off=2.0**-9) if mean else answer(eps=1e-2)
    body = case_of(forward.replace("SIZE", str(size)), x=f"[batch, 1, {size}]")
    found = judged(bench, body, x, answer(), *([wrong] if spread else []))
    assert found[0] != "failed" and found[1:] == ["failed"] * bool(spread)


@pytest.mark.parametrize("step", [0.0, 2.0**-12])
def test_a_norm_of_two_values_may_drift_where_the_sum_that_is_tried_does_not(bench, step):
    """Of equal terms each addition rounds alike, up or down by their last bits, which ``step`` makes others."""
    x = np.where(np.random.default_rng(3).random((1, 1, 65536)) < 0.5, 4, -4).astype(np.float32)

    def answer(eps=1e-5):
        off = x - np.float32(x.mean(dtype=np.float64))
        squares = np.square(off) * np.float32(1 + step)
        return off / np.sqrt(one_by_one(squares) / np.float32(x.size) / np.float32(1 + step) + np.float32(eps))

    body = case_of("F.layer_norm(x, (65536,))", x="[batch, 1, 65536]")
    sound, wrong = judged(bench, body, x, answer(), answer(eps=0.5))
    assert sound != "failed" and wrong == "failed"


@pytest.mark.parametrize("forward", [
    "x @ WEIGHTS", "x @ WEIGHTS[:, None]", "F.linear(x, WEIGHTS[None], torch.ones(1))",
    "x[None] @ WEIGHTS[None, :, None]", "F.conv1d(x[None], WEIGHTS[None, None])",
    "F.conv2d(x.view(1, 16, 16, 16), WEIGHTS.view(1, 16, 16, 16))",
])  # fmt: skip
def test_a_product_whose_terms_have_one_sign_for_a_while_may_be_added_up_one_by_one(bench, forward):
    """And one whose terms have 13 bits is found."""
    x = (10 + 0.01 * np.random.default_rng(0).standard_normal((1, 4096))).astype(np.float32)
    terms, bias = x * np.linspace(-1, 1, 4096, dtype=np.float32), np.float32("ones" in forward)
    answers = [one_by_one(each) + bias for each in (terms, terms * np.float32(1 - 2.0**-13 * (terms > 0)))]
    body = case_of(forward.replace("WEIGHTS", "torch.linspace(-1, 1, 4096)"), dims="", x="[1, 4096]")
    three = forward.startswith(("x[None]", "F.conv1d"))
    shape = (1,) if forward == "x @ WEIGHTS" else (1, 1, 1, 1) if "conv2d" in forward else (1, 1, 1)[: 2 + three]
    sound, narrow = judged(bench, body, x, *(answer.reshape(shape) for answer in answers))
    assert sound != "failed" and narrow == "failed"


@pytest.mark.parametrize("size", [30, 32])
def test_a_transform_that_is_added_up_otherwise_is_no_finding(bench, size):
    """Of equal values nothing is left at most frequencies but what their sum is off by. Angles that float32 has lost
    the last bits of, as they were not reduced to one turn, are no other order of a sum."""
    x = np.full((1, size), 1.3, np.float32)
    steps = np.outer(np.arange(size), np.arange(size))

    def by_formula(angles):
        waves = np.float32([np.cos(angles), -np.sin(angles)])
        return np.moveaxis(one_by_one(x[0] * waves)[..., 0], 0, -1)[None]

    plain = by_formula(2 * np.pi / size * steps)
    unreduced = by_formula(np.float32(2 * np.pi / size) * np.float32(steps))
    body = case_of("torch.view_as_real(torch.fft.fft(x))", x=f"[batch, {size}]")
    answers = plain, plain * np.float32(1 + 2.0**-10), plain + 1e-3, unreduced
    sound, *others = judged(bench, body, x, *answers)
    assert sound != "failed" and others == ["failed"] * 3


X = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
MASK = np.float32(np.finfo(np.float32).min)


@pytest.mark.parametrize("forward, sound, plain, excused", [
    ("torch.cat([(x + 4096.0) - 4096.0, x * 0.7], 1)", np.hstack([X, X * 0.7]), np.s_[:, 40:], True),
    ("torch.cat([(x + 4096.0) - 4096.0, x * 0.7, x, x]).flatten()", np.vstack([X, X * 0.7, X, X]).ravel(),
     np.s_[200:], True),
    ("torch.cat([x @ x.T * 1e6, x @ x.T], 1)", np.hstack([X @ X.T * 1e6, X @ X.T]), np.s_[:, 5:], False),
    ("x * 0.7 + (x > 0) * torch.finfo(x.dtype).min", X * np.float32(0.7) + (X > 0) * MASK, X <= 0, False),
    ("x * 0.7 + (x > 0) * torch.finfo(x.dtype).min", X * np.float32(0.7) + (X > 0) * MASK, X > 0, False),
], ids=["digits cancel", "in one row", "large values", "beside a mask", "mask"])  # fmt: skip
def test_values_that_rounding_moves_excuse_no_others(bench, forward, sound, plain, excused):
    with verifying(bench, case_of(forward, x="[batch, 40]")) as verify:
        example = verify.example(Draw({"batch": 5}, "plain", 0), {"x": X})

        def judge(factor):
            got = np.float32(sound)
            got[plain] *= np.float32(factor)
            return verify.judged(example, [got])

        found = judge(1)
        assert found.verdict == "verified" and bool(found.excused) == excused
        assert judge(0.9999).verdict == "failed"


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


def test_a_wrong_constant_shows_through_twelve_layers(bench):
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)

    def outputs(eps, scale):
        scope: dict = {}
        exec(LAYERS.replace("EPS", eps).replace("SCALE", scale), scope)
        torch.manual_seed(0)
        with torch.no_grad():
            return scope["Chain"]().eval()(torch.from_numpy(x)).numpy()

    body = case_of("x", x="[batch, 32]").replace('forward: "x"', "module: beside.Chain")
    answers = [outputs("1e-5", "0.7"), outputs("1e-3", "0.7"), outputs("1e-5", "0.70007")]
    python = LAYERS.replace("EPS", "1e-5").replace("SCALE", "0.7")
    assert judged(bench, body, x, *answers, python=python) == ["verified", "failed", "failed"]


def test_a_step_that_jumps_excuses_nothing(bench):
    """Rounding to whole numbers at ties: a unit in the last place moves the output by one, whatever the unit."""
    x = np.float32([[-50, 1, 7], [3, 49, 50]])
    assert judged(bench, case_of("torch.floor(x * 3.0 / 3.0)"), x, x + 1) == ["failed"]


MUTATED = net_of(
    "y - torch.tanh(y)", "y = x * self.scale", "y[:, 0].add_(1.7).mul_(0.3)",
    scale="Buffer(torch.tensor([0.1, 0.2, 0.3]))",
)  # fmt: skip
ROW = np.float32([[1.0, -0.5, 0.25]])
MUTATES = say("module: beside.Net", 'inputs: {x: "float32[n, 3]"}', "dims: {n: 1..4}")
POSITIONS = case_of("torch.sin(torch.arange(1000.) * 0.5) + x", dims="", x="[1]")
CHOOSES = case_of("torch.cond(x.sum() > 0, lambda x: torch.tanh(x) * 3.1, lambda x: x / 3, (x,))")


@pytest.mark.parametrize("body, x, least, most", [
    *(pytest.param(case_of(forward), ROW, 0, 4 * 2.0**-23, id=f"exact in every computation: {forward}")
      for forward in ("x * 2", "torch.relu(-x)", "x[:, :2].contiguous() + 0", "torch.cat([x, x])")),
    pytest.param(MUTATES, np.abs(ROW), 1e-8, 1e-6, id="written in place"),
    # one unit in the last place of 999 is 6e-5
    pytest.param(POSITIONS, np.float32([0.1]), 0, 1e-6, id="positions are exact in every computation"),
    pytest.param(CHOOSES, np.abs(ROW), 1e-8, np.inf, id="a module that cannot be run so moves with its inputs"),
])  # fmt: skip
def test_results_move_as_far_as_rounding_and_weights_are_put_back(bench, body, x, least, most):
    """Afterwards the module computes what it did before."""
    with verifying(bench, body, MUTATED) as verifier:
        reference, inputs = verifier.reference, {"x": x}
        exact = reference.oracle(inputs)
        (moved,) = verifier.conditioning(inputs, reference(inputs), exact)
        again = reference.oracle(inputs)
    assert all(np.array_equal(before, after) for before, after in zip(exact, again, strict=True))
    assert least <= float(moved.max()) <= most
