"""Later draws of a deep network are settled by usual moves; a wrong value in one is still found."""

import numpy as np
import onnx
import pytest

from conformance.case.draw.draw import Draw
from conformance.case.plan.catalogue import plan
from conformance.judge.usual_moves import DRAWS, UsualMoves
from tests.kit.cases import load_case, say
from tests.kit.judging import verifying_cell
from tests.kit.models import model_of

RNG = np.random.default_rng(0)
EXACT = [RNG.standard_normal((8, 64))]
MOVED = [np.full((8, 64), 1e-6)]


def test_the_draw_that_moved_least_decides_and_few_values_show_nothing():
    usual = UsualMoves()
    assert usual.of(EXACT) is None
    few = [EXACT[0][:1, :8]]
    for _ in range(DRAWS):
        assert usual.of(few) is None
        usual.learn(few, [np.full((1, 8), 1e-6)])
    first = usual.of(few)
    assert first is not None and 0 < first[0].max() <= 1e-6
    usual.learn(EXACT, [MOVED[0] / 100])
    second = usual.of(few)
    assert second is not None and second[0].max() < first[0].max() / 10


@pytest.mark.parametrize("moved", [
    np.where(np.arange(64) < 32, 0.0, 1e-6), np.where(np.arange(64) < 1, np.inf, 1e-6), np.array(1e-6),
])  # fmt: skip
def test_nothing_is_usual_where_many_values_stay_one_is_open_or_rows_are_others(moved):
    usual = UsualMoves()
    usual.learn(EXACT, [moved if not moved.ndim else np.broadcast_to(moved, (8, 64))])
    found = usual.of(EXACT)
    assert found is not None and not found[0].any()


def test_zeros_which_are_exact_show_nothing():
    usual = UsualMoves()
    usual.learn(EXACT, MOVED)
    usual.learn([np.zeros((8, 64))], [np.zeros((8, 64))])
    found = usual.of(EXACT)
    assert found is not None and found[0].all()


LAYERS = 1500
"""Of a network so deep that its values near zero are off by more than their tolerance."""


@pytest.fixture
def deep(tmp_path):
    """A verifier of a file of many layers, with a random matrix in each, which has learned nothing yet."""
    steps = "  ".join(f"h{at + 1} = MatMul (h{at}, w)" for at in range(LAYERS))
    model = model_of(f"g (float[2, 64] h0) => (float[2, 64] h{LAYERS}) {{ {steps} }}", 18)
    matrix = np.linalg.qr(np.random.default_rng(1).standard_normal((64, 64)))[0].astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(matrix, "w"))
    onnx.save(model, tmp_path / "net.onnx")
    with verifying_cell(next(plan(load_case(tmp_path, say("onnx: net.onnx", "runtimes: onnxruntime"))))) as verify:
        yield verify


def asked(verify, seed: int, off: float = 0.0) -> tuple[str, int]:
    """The verdict on a draw for which a runtime is off as float32 is in other places, and by ``off`` of the largest
    value in one; and how many runs in float64 that took."""
    calls, oracle = list[object](), verify.reference.oracle
    example = verify.example(Draw({}, "plain", seed))
    right = example.wanted[0]
    got = (example.exact[0] + np.roll(right - example.exact[0], 7)).astype(np.float32)
    got[1, 3] += np.float32(off) * np.abs(right).max()

    def counted(*arguments, **more):
        calls.append(arguments)
        return oracle(*arguments, **more)

    verify.reference.oracle = counted
    try:
        return verify.judged(example, [got]).verdict, len(calls)
    finally:
        del verify.reference.oracle


def test_later_draws_of_a_deep_network_need_no_roundings_of_their_own(deep):
    first = [asked(deep, seed) for seed in range(DRAWS)]
    later = [asked(deep, seed) for seed in range(DRAWS, DRAWS + 6)]
    assert {verdict for verdict, _ in (*first, *later)} == {"verified"}
    assert first[0][1] and not any(count for _, count in later)


def test_a_value_that_is_off_by_more_is_measured_and_found(deep):
    asked(deep, 0)
    assert asked(deep, 9, off=1e-3)[0] == "failed"
