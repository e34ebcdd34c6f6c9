"""Noise against signal: what a precision may cost, and how far a runtime may be off."""

import dataclasses
import math

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.compare.judges import NoiseLimits, judge_from
from conformance.compare.noise import NOISE_LIMITS, Noise, NoiseLimit, compare_outputs, decibels
from conformance.diagnose.nodes.loss import by_stage
from tests.kit.models import model_of

pytestmark = pytest.mark.smoke
INT8, FP16 = NOISE_LIMITS["int8"], NOISE_LIMITS["fp16"]
RNG = np.random.default_rng(0)
EXACT = RNG.standard_normal((16, 10)).astype(np.float32)


def rounded(values, step):
    return (np.round(values / step) * step).astype(np.float32)


MEANT = rounded(EXACT, 0.05)


def verdict(got, meant=MEANT, exact=EXACT, limit=INT8, moved=None):
    found = compare_outputs([got], [meant], [exact], [limit], moved)
    return found.verdict, found.error


def measured(limit, *draws):
    noise = Noise(limit)
    for got, wanted in draws:
        noise.see(np.asarray(got), np.asarray(wanted))
    return noise


LOSES_SPECIALS = """g (float[4] x) => (float[4] y) {
    nan = IsNaN(x)
    inf = IsInf(x)
    odd = Or(nan, inf)
    y = Where(odd, zero, x)
}"""


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_stage_that_loses_a_special_value_loses_all_unless_the_value_may_be_an_overflow(tmp_path, special):
    """In its place is a number, and the other values, which alone have a distance, are right. In 16 bits infinities
    come of the stage before."""
    keeps, loses = tmp_path / "keeps.onnx", tmp_path / "loses.onnx"
    onnx.save(model_of("g (float[4] x) => (float[4] y) { y = Identity(x) }"), keeps)
    onnx.save(model_of(LOSES_SPECIALS, zero=np.zeros(1, "f4")), loses)
    x = np.array([1, special, 2, 3], "f4")
    kept = {"export": math.inf, "optimizer": math.inf}
    assert by_stage([x], keeps, None, None, [], {"x": x}) == kept
    assert by_stage([x], loses, None, None, [], {"x": x}) == {**kept, "export": -math.inf}
    assert by_stage([x], keeps, loses, None, [], {"x": x}) == {**kept, "conversion": math.inf}


def test_decibels_are_ten_times_the_logarithm_of_the_powers():
    assert decibels(100.0, 1.0) == pytest.approx(20) and decibels(1.0, 0.0) == math.inf
    assert decibels(0.0, 1.0) == -math.inf and decibels(1.0, math.inf) == decibels(math.inf, math.inf) == -math.inf
    assert measured(INT8, ([1.1, -0.9], [1.0, -1.0])).sqnr == pytest.approx(20)


def test_draws_count_alike_whatever_their_size():
    large, small = np.ones(10_000), np.ones(1)
    noise = measured(INT8, *[(large, large)] * 9, (0 * small, small))
    assert noise.sqnr == pytest.approx(10) and not noise.within()


def drawn(*more, limit=INT8, step=0.05):
    """Eleven sound draws, then others, each a pair of got and wanted."""
    exact = [np.random.default_rng(seed).standard_normal((4, 8)) for seed in range(11)]
    return measured(limit, *[(rounded(one, step), one) for one in exact], *more)


@pytest.mark.parametrize("size, times", [(0.2, 1), (0.2, 2), (0.3, 1)])
def test_a_draw_that_is_all_wrong_is_found_though_its_values_are_small(size, times):
    small = size * np.random.default_rng(99).standard_normal((4, 8))
    wrong = drawn(*[(0 * small, small)] * times)
    assert wrong.within() and wrong.drowned() == 11
    assert drawn((rounded(small, 0.05), small)).drowned() is None


def test_a_draw_that_comes_out_near_zero_may_be_noise():
    """As one number may, where it is as far off as others."""
    assert drawn((np.array([0.02]), np.array([0.001]))).drowned() is None
    assert drawn((np.array([0.05]), np.array([0.0]))).drowned() is None
    zero = np.zeros((4, 8))
    assert drawn((zero, zero)).drowned() is None
    assert measured(INT8, (zero + 1, zero)).drowned() is None  # nothing to hide among


def test_a_cosine_is_blind_to_scale_and_the_magnitude_is_not():
    limit = dataclasses.replace(INT8, cosine=0.99, magnitude=0.05)
    assert measured(limit, (1.01 * EXACT, EXACT)).within()
    doubled = measured(limit, (2 * EXACT, EXACT))
    assert doubled.cosine == pytest.approx(1) and not doubled.within() and doubled.ratio() == pytest.approx(20)


EMPTY, ZERO = np.zeros((0, 3), "float32"), np.zeros((4, 3), "float32")
EVEN, BYTES, COUNTED = np.arange(40) % 2 == 0, np.zeros(40, "uint8"), np.arange(100)
BY_SHAPE = dataclasses.replace(INT8, cosine=0.9, magnitude=0.1)
TURNED = dataclasses.replace(INT8, cosine=0.99, magnitude=0.1)


@pytest.mark.parametrize("limit, draws, within, ratio", [
    pytest.param(INT8, [(EMPTY, EMPTY)] * 2, True, 0.0, id="no elements"),
    pytest.param(INT8, [(EMPTY, EMPTY), (2 * EXACT, EXACT)], False, None, id="noise in one draw of two"),
    pytest.param(INT8, [(ZERO, ZERO)], True, 0.0, id="zero as it should be"),
    pytest.param(INT8, [(ZERO + np.float32(1e-30), ZERO)], False, math.inf, id="all noise where zero should be"),
    pytest.param(BY_SHAPE, [(ZERO + np.float32(1e-3), ZERO)], False, None, id="and by cosine and magnitude"),
    pytest.param(BY_SHAPE, [(np.zeros_like(EXACT), EXACT)], False, None, id="zero where it should not be"),
    pytest.param(INT8, [(~EVEN, EVEN)], False, None, id="wrong bools"),
    pytest.param(INT8, [(BYTES - np.uint8(1), BYTES)], False, None, id="wrong unsigned numbers"),
    pytest.param(INT8, [(COUNTED + (COUNTED < 5), COUNTED)], True, 1.0, id="five integers of a hundred"),
    pytest.param(INT8, [(COUNTED + (COUNTED < 6), COUNTED)], False, 1.2, id="six integers of a hundred"),
    pytest.param(TURNED, [([1.0, 0.2], [1.0, 0.0])], None, (1 - 1.04**-0.5) / 0.01, id="turned"),
    pytest.param(TURNED, [([1.2, 0.0], [1.0, 0.0])], None, 2.0, id="longer"),
    pytest.param(NoiseLimit(sqnr=20, runtime=40, epsilon=0.01), [([1.1], [1.0])], None, 1.0, id="the limit itself"),
])  # fmt: skip
def test_noise_is_within_the_limit_up_to_a_ratio_of_1(limit, draws, within, ratio):
    noise = measured(limit, *draws)
    assert within is None or noise.within() is within
    assert ratio is None or noise.ratio() == pytest.approx(ratio)


def changed(values, place, by):
    got = values.copy()
    got[place] += np.float32(by)
    return got


@pytest.mark.parametrize(
    "got", [MEANT, EXACT, changed(MEANT, np.s_[::4, 3], 0.05)], ids=["meant", "exact", "other side"]
)
def test_a_runtime_that_computes_what_is_meant_or_closer_or_rounds_a_few_values_otherwise_is_right(got):
    assert verdict(got) == ("verified", None)


@pytest.mark.parametrize("got, error", [
    pytest.param(1.1 * MEANT, "WrongValue", id="scaled"),
    pytest.param(np.roll(MEANT, 1, axis=0), "WrongValue", id="other rows"),
    pytest.param(np.zeros_like(MEANT), "WrongValue", id="nothing"),
    pytest.param(changed(MEANT, (2, 1), np.nan), "WrongNaN", id="not a number where the graph has one"),
    pytest.param(changed(MEANT, (2, 1), np.inf), "WrongInf", id="infinite where the graph is not"),
    pytest.param(MEANT.astype(np.float64), "WrongDtype", id="dtype"),
    pytest.param(MEANT[None], "WrongShape", id="an axis more"),
])  # fmt: skip
def test_a_runtime_that_computes_something_else_is_wrong(got, error):
    assert verdict(got if error == "WrongDtype" else got.astype(np.float32)) == ("failed", error)


def test_the_count_of_outputs_is_exact():
    assert compare_outputs([], [MEANT], [EXACT], [INT8]).error == "WrongCount"


def test_where_the_graph_overflows_and_pytorch_does_not_a_runtime_may_do_either():
    meant = changed(MEANT, (2, 1), np.inf)
    assert verdict(MEANT, meant) == verdict(meant, meant) == ("verified", None)


def test_what_other_roundings_of_the_inputs_move_is_not_held_against_a_runtime():
    got = (EXACT + 0.1 * RNG.standard_normal(EXACT.shape)).astype(np.float32)
    lucky = EXACT.copy()
    assert verdict(got, lucky)[0] == "failed" and verdict(got, lucky, moved=[np.array(0.1)])[0] == "verified"
    assert verdict(got, lucky, moved=[np.full(lucky.shape, 0.1)])[0] == "verified"


SOUND = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
ILL = {
    "digits that cancel": (np.linspace(0.4, 0.9, 10), np.zeros(10)),
    "a mask": (np.full(10, -3e38), np.full(10, -65504)),
    "at the end of the numbers": (np.linspace(65488, 65519, 10), np.full(10, 65504)),
}
"""What PyTorch gives for values on which the conversion is far off, and what the converted graph means."""


def of_both(precision, kind, count):
    """PyTorch's output and what the graph means: ``count`` ill-conditioned values before a thousand sound ones."""
    meant = SOUND.astype(np.float16) if precision == "fp16" else rounded(SOUND, 0.05)
    return tuple(
        np.concatenate([ill[:count], sound]).astype(np.float32)
        for ill, sound in zip(ILL[kind], (SOUND, meant), strict=True)
    )


@pytest.mark.parametrize("kind", ILL)
@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_values_on_which_the_conversion_is_far_off_excuse_no_others(precision, count, kind):
    exact, meant = of_both(precision, kind, count)
    limit, others = NOISE_LIMITS[precision], np.arange(len(exact)) >= count

    def compared(got):
        return compare_outputs([got.astype(np.float32)], [meant], [exact], [limit])

    nearer = np.where(RNG.random(len(exact)) < 0.5, exact, meant)
    for sound in (meant, exact, nearer, meant + 0.9 * (exact - meant)):
        assert compared(sound).verdict == "verified"
    assert compared(meant).excused == 0
    off = np.where(others, 0.03 if precision == "fp16" else 0.05, 0)
    one = np.where(np.arange(len(exact)) == count + 500, 1.0, 0)
    for got in (meant, exact, nearer):
        assert compared(got * (1 + off)).error == "WrongValue" and compared(got + one).error == "WrongValue"
        assert compared(np.where(others, 0, got)).error == "WrongValue"
    wild = np.where(others, meant, 5.0)  # an allowance of its own is no leave to be anything
    assert (compared(wild).error == "WrongValue") is (kind != "a mask")


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_values_that_other_roundings_move_excuse_no_others(precision):
    """As where the graph comes close to PyTorch by luck, and a runtime does not."""
    exact, meant = of_both(precision, "digits that cancel", 10)
    ill = np.arange(len(exact)) < 10
    meant[ill], limit = exact[ill], NOISE_LIMITS[precision]
    moved = np.where(ill, 0.5, 0.0)
    got = np.where(ill, 0, meant).astype(np.float32)
    assert verdict(got, meant, exact, limit)[0] == "failed"
    found = compare_outputs([got], [meant], [exact], [limit], [moved])
    assert found.verdict == "verified" and found.excused >= 8
    wrong = np.where(ill, got, 1.05 * got).astype(np.float32)
    assert verdict(wrong, meant, exact, limit, [moved])[0] == "failed"


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_where_most_values_are_noise_nothing_is_told_of_the_runtime(precision):
    exact, meant = of_both(precision, "digits that cancel", 0)
    most = np.arange(len(exact)) < 0.6 * len(exact)
    exact = np.where(most, exact, 1e-4 * exact).astype(np.float32)
    meant = np.where(most, 0, 1e-4 * meant).astype(np.float32)
    assert verdict(meant, meant, exact, NOISE_LIMITS[precision])[0] == "ill-conditioned"


@pytest.mark.parametrize("scores", [SOUND, rounded(SOUND, 0.125)], ids=["rounded", "exact in fp16"])
@pytest.mark.parametrize("mask", [-1e4, np.finfo(np.float32).min])
@pytest.mark.parametrize("count", [1, 400])
def test_scores_beside_a_mask_are_compared_by_their_own_size(count, mask, scores):
    exact = np.concatenate([np.full(count, mask), scores]).astype(np.float32)
    meant = exact.clip(-65504, 65504).astype(np.float16).astype(np.float32)
    sound, wrong = exact.copy(), exact.copy()
    wrong[count:] *= 1.03
    assert verdict(sound, meant, exact, FP16) == ("verified", None)
    assert verdict(wrong, meant, exact, FP16) == ("failed", "WrongValue")


def test_what_fp16_hardly_holds_is_of_one_size_with_its_smallest_numbers():
    exact = np.concatenate([SOUND[:600] * 1e-13, 6e-8 + SOUND[:400] * 1e-9]).astype(np.float32)
    meant = exact.astype(np.float16).astype(np.float32)
    assert verdict(exact, meant, exact, FP16) == ("verified", None)


def test_where_hardly_any_value_is_changed_by_the_conversion_one_that_is_may_stand_anywhere_else():
    """As of a rounding at a tie, which the graph's meaning and a runtime decide otherwise at different values."""
    exact = np.sign(SOUND)
    meant, got = exact.copy(), exact.copy()
    meant[:20] *= -1
    got[500:520] *= -1
    assert verdict(got, meant, exact) == ("verified", None)


def test_integers_may_differ_as_much_as_the_conversion_changed_them():
    exact = np.arange(200)
    meant = exact.copy()
    meant[:10] += 1
    got = meant.copy()
    got[100:110] += 1
    assert verdict(got, meant, exact) == ("verified", None)
    got[110:111] += 1
    assert verdict(got, meant, exact) == ("failed", "WrongValue")


def test_bools_that_the_conversion_left_alone_are_exact_in_small_outputs():
    exact = np.arange(50) % 2 == 0
    assert verdict(exact, exact, exact) == ("verified", None)
    assert verdict(exact ^ (np.arange(50) == 7), exact, exact) == ("failed", "WrongValue")


def test_outputs_without_elements_are_compared_by_their_shape():
    assert verdict(EMPTY, EMPTY, EMPTY) == ("verified", None)
    assert verdict(EMPTY, ZERO[:1], EMPTY) == ("failed", "WrongShape")


def test_every_output_is_judged_by_itself():
    wrong = -MEANT
    for place in range(3):
        got = [wrong if output == place else MEANT for output in range(3)]
        found = compare_outputs(got, [MEANT] * 3, [EXACT] * 3, [INT8] * 3)
        assert (found.verdict, found.error, found.worst.output) == ("failed", "WrongValue", place)


@given(st.integers(0, 2**32 - 1), st.sampled_from([INT8, FP16]))
def test_noise_below_what_is_due_is_never_accused_and_noise_well_above_always(seed, limit):
    rng = np.random.default_rng(seed)
    exact = rng.standard_normal((8, 32))
    due = 10 ** (-limit.runtime / 20)
    noise = rng.standard_normal(exact.shape)
    noise /= np.sqrt(np.mean(noise**2) / np.mean(exact**2))
    assert verdict(exact + 0.9 * due * noise, exact, exact, limit)[0] == "verified"
    assert verdict(exact + 1.2 * due * noise, exact, exact, limit)[0] == "failed"


def test_limits_are_stored_as_budgets_which_old_bundles_say():
    stored = {"kind": "budget", "budgets": [dataclasses.asdict(FP16)], "any_order": [True]}
    judge = judge_from(stored)
    assert judge == NoiseLimits((FP16,), (True,)) and judge.as_dict() == stored


def test_what_is_off_from_0_is_told_without_decibels():
    """Of no signal these are minus infinity on either side."""
    zeros = np.zeros(4, np.float32)
    found = compare_outputs([zeros + np.float32(0.005)], [zeros], [zeros], [FP16])
    assert found.verdict == "failed" and found.text.endswith("come out as up to 0.005"), found.text
