"""Rows of boxes: differences that near ties explain are right; wrong boxes, scores and labels are found."""

import json

import numpy as np
import pytest

from conformance.case.draw.example import Draw, given
from conformance.compare.compared_values import Reading
from conformance.compare.detections import Detections
from conformance.compare.judges import NoiseLimits, Right, Tolerances, judge_from
from conformance.compare.noise import NOISE_LIMITS
from conformance.compare.tolerance import DEFAULTS, Tolerance
from conformance.diagnose.nodes.blame import outcome_of
from conformance.diagnose.nodes.other_runtime import Asked
from conformance.judge.comparer import WrongAnswer
from conformance.models.bundle.entry import entry_of
from conformance.process.errors import UserError
from conformance.results.records import text
from tests.cells.test_bundle_fuzz import entry
from tests.kit.cases import PASSED, say, verdict
from tests.kit.runtimes import wrong_runtime

DETECTOR = """
import torch
class Detector(torch.nn.Module):
    def forward(self, x):
        scores = torch.sigmoid(2 * x[:, 4])
        kept = scores > 0.15
        x, scores = x[kept], scores[kept]
        centres, sides = 300 * x[:, :2] + 400, 30 + 20 * torch.sigmoid(x[:, 2:4])
        boxes = torch.cat([centres - sides, centres + sides], 1)
        labels = (x[:, 5] > 0).to(torch.int64) + (x[:, 5] > 0.5).to(torch.int64)
        return boxes, scores, labels
"""
MATCHED = "rows: {match: iou, with: [scores, labels], at_least: 0.9}"
BODY = """
module: beside.Detector
inputs: {x: {type: "float32[n, 6]", values: {uniform: {low: -1, high: 1}}}}
dims: {n: 30..60}
outputs: [{name: boxes, ROWS}, scores, labels]
specials: false
""".replace("ROWS", MATCHED)


def off(alter):
    """ONNX Runtime gives what ``alter(*outputs)`` does."""
    return wrong_runtime(lambda _, got: [np.ascontiguousarray(array) for array in alter(*got)])


def reversed_rows(boxes, scores, labels):
    return boxes[::-1], scores[::-1], labels[::-1]


def with_more(*outputs):
    return tuple(np.concatenate([array, array[: len(array) // 3] + array.dtype.type(900)]) for array in outputs)


def swapped_labels(boxes, scores, labels):
    first = np.flatnonzero(labels != labels[0])[:1]
    labels = labels.copy()
    labels[[0, *first]] = labels[[*first, 0]] if len(first) else labels[0] + 1
    return boxes, scores, labels


def shifted(share):
    def alter(boxes, scores, labels):
        sides = boxes[:, 2:] - boxes[:, :2]
        return boxes + np.float32(share) * np.concatenate([sides, sides], 1), scores, labels

    return alter


def one_score(boxes, scores, labels):
    scores = scores.copy()
    scores[0] *= np.float32(1.1)
    return boxes, scores, labels


@pytest.mark.parametrize("alter, in_order", [
    (lambda *got: got, None), (reversed_rows, "WrongValue"),
    (lambda *got: tuple(array[1:] for array in got), "WrongShape"),
])  # fmt: skip
def test_near_ties_are_right(bench, alter, in_order):
    """Rows in another order, and one that stands on one side only."""
    with off(alter):
        assert bench.run(BODY.replace(MATCHED, "rows: in order"), DETECTOR, examples=2).error == in_order
        record = bench.run(BODY, DETECTOR, examples=2)
    assert verdict(record) == PASSED and record.rows["matched"] > 0
    assert bool(record.rows["unmatched"]) == (in_order == "WrongShape")
    if record.rows["unmatched"]:
        assert "rows of boxes had no match" in text.details(record)[0]


PLANTED = {
    "boxes shifted by 20 %": (shifted(0.2), "WrongRows"), "boxes shifted by 2 %": (shifted(0.02), "WrongValue"),
    "two labels swapped": (swapped_labels, "WrongValue"),
    "a third of the rows missing": (lambda *got: tuple(array[len(array) // 3 + 1 :] for array in got), "WrongRows"),
    "rows that are none": (with_more, "WrongRows"), "one score off by 10 %": (one_score, "WrongValue"),
    "scores of other rows": (lambda boxes, scores, labels: (boxes, np.roll(scores, 1), labels), "WrongValue"),
    "labels of another dtype": (lambda boxes, scores, labels: (boxes, scores, labels.astype("int32")), "WrongDtype"),
    "scores of fewer rows": (lambda boxes, scores, labels: (boxes, scores[1:], labels), "WrongShape"),
}  # fmt: skip
JUDGE = Tolerances(
    (DEFAULTS["float32"], DEFAULTS["float32"], None),
    (False,) * 3,
    Reading(("boxes", "scores", "labels"), (), (Detections(0, (1, 2), 0.9),)),
)


@pytest.mark.parametrize("name", PLANTED)
def test_whatever_is_wrong_with_rows_is_found(name):
    alter, error = PLANTED[name]
    x = np.random.default_rng(0).uniform(-1, 1, (40, 5)).astype("float32")
    centres, sides = 300 * x[:, :2] + 400, 30 + 10 * x[:, 2:4]
    boxes, scores = np.concatenate([centres - sides, centres + sides], 1), 0.5 + 0.4 * x[:, 4]
    right = [boxes, scores, np.arange(40) % 3]
    found = JUDGE.compare(list(alter(*reversed_rows(*right))), Right(right))
    assert (found.verdict, found.error) == ("failed", error)
    if error in ("WrongRows", "WrongValue"):
        assert any(f"output {output}" in found.text for output in ("boxes", "scores", "labels"))


def test_a_witness_may_have_its_right_rows_in_another_order():
    boxes = np.array([[0, 0, 10, 10], [50, 50, 60, 60]], "float32")
    right = [boxes, np.array([0.9, 0.5], "float32"), np.array([1, 2])]
    stop = WrongAnswer(JUDGE.compare([*right[:2], np.array([1, 3])], Right(right)))
    example = given(Draw({}, "plain", 0), {}, right, None, None, ())
    shown = outcome_of(stop, example, lambda example, got: JUDGE.compare(got, example.right()))
    assert shown(Asked(list(reversed_rows(*right)))) == "right"
    assert shown(Asked([*right[:2], right[2][::-1]])) == "alike"


TIED = """
import torch
class Detector(torch.nn.Module):
    def forward(self, x):
        sums = torch.cumsum(x * 1.7, 0)  # which is rounded in every step
        scores = 1 - (sums - sums.mean()).abs() * SPREAD
        best, kept = torch.topk(scores, 10)
        corners = 100 * torch.cat([kept[:, None], kept[:, None]], 1).to(torch.float32)
        return torch.cat([corners, corners + 50 + x[kept][:, None]], 1), best
"""
TIED_BODY = say(
    "module: beside.Detector", 'inputs: {x: {type: "float32[n]", values: {uniform: {low: -1, high: 1}}}}',
    "dims: {n: 300..310}", "examples: {values: 1}",
    "outputs: [{name: boxes, rows: {match: iou, with: scores}}, scores]", "specials: false",
)  # fmt: skip


def tied(bench, spread):
    with off(lambda boxes, scores: (boxes[::-1] + np.float32(100), scores)):  # other boxes of those that tie
        return bench.run(TIED_BODY, TIED.replace("SPREAD", spread), examples=2)


def test_where_rounding_decides_which_rows_there_are_nobody_is_accused(bench):
    record = tied(bench, "1e-9")
    assert verdict(record) == ("failed", "compare", "IllConditioned", "case")
    assert "output boxes: rounding decides which rows of boxes there are" in text.failure(record)
    assert record.ill_conditioned and not record.examples


def test_other_rows_than_the_best_are_wrong_where_rounding_decides_nothing(bench):
    assert verdict(tied(bench, "0.01")) == ("failed", "compare", "WrongRows", "runtime")


def test_boxes_that_are_the_same_in_all_draws_are_vacuous(bench):
    constant = DETECTOR.replace("300 * x[:, :2] + 400", "0 * x[:, :2] + 400").replace("20 * torch", "0 * torch")
    record = bench.run(BODY.replace("30..60", "40..40"), constant.replace("scores > 0.15", "scores > -1"))
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")
    assert record.reason.startswith("output boxes: ")


@pytest.mark.parametrize("outputs", [
    "[boxes, {name: scores, rows: {match: iou}}, labels]",
    "[{name: boxes, rows: {match: iou, with: [scores]}}, labels, scores]",
])  # fmt: skip
def test_what_are_no_boxes_is_the_cases_fault(bench, outputs):
    returned = DETECTOR.replace("return boxes, scores, labels", "return boxes, scores, labels[1:]")
    record = bench.run(BODY.replace(f"[{{name: boxes, {MATCHED}}}, scores, labels]", outputs), returned)
    assert verdict(record) == ("failed", "declare", "BadRows", "case")


@pytest.mark.parametrize("change", [
    {"boxes": 3}, {"with": [0]}, {"with": [1, 1]}, {"at_least": 0.1}, {"at_least": "1"}, {"more": 1},
])  # fmt: skip
def test_a_bundle_may_say_of_boxes_only_what_can_be(change):
    judge = json.loads(json.dumps(JUDGE.as_dict()))
    entry_of(entry(judge=judge))
    judge["detections"][0].update(change)
    with pytest.raises(UserError, match="detections"):
        entry_of(entry(judge=judge))


LOOSE = Reading((), (), (Detections(0, (1, 2), 0.75),))


@pytest.mark.parametrize("judge", [
    Tolerances((DEFAULTS["float32"], DEFAULTS["float32"], None), (False,) * 3, LOOSE),
    NoiseLimits((NOISE_LIMITS["int8"],) * 3, (False,) * 3, LOOSE),
])  # fmt: skip
def test_judges_are_the_same_after_they_were_stored_and_match_by_label_and_score(judge):
    judge = judge_from(json.loads(json.dumps(judge.as_dict())))
    box, other = [0, 0, 10, 10], [50, 50, 60, 60]
    boxes = np.array([box, box, box, other], "float32")  # one box with two labels, one label with two scores
    scores, labels = np.array([0.9, 0.5, 0.3, 0.8], "float32"), np.array([1, 2, 2, 1])
    order = [2, 3, 1, 0]
    right, empty = Right([boxes, scores, labels]), Right([boxes[:0], scores[:0], labels[:0]])

    def compared(*got):
        return judge.compare([array[order] for array in got], right)

    assert compared(boxes, scores, labels).verdict == "verified"
    assert compared(boxes, scores, labels).rows == {"matched": 4, "unmatched": 0}
    assert compared(boxes, scores[[0, 2, 1, 3]], labels).verdict == "verified"  # both rows are alike but for scores
    assert compared(boxes, scores[[1, 0, 2, 3]], labels).error == "WrongValue"
    assert compared(boxes, scores, np.array([1, 2, 1, 1])).error == "WrongValue"
    half = boxes.copy()
    half[:2] += 9
    assert compared(half, scores, labels).error == "WrongRows"
    assert judge.compare([boxes[:3], scores[:3], labels[:3]], right).rows == {"matched": 3, "unmatched": 1}
    assert judge.compare([boxes[:2], scores[:2], labels[:2]], right).error == "WrongRows"
    assert judge.compare(empty.wanted, empty).verdict == "verified"
    assert judge.compare([boxes, scores, labels], empty).error == "WrongRows"


def test_float64_excuses_no_row_that_it_lacks_or_has_elsewhere():
    judge = Tolerances((Tolerance(1e-5, 1e-6), None), (False, False), Reading((), (), (Detections(0, (1,), 0.5),)))
    boxes = np.array([[0, 0, 10, 10], [50, 50, 60, 60], [90, 90, 99, 99]], "float32")
    labels = np.array([1, 2, 3])
    exact = [boxes[::-1].astype("float64") + 0.0, labels[::-1]]
    moved = boxes + np.float32(0.1)
    assert judge.compare([moved, labels], Right([boxes, labels], exact, [1e3, 1e3])).error == "WrongValue"
    assert judge.compare([boxes, labels], Right([boxes, labels], [exact[0][:1], labels[:1]])).verdict == "verified"
    wrong = judge.compare([boxes, labels[[0, 2, 1]]], Right([boxes, labels], exact))
    assert wrong.error == "WrongValue"


def test_boxes_of_no_area_match_where_rounding_moved_them_and_nowhere_else():
    judge = Tolerances((Tolerance(1e-5, 1e-6), None), (False, False), Reading((), (), (Detections(0, (1,), 0.9),)))
    # Clipped at the border: to a line on the left, to one below, to a corner; the fourth one was not.
    boxes = np.array([[0, 10, 0, 30], [5, 48, 40, 48], [0, 0, 0, 0], [10, 10, 20, 30]], "float32")
    labels = np.array([1, 1, 2, 3])
    right = Right([boxes, labels])
    rounded = boxes * np.float32(1 + 2e-6)
    assert (rounded != boxes).any(axis=1).sum() == 3
    rounded[2] = [1e-7, 0, 1e-7, 0]
    found = judge.compare([rounded[::-1], labels[::-1]], right)
    assert (found.verdict, found.rows) == ("verified", {"matched": 4, "unmatched": 0})
    for row, elsewhere in enumerate(([0, 40, 0, 48], [5, 40, 40, 40], [48, 0, 48, 0], [10, 10, 20, 20])):
        wrong = boxes.copy()
        wrong[row] = elsewhere
        assert judge.compare([wrong, labels], right).error == "WrongRows"
    near = boxes.copy()
    near[0] = [0, 10.01, 0, 30.01]  # matches, and is off by more than is allowed
    assert judge.compare([near, labels], right).error == "WrongValue"
