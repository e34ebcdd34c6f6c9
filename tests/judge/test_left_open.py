"""What PyTorch leaves open gets no verdict, and a wrong value beside it is found."""

from typing import Any

import numpy as np
import pytest

from conformance.case.draw.draw import Draw
from conformance.models.otherwise.undefined_rules import beyond_in_between
from tests.kit.cases import case_of, details, module_of, say
from tests.kit.judging import verifying
from tests.kit.modules import net_of
from tests.kit.runtimes import wrong_runtime

NAN, INF = np.nan, np.inf
HALVES = np.float32([[0.05, 0.05, 0.05], [0.3, 0.1, 0.2]])
"""The first row adds up to one and a half steps of 0.1, up to rounding."""
SQUARE = np.float32([[[0.1, 0.3], [0.7, 2.1]], [[1.5, 0.3], [0.2, 1.1]]])
"""The first matrix is singular, up to rounding."""


def beside(first: Any, shape: tuple[int, ...]) -> Any:
    """Values of which the first are given."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, size=shape).astype(np.float32)
    x.reshape(-1)[: len(first)] = first
    return x


IMAGE = "torch.arange(16.0).view(1, 1, 4, 4).expand(len(x), 1, 4, 4)"
SAMPLED = f"F.grid_sample({IMAGE}, x, padding_mode='{{}}', align_corners=False)"
OPEN = {
    "kernels: attention with a NaN key":
        ("F.scaled_dot_product_attention(torch.ones_like(x), x, x * 0)", beside([NAN], (2, 1, 1, 8)), NAN),
    "kernels: attention with an infinite key":
        ("F.scaled_dot_product_attention(torch.ones_like(x), x, x * 0 + 1)", beside([-INF], (2, 1, 1, 8)), NAN),
    "kernels: the loss of a logit of minus infinity":
        ("F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction='none')", beside([-INF], (2, 1)), INF),
    "kernels: the square root of minus infinity as a power": ("torch.pow(x, 0.5)", beside([-INF], (2, 1)), INF),
    "cast: NaN": ("(x * 2).to(torch.int32)", beside([NAN], (2, 1)), 7),
    "cast: beyond the range": ("x.to(torch.uint8)", beside([-3.0], (2, 1)), 0),
    "quantizer: an infinity": ("torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)",
                               beside([INF], (2, 1)), 12.7),
    "quantizer: an infinity in a channel":
        ("torch.fake_quantize_per_channel_affine(x, torch.full((1,), 0.1), torch.zeros(1).int(), 1, -128, 127)",
         beside([INF], (2, 1)), 12.7),
    "transform: an infinity": ("torch.fft.rfft(x).abs()", beside([INF], (2, 8)), NAN),
    "transform: both parts of NaN": ("torch.view_as_real(torch.fft.fft(x))", beside([NAN], (2, 8)), 0.5),
    "search: a row that does not ascend":
        ("torch.searchsorted(x, torch.ones(len(x), 1))", np.float32([[3, 0.1, 2], [0.1, 2, 3]]), 3),
    "search: a row that does not ascend by its sorter":
        ("torch.searchsorted(x, torch.ones(len(x), 1), sorter=torch.tensor([[0, 1, 2], [2, 0, 1]]))",
         np.float32([[3, 0.1, 2], [2, 3, 0.1]]), 3),
    "matrix: NaN": ("torch.linalg.inv(x)", beside([NAN], (2, 2, 2)), 0.5),
    "unstable: a singular matrix": ("torch.logdet(x)[:, None]", SQUARE, -INF),
    "ties: the best of equal ones": ("torch.topk(x, 2).indices", beside([1, 1, 1, 1], (2, 4)), 3),
    "ties: one of two NaN": ("torch.topk(x, 1).indices", beside([NAN, NAN, 1], (2, 3)), 0),
    "order: an infinity times zero": ("x.prod(-1, keepdim=True)", beside([1e30, 1e30, 0], (2, 3)), 7),
    "order: an infinity that becomes finite": ("x.prod(-1, keepdim=True)", beside([1e30, 1e30, 1e-30], (2, 3)), 1e30),
    "order: an infinity and what vanishes": ("x.prod(-1, keepdim=True)", beside([INF, 1e-30, 1e-30], (2, 3)), 7),
    "order: a sum that is beyond in between": ("x.sum(-1, keepdim=True)", beside([3e38, 3e38, -3e38], (2, 3)), 3e38),
    "order: a mean of large values": ("x.mean(-1, keepdim=True)", beside([3e38, 3e38, 1e38], (2, 3)), 2.3e38),
    "order: an infinity and a sum beyond": ("x.sum(-1, keepdim=True)", beside([INF, -3e38, -3e38], (2, 3)), NAN),
    "order: each product": ("torch.cumprod(x, -1)[:, 2:]", beside([1e30, 1e30, 0], (2, 3)), 7),
    "rounding: a quantizer's tie": ("torch.round(x.sum(1, keepdim=True) / 0.1)", HALVES, 1.0),
    "rounding: a quantizer's tie as an integer": ("torch.round(x.sum(1, keepdim=True) / 0.1).int()", HALVES, 1),
    "place: NaN, not taken for -1": (SAMPLED.format("zeros"), beside([NAN], (2, 1, 1, 2)), 7),
    "place: a reflection without end": (SAMPLED.format("reflection"), beside([INF], (2, 1, 1, 2)), 7),
    "tie: a quotient": ("torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)", beside([0.15], (2, 1)), 0.1),
}  # fmt: skip
"""By rule: the module, an input of which the first row falls under it, and what a runtime may give there."""


@pytest.mark.parametrize("rule", OPEN)
def test_what_is_open_gets_no_verdict_and_a_wrong_value_beside_it_is_found(bench, rule):
    forward, x, instead = OPEN[rule]
    shape = ", ".join(map(str, ["batch", *x.shape[1:]]))
    with verifying(bench, case_of(forward, x=f"[{shape}]")) as verify:
        example = verify.example(Draw({"batch": len(x)}, "plain", 0), {"x": x})
        right = verify.reference({"x": x})[0]
        other, wrong = right.copy(), right.copy()
        other[0] = np.where(right[0] == instead, right[0] + 1, instead)
        wrong[1] += 1
        found = verify.judged(example, [other])
        assert found.verdict != "failed" and found.excused
        assert verify.judged(example, [right]).verdict != "failed"
        assert verify.judged(example, [wrong]).verdict == "failed"
        # float64 excuses what it gives another number for, before anybody asks whether that is open
        assert rule.split(":")[0] in verify.record.left_open or not found.left_open


@pytest.mark.parametrize("forward", [
    "torch.sort(x).indices", "torch.sort(x, descending=True).indices", "torch.topk(x, 2).indices",
    "torch.kthvalue(x, 2, keepdim=True).indices", "torch.median(x, -1, keepdim=True).indices",
    "torch.sort(x.mT, 0).indices.mT", "x.topk(2).indices.mT.flip(0).mT",
])  # fmt: skip
def test_every_place_among_equal_values_is_open_and_no_other(bench, forward):
    """The one in the middle too, of a hundred rows of three."""
    x = np.where(np.arange(201)[:, None] < 100, np.float32(1), np.float32([3, 1, 2]))
    with verifying(bench, case_of(forward, x="[batch, 3]")) as verify:
        example = verify.example(Draw({"batch": len(x)}, "plain", 0), {"x": x})
        other = verify.reference({"x": x})[0].copy()
        other[:100] = (other[:100] + 1) % 3
        found = verify.judged(example, [other])
        assert (found.verdict, found.excused) == ("verified", other[:100].size)
        other[-1, 0] = (other[-1, 0] + 1) % 3
        assert verify.judged(example, [other]).verdict == "failed"


def test_what_stands_at_equal_values_is_open_though_most_of_them_have_the_same(bench):
    """Of thirteen rows the first is found by its score; the others tie, and all but one of them hold the same."""
    x = np.zeros((1, 13, 2), np.float32)
    x[0, 0], x[0, 5, 1] = 1, 3
    forward = "x[:, :, 1].gather(1, torch.topk(x[..., 0], 3).indices)"
    with verifying(bench, case_of(forward, x="[batch, 13, 2]")) as verify:
        example = verify.example(Draw({"batch": 1}, "plain", 0), {"x": x})
        found, wrong = (verify.judged(example, [np.float32([got])]) for got in ([1, 0, 3], [3, 0, 0]))
        assert (found.verdict, found.excused, wrong.verdict) == ("verified", 1, "failed")


@pytest.mark.parametrize("scores, verdict", [
    ("torch.sigmoid(x)", "verified"), ("torch.sigmoid(x)[:, :].clone()", "verified"), ("x", "failed"),
    ("torch.cat([x, x], 1)[:, :6]", "failed"), ("-x.neg()", "failed"),
])  # fmt: skip
def test_scores_that_are_equal_but_for_their_last_bits_may_come_in_either_order(bench, scores, verdict):
    """Those that are computed, as the sigmoids of 0 and of 1e-7; inputs have an order, and so has what lies apart."""
    x = np.float32([[-3, 0, 1e-7, 0.4, 0.5, 2]])
    with verifying(bench, case_of(f"torch.sort({scores}).indices", x="[batch, 6]")) as verify:
        example = verify.example(Draw({"batch": 1}, "plain", 0), {"x": x})
        orders = np.int64([[[0, 2, 1, 3, 4, 5]], [[0, 1, 2, 4, 3, 5]]])
        assert [verify.judged(example, [order]).verdict for order in orders] == [verdict, "failed"]


def test_what_stands_at_scores_that_are_equal_but_for_their_last_bits_is_open(bench):
    """As of a runtime whose sigmoids are all 0.5, and which takes the first of them."""
    rng = np.random.default_rng(0)
    forward = "x.gather(-1, torch.topk(torch.sigmoid(x), 3).indices)"
    with verifying(bench, case_of(forward, x="[batch, 24]")) as verify:
        for seed in range(8):
            x = rng.choice(np.float32([-1e-7, 0, 1e-7]), (1, 24))
            example = verify.example(Draw({"batch": 1}, "tiny", seed), {"x": x})
            assert verify.judged(example, [x[:, :3]]).verdict != "failed"
        x[0, 23] = 1e-5
        example = verify.example(Draw({"batch": 1}, "tiny", 8), {"x": x})
        assert verify.judged(example, [x[:, :3]]).verdict == "failed"


CLOSED = {
    "a tie among the inputs": ("torch.round(x)", np.float32([[0.5, 1.5]]), 1.0),
    "exact quotients": ("torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -128, 127)", np.float32([[0.25]]), 0.5),
    "the logarithm of zero": ("torch.log(x)", np.float32([[0.0, 1.0]]), NAN),
    "the end of a domain": ("torch.acosh(x)", np.float32([[1.0, 2.0]]), NAN),
    "a stable order": ("torch.sort(x, stable=True).indices", np.float32([[1, 1]]), 1),
    "the first of equal ones": ("torch.argmax(x, 1, keepdim=True)", np.float32([[1, 1]]), 1),
    "what a mask leaves nothing of":
        ("F.scaled_dot_product_attention(x, x, x, (x[..., :1] < 0).mT)", beside([], (1, 1, 1, 8)), NAN),
    "a loss whose sigmoid is zero":
        ("F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction='none')", np.float32([[-200.0]]), INF),
    "NaN that is passed on": ("torch.relu(x)", np.float32([[NAN, 1.0]]), 0.0),
    "NaN is the largest": ("torch.topk(x, 1).indices", np.float32([[1, NAN]]), 0),
    "the median of NaN": ("torch.median(x, -1, keepdim=True).indices", np.float32([[1, NAN, 2, 2]]), 0),
    "an infinity by zero": ("x.prod(-1, keepdim=True)", np.float32([[INF, 0, 1]]), 0.0),
    "an infinity among small terms": ("x.sum(-1, keepdim=True)", np.float32([[INF, -1, 2]]), 0.0),
    "a sum of one sign beyond float32": ("x.sum(-1, keepdim=True)", np.float32([[3e38, 3e38]]), 1.0),
    "a product by zero": ("x.prod(-1, keepdim=True)", np.float32([[0, 2, 1e30]]), NAN),
    "a product beyond float32": ("x.prod(-1, keepdim=True)", np.float32([[1e30, 1e30]]), 1.0),
    "a transform of numbers": ("torch.fft.rfft(x).abs()", beside([], (2, 8)), NAN),
    "the square root of minus infinity": ("torch.sqrt(x)", np.float32([[-INF, 1.0]]), INF),
    "a power of minus infinity": ("torch.pow(x, 3)", np.float32([[-INF, 1.0]]), INF),
    "NaN counts as -1": (SAMPLED.format("border"), np.float32([[[[NAN, 0]]]]), 7),
    "an infinity is beyond the border": (SAMPLED.format("border"), np.float32([[[[INF, 0]]]]), 7),
    "a regular matrix": ("torch.logdet(x)[:, None]", SQUARE[1:], -INF),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_what_is_defined_is_held_to_it(bench, name):
    forward, x, instead = CLOSED[name]
    shape = ", ".join(map(str, ["batch", *x.shape[1:]]))
    with verifying(bench, case_of(forward, x=f"[{shape}]")) as verify:
        example = verify.example(Draw({"batch": len(x)}, "plain", 0), {"x": x})
        wrong = verify.reference({"x": x})[0].copy()
        wrong.reshape(-1)[0] = instead
        assert verify.judged(example, [wrong]).verdict == "failed"


@pytest.mark.parametrize("apart, verdict", [(1, "verified"), (100, "failed")])
def test_whether_two_scores_are_equal_is_open_where_rounding_decides(bench, apart, verdict):
    """Each moved by an amount of its own they hardly ever are. The scores are sums that float32 has to round, by less
    than the ``apart`` units between those of the first rows."""
    x = np.float32([*[[[1 + apart * 2**-23, 2**-25], [1, 2**-25]]] * 40, *[[[1, 2], [0, 2]]] * 60])
    forward = "(lambda s: (s >= s.amax(1, keepdim=True)).float().sum(1))(x @ torch.ones(2))"
    with verifying(bench, case_of(forward, x="[batch, 2, 2]")) as verify:
        example = verify.example(Draw({"batch": 100}, "plain", 0), {"x": x})
        assert verify.judged(example, [np.float32([*[2] * 40, *[1] * 60])]).verdict == verdict
        assert verify.judged(example, [np.float32([*[1] * 99, 2])]).verdict == "failed"


@pytest.mark.parametrize("sums, verdict", [(0.07, "ill-conditioned"), (0.05, "failed")])
def test_how_many_values_there_are_is_open_where_rounding_decides(bench, sums, verdict):
    """Of rows whose sum is compared with a number that it may be."""
    x = np.full((2, 3), sums, np.float32)
    with verifying(bench, case_of("x[x.sum(1) * 0.7 > 0.147]")) as verify:
        example = verify.example(Draw({"batch": 2}, "plain", 0), {"x": x})
        count = len(verify.reference({"x": x})[0])
        assert verify.judged(example, [x[:1] if count != 1 else x]).verdict == verdict


def test_pytorch_is_not_wrong_where_a_constant_as_float32_has_it_gives_what_it_gives(bench):
    """3 / 0.3 is 10, and a bit less where 0.3 is a bit more: then 9 are whole."""
    x = np.float32([[3.0], [1.0]])
    with verifying(bench, case_of("torch.floor_divide(x, 0.3)", x="[batch, 1]")) as verify:
        example = verify.example(Draw({"batch": 2}, "plain", 0), {"x": x})
        verdicts = [verify.judged(example, [np.float32([[first], [second]])]).verdict
                    for first, second in ((9, 3), (10, 3), (10, 2))]  # fmt: skip
    assert verdicts == ["verified", "verified", "failed"]


@pytest.mark.parametrize("forward, x", [
    ("torch.fft.rfft(x).real", np.where(np.arange(32) == 24, -INF, 1).astype(np.float32)[None]),
    ("x.prod(-1, keepdim=True)", np.float32([[1e30, 1e30, 0]])),
])  # fmt: skip
def test_pytorch_is_not_wrong_where_float64_has_another_value_for_what_is_not_defined(bench, forward, x):
    with verifying(bench, case_of(forward, x=f"[batch, {x.shape[1]}]")) as verify:
        example = verify.example(Draw({"batch": 1}, "plain", 0), {"x": x})
        assert example.exact is not None
        assert verify.judged(example, [example.exact[0].astype(np.float32)]).verdict != "failed"


def test_specials_that_are_all_open_are_skipped_with_the_rule(bench):
    def otherwise(inputs: Any, outputs: Any) -> Any:
        return [np.where(np.isfinite(inputs["x"]), outputs[0], 7).astype(np.int32)]

    body = case_of("(x * 2).to(torch.int32)", dims="batch: 1..2", x="[batch, 1]")
    with wrong_runtime(otherwise):
        record = bench.run(body, check="specials")
        wrong = bench.run(say(body, "specials: true"))
    assert record.status in ("passed", "skipped") and record.fault is None
    assert record.left_open == ["cast"] and any("C++ [conv.fpint]" in line for line in details(record))
    assert wrong.status == "passed" and wrong.left_open == []


DETECTOR = "import torchvision" + net_of("torchvision.ops.nms(x[:, :4], x[:, 4], 0.5)")
BOXES = np.float32([[0, 0, 1, 1, 0.8], [2, 2, 3, 3, 0.6], [4, 4, 5, 5, 0.5]])


@pytest.mark.parametrize("score, verdict", [(NAN, "ill-conditioned"), (0.8, "failed")])
def test_the_order_of_boxes_is_open_where_a_score_is_no_number(bench, score, verdict):
    """In the middle as well, where neither of two sorts would put it."""
    x = BOXES.copy()
    x[0, 4] = score
    with verifying(bench, module_of("Net", shape="batch, 5"), DETECTOR) as verify:
        example = verify.example(Draw({"batch": 3}, "plain", 0), {"x": x})
        assert [verify.judged(example, [np.int64(kept)]).verdict for kept in ([0, 1, 2], [1, 0, 2])] == [
            "verified", verdict,
        ]  # fmt: skip


@pytest.mark.parametrize("second, verdict", [
    ([1, 1, 0, 0], "ill-conditioned"), ([0, 1, 1, 0], "ill-conditioned"), ([0, 0, 1, 0.5], "ill-conditioned"),
    ([0, 0, 1, 0.4], "failed"), ([3, 3, 4, 4], "failed"),
])  # fmt: skip
def test_whether_a_box_stays_is_open_with_its_corners_swapped_or_just_at_the_threshold(bench, second, verdict):
    """ONNX takes any two opposite corners, and torchvision expects the lower ones first; it keeps all of these."""
    x = np.float32([[0, 0, 1, 1, 0.8], [*second, 0.6]])
    with verifying(bench, module_of("Net", shape="batch, 5"), DETECTOR) as verify:
        example = verify.example(Draw({"batch": 2}, "plain", 0), {"x": x})
        assert verify.judged(example, [np.int64([0, 1])]).verdict == "verified"
        assert verify.judged(example, [np.int64([0])]).verdict == verdict


@pytest.mark.parametrize("terms, either_sign, is_open", [
    ([3e38, -3e38, 3e38], False, True), ([3e38, 3e38, 1.0], False, False), ([3e38, 3e38, 1.0], True, True),
    ([np.inf, -1.0, 2.0], False, False), ([np.inf, -3e38, -3e38], False, True),
    ([np.inf, -np.inf, 3e38], False, False), ([1.0, -2.0, 3.0], True, False),
])  # fmt: skip
def test_the_order_of_terms_decides_only_where_some_partial_sums_go_beyond(terms, either_sign, is_open):
    values, most = np.float64(terms), float(np.finfo(np.float32).max)
    finite = np.where(np.isfinite(values), values, 0)
    up, down = finite[finite > 0].sum(), finite[finite < 0].sum()
    high, low = (np.any(values == end) for end in (np.inf, -np.inf))
    assert bool(beyond_in_between(up, down, most, high, low, either_sign=either_sign)) == is_open
