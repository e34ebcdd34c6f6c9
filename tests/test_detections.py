"""Rows of boxes: what near ties explain is right, and whatever is wrong with boxes, scores or labels is found."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conformance.bundle.layout import Bundle
from conformance.bundle.replay import run_entry
from conformance.bundle.shape import check_entry
from conformance.compare.detections import Detections
from conformance.compare.judges import NoiseLimits, Right, Tolerances, judge_from
from conformance.compare.noise import NOISE_LIMITS
from conformance.compare.reading import Reading
from conformance.compare.tolerance import DEFAULTS, Tolerance
from conformance.errors import UserError
from conformance.records import text
from conformance.runtimes import onnxruntime
from conformance.worker.progress import Progress
from tests.support import PASSED, altered, problems_of, verdict
from tests.test_bundle import pack

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
BODY = """
module: beside.Detector
inputs: {x: {type: "float32[n, 6]", values: {uniform: {low: -1, high: 1}}}}
dims: {n: 30..60}
outputs: [{name: boxes, rows: {match: iou, with: [scores, labels], at_least: 0.9}}, scores, labels]
specials: false
"""


def off(monkeypatch, alter):
    sound = onnxruntime.open_optimized
    wrong = altered(sound, lambda _, got: [np.ascontiguousarray(array) for array in alter(*got)])
    monkeypatch.setattr(onnxruntime, "open_optimized", wrong)


def reversed_rows(boxes, scores, labels):
    return boxes[::-1], scores[::-1], labels[::-1]


def without(count):
    """Leaves rows out; the first ones, or a share of all."""

    def alter(*outputs):
        rows = count if isinstance(count, int) else int(count * len(outputs[0])) + 1
        return tuple(array[rows:] for array in outputs)

    return alter


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


@pytest.mark.parametrize("alter", [lambda *got: got, reversed_rows, without(1)])
def test_near_ties_are_right(bench, monkeypatch, alter):
    """Rows in another order, and one that stands on one side only."""
    off(monkeypatch, alter)
    in_order = BODY.replace("rows: {match: iou, with: [scores, labels], at_least: 0.9}", "rows: in order")
    wrong = {reversed_rows: "WrongValue"}.get(alter, "WrongShape" if "without" in alter.__qualname__ else None)
    assert bench.run(in_order, DETECTOR).error == wrong
    record = bench.run(BODY, DETECTOR)
    assert verdict(record) == PASSED
    assert record.rows["matched"] > 0
    assert bool(record.rows["unmatched"]) == ("without" in alter.__qualname__)
    if record.rows["unmatched"]:
        assert "rows of boxes had no match" in text.details(record.as_dict())[0]


PLANTED = {
    "boxes shifted by 20 %": (shifted(0.2), "WrongRows"),
    "boxes shifted by 2 %": (shifted(0.02), "WrongValue"),
    "two labels swapped": (swapped_labels, "WrongValue"),
    "a tenth of the rows missing": (without(0.1), "WrongRows"),
    "a third of the rows missing": (without(0.33), "WrongRows"),
    "no rows": (without(10000), "WrongRows"),
    "rows that are none": (with_more, "WrongRows"),
    "scores off by 10 %": (lambda boxes, scores, labels: (boxes, scores * np.float32(1.1), labels), "WrongValue"),
    "one score off by 10 %": (one_score, "WrongValue"),
    "scores of other rows": (lambda boxes, scores, labels: (boxes, np.roll(scores, 1), labels), "WrongValue"),
    "all labels the same": (lambda boxes, scores, labels: (boxes, scores, labels * 0), "WrongValue"),
    "labels of another dtype": (lambda boxes, scores, labels: (boxes, scores, labels.astype("int32")), "WrongDtype"),
    "scores of fewer rows": (lambda boxes, scores, labels: (boxes, scores[1:], labels), "WrongShape"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_whatever_is_wrong_with_rows_is_found(bench, monkeypatch, name):
    alter, error = PLANTED[name]
    off(monkeypatch, lambda *got: alter(*reversed_rows(*got)))
    record = bench.run(BODY, DETECTOR)
    assert verdict(record) == ("failed", "compare", error, "runtime")
    told = text.failure(record.as_dict())
    if error == "WrongRows":
        assert "rows have a match that overlaps by 0.9, at least 90% are due; there are" in told
    if error in ("WrongRows", "WrongValue"):
        assert any(f"output {output}" in record.reason for output in ("boxes", "scores", "labels"))


TIED = """
import torch

class Detector(torch.nn.Module):
    def forward(self, x):
        sums = torch.cumsum(x * GAIN, 0)  # which is rounded in every step
        scores = 1 - (sums - sums.mean()).abs() * SPREAD
        best, kept = torch.topk(scores, 10)
        corners = 100 * torch.cat([kept[:, None], kept[:, None]], 1).to(torch.float32)
        return torch.cat([corners, corners + 50 + x[kept][:, None]], 1), best
"""
TIED_BODY = """
module: beside.Detector
inputs: {x: {type: "float32[n]", values: {uniform: {low: -1, high: 1}}}}
dims: {n: 300..310}
outputs: [{name: boxes, rows: {match: iou, with: scores}}, scores]
specials: false
"""


def other_ten(boxes, scores):
    """As a runtime does that keeps other boxes of those that tie."""
    return boxes[::-1] + np.float32(100), scores


def tied(bench, monkeypatch, spread):
    off(monkeypatch, other_ten)
    return bench.run(TIED_BODY, TIED.replace("SPREAD", spread).replace("GAIN", "1.7"))


def test_where_rounding_decides_which_rows_there_are_nobody_is_accused(bench, monkeypatch):
    record = tied(bench, monkeypatch, "1e-9")
    assert verdict(record) == ("failed", "compare", "IllConditioned", "case")
    assert "output boxes: rounding decides which rows of boxes there are" in text.failure(record.as_dict())
    assert record.ill_conditioned and not record.examples


def test_other_rows_than_the_best_are_wrong_where_rounding_decides_nothing(bench, monkeypatch):
    assert verdict(tied(bench, monkeypatch, "0.01")) == ("failed", "compare", "WrongRows", "runtime")


def test_boxes_that_are_the_same_in_all_draws_are_vacuous(bench):
    constant = DETECTOR.replace("300 * x[:, :2] + 400", "0 * x[:, :2] + 400").replace("20 * torch", "0 * torch")
    record = bench.run(BODY.replace("30..60", "40..40"), constant.replace("scores > 0.15", "scores > -1"))
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")
    assert record.reason.startswith("output boxes: ")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("[{name: b, rows: {match: iou, with: scoers}}, scores, l]", "no output 'scoers'; did you mean 'scores'?"),
        ("[{name: b, rows: {match: iou, with: [l, l]}}, s, l]", "'l' has rows of 'b' already"),
        ("[{name: b, rows: {match: iou, with: b}}, s, l]", "'b' has rows of 'b' already"),
        ("[{name: b, rows: {match: in order, with: s}}, s, l]", "with and at_least are about rows of boxes"),
        ("[{name: b, rows: {match: iou, at_least: 0.2}}, s, l]", "greater than or equal to 0.5"),
        ("[{name: b, rows: {match: iuo}}, s, l]", "'iou'"),
        ("[{name: b, rows: backwards}, s, l]", "'in any order'"),
        ("[{name: b, rows: {match: iou, wiht: s}}, s, l]", "unknown key 'wiht'; did you mean 'with'?"),
        ("[{name: b, rows: {match: iou, with: s}}, {name: s, rows: in any order}, l]", "says itself how its rows"),
    ],
)
def test_mistakes_that_a_file_shows_are_told_at_their_line(tmp_path, outputs, message):
    file = f"""\
planted:
  about: a test
  forward: x, x[:, 0], x[:, 1]
  inputs: {{x: "float32[n, 4]"}}
  dims: {{n: 1..8}}
  outputs: {outputs}
"""
    (problem,) = problems_of(tmp_path, file)
    assert problem.line == 6
    assert message in problem.message


@pytest.mark.parametrize(
    "outputs",
    [
        "[boxes, {name: scores, rows: {match: iou}}, labels]",
        "[{name: boxes, rows: {match: iou, with: [scores]}}, labels, scores]",
    ],
)
def test_what_are_no_boxes_is_the_cases_fault(bench, outputs):
    returned = DETECTOR.replace("return boxes, scores, labels", "return boxes, scores, labels[1:]")
    body = BODY.replace(
        "[{name: boxes, rows: {match: iou, with: [scores, labels], at_least: 0.9}}, scores, labels]", outputs
    )
    record = bench.run(body, returned)
    assert verdict(record) == ("failed", "declare", "BadRows", "case")


def test_a_bundle_matches_rows(tmp_path, monkeypatch):
    code, place = pack(tmp_path, BODY + "export: {torchscript: [17]}", DETECTOR, "--runtime", "onnxruntime")
    assert code == 0
    (entry,) = Bundle(place).entries
    sound = onnxruntime.open_optimized
    for alter, error in [(reversed_rows, None), *PLANTED.values()]:
        monkeypatch.setattr(onnxruntime, "open_optimized", sound)
        off(monkeypatch, alter)
        record = run_entry(Progress(), place, entry, "onnxruntime", tmp_path / "store")
        assert record.error == error
    told = json.loads((place / "bundle.json").read_text())["entries"][0]
    check_entry(told, "entry")
    for change in ({"boxes": 3}, {"with": [0]}, {"with": [1, 1]}, {"at_least": 0.1}, {"at_least": "1"}, {"more": 1}):
        told["judge"]["detections"] = [{"boxes": 0, "with": [1, 2], "at_least": 0.9, **change}]
        with pytest.raises(UserError, match="detections"):
            check_entry(told, "entry")


@pytest.mark.parametrize(
    "judge",
    [
        Tolerances(
            (DEFAULTS["float32"], DEFAULTS["float32"], None),
            (False,) * 3,
            Reading((), (), (Detections(0, (1, 2), 0.75),)),
        ),
        NoiseLimits((NOISE_LIMITS["int8"],) * 3, (False,) * 3, Reading((), (), (Detections(0, (1, 2), 0.75),))),
    ],
)
def test_judges_are_the_same_after_they_were_stored_and_match_by_label_and_score(judge):
    judge = judge_from(json.loads(json.dumps(judge.as_dict())))
    box, other = [0, 0, 10, 10], [50, 50, 60, 60]
    boxes = np.array([box, box, box, other], "float32")  # one box with two labels, one label with two scores
    scores, labels = np.array([0.9, 0.5, 0.3, 0.8], "float32"), np.array([1, 2, 2, 1])
    order = [2, 3, 1, 0]
    right = Right([boxes, scores, labels])

    def compared(*got):
        return judge.compare([array[order] for array in got], right)

    assert compared(boxes, scores, labels).verdict == "verified"
    assert compared(boxes, scores, labels).rows == {"matched": 4, "unmatched": 0}
    assert (
        compared(boxes, scores[[0, 2, 1, 3]], labels).verdict == "verified"
    )  # these two rows are alike but for scores
    assert compared(boxes, scores[[1, 0, 2, 3]], labels).error == "WrongValue"
    assert compared(boxes, scores, np.array([1, 2, 1, 1])).error == "WrongValue"
    half = boxes.copy()
    half[:2] += 9
    assert compared(half, scores, labels).error == "WrongRows"
    assert judge.compare([boxes[:3], scores[:3], labels[:3]], right).rows == {"matched": 3, "unmatched": 1}
    assert judge.compare([boxes[:2], scores[:2], labels[:2]], right).error == "WrongRows"
    empty = Right([boxes[:0], scores[:0], labels[:0]])
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
