"""Rows of boxes, as detectors give them: which rows of two sides are the same object.

A detector keeps boxes by their scores. Where two scores tie up to rounding, or one ties with a threshold, a row may
stand elsewhere or on one side only; that is no error of a runtime, as far as it is rare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.compare.tolerance import Comparison, Subject, failed, subjects
from conformance.process.arrays import Array

OVERLAP = 0.9
"""The least intersection over union of two boxes that are the same object. Boxes that non-maximum suppression keeps
beside one another overlap by less: its thresholds are 0.5 to 0.7. How close matched boxes have to be is for their
tolerance."""

NEAR = 0.01
"""Relative and absolute difference up to which two scores are near; of overlapping boxes these go together first."""

THIN = 1e-3
"""Sides that are shorter than this share of the largest coordinate are taken to be that long when overlaps are
measured. A box that was clipped at the border has a side of no length, and what rounding moves it by would leave it
nothing in common with itself."""


@dataclass(frozen=True)
class Detections:
    """Outputs with one row for each box: ``boxes`` (rows, 4), as x1, y1, x2, y2, and ``others`` (rows, ...), all by
    their numbers. At least the share ``at_least`` of the rows, of the side that has more, has to have a match."""

    boxes: int
    others: tuple[int, ...]
    at_least: float

    @property
    def outputs(self) -> tuple[int, ...]:
        return (self.boxes, *self.others)

    def unfit(self, arrays: Sequence[Array], called: Sequence[Subject]) -> str | None:
        """Say why these outputs hold no rows of boxes; None where they do."""
        boxes = arrays[self.boxes]
        if boxes.dtype.kind != "f" or boxes.ndim != 2 or boxes.shape[1] != 4:
            return f"{called[self.boxes]} is {boxes.dtype}{list(boxes.shape)}, and boxes are floats[rows, 4]"
        for output in self.others:
            if not arrays[output].ndim or len(arrays[output]) != len(boxes):
                return (
                    f"{called[output]} has the shape {list(arrays[output].shape)}, and there are {len(boxes)} boxes"
                )
        return None

    def odd(self, got: Sequence[Array], wanted: Sequence[Array], called: Sequence[Subject]) -> Comparison | None:
        """The failure where dtypes or shapes are others than is wanted, but for the number of rows."""
        for output in self.outputs:
            own, right = got[output], wanted[output]
            if own.dtype != right.dtype:
                return failed("WrongDtype", f"{called[output]} is {own.dtype} instead of {right.dtype}")
            if own.ndim != right.ndim or own.shape[1:] != right.shape[1:] or len(own) != len(got[self.boxes]):
                text = f"{called[output]} has shape {own.shape} beside {len(got[self.boxes])} boxes"
                return failed("WrongShape", f"{text}, instead of {right.shape}")
        return None

    def pairs(self, rows: Sequence[Array], wanted: Sequence[Array]) -> tuple[list[int], list[int]]:
        """The numbers of the rows that match, each used once, in the order of ``wanted``; both are lists of outputs.

        Rows match where their boxes overlap by ``OVERLAP``. Those with equal integers go together first, of these
        those with near scores, and then those that overlap most. So a wrong label stays beside the right one.
        """
        overlap = _overlap(rows[self.boxes].astype(np.float64), wanted[self.boxes].astype(np.float64))
        near, equal = np.ones(overlap.shape, dtype=bool), np.ones(overlap.shape, dtype=bool)
        for output in self.others:
            width = math.prod(wanted[output].shape[1:])
            flat = rows[output].reshape(len(rows[output]), 1, width)
            goal = wanted[output].reshape(1, len(wanted[output]), width)
            if wanted[output].dtype.kind == "f":
                near &= (np.abs(flat - goal) <= NEAR + NEAR * np.abs(goal)).all(axis=2)
            else:
                equal &= (flat == goal).all(axis=2)
        own, right = np.nonzero(overlap >= OVERLAP)
        order = np.lexsort((-overlap[own, right], ~near[own, right], ~equal[own, right]))
        partner: dict[int, int] = {}
        used: set[int] = set()
        for row, goal_row in zip(own[order].tolist(), right[order].tolist(), strict=True):
            if goal_row not in partner and row not in used:
                partner[goal_row] = row
                used.add(row)
        goals = sorted(partner)
        return [partner[goal] for goal in goals], goals

    def too_few(self, matched: int, got: int, wanted: int, called: Subject) -> Comparison | None:
        """The failure where fewer rows have a match than is due."""
        most = max(got, wanted)
        if matched >= self.at_least * most:
            return None
        text = (
            f"{called}: {matched} of {most} rows have a match that overlaps by {OVERLAP:g}, at least "
            f"{self.at_least:.0%} are due; there are {got} rows"
        )
        return failed("WrongRows", text if got == wanted else f"{text} instead of {wanted}")

    def others_than(self, rows: Sequence[Array], wanted: Sequence[Array]) -> bool:
        """Return whether fewer rows have a match than expected, which rows of boxes alone can have. Both are
        lists of outputs."""
        if any(self.unfit(arrays, subjects(len(arrays))) for arrays in (rows, wanted)):
            return False
        most = max(len(rows[self.boxes]), len(wanted[self.boxes]))
        return len(self.pairs(rows, wanted)[0]) < self.at_least * most

    def as_dict(self) -> dict[str, object]:
        return {"boxes": self.boxes, "with": list(self.others), "at_least": self.at_least}


def _overlap(boxes: Array, others: Array) -> Array:
    """Intersection over union of each of ``boxes`` with each of ``others``, all sides being ``THIN`` or more; boxes
    that are equal overlap wholly, also where they are not finite."""
    coordinates = np.abs(np.concatenate([boxes, others]))
    least = THIN * np.max(coordinates, initial=0.0, where=np.isfinite(coordinates))
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = _at_least(boxes, least)[:, None], _at_least(others, least)[None]
        sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
        inside = np.maximum(sides, 0).prod(axis=2)
        area = (a[..., 2:] - a[..., :2]).prod(axis=2) + (b[..., 2:] - b[..., :2]).prod(axis=2)
        share = inside / (area - inside)
    equal = (boxes[:, None] == others[None]).all(axis=2)
    overlap: Array = np.where(equal, 1.0, np.nan_to_num(share, nan=0.0, posinf=0.0, neginf=0.0))
    return overlap


def _at_least(boxes: Array, least: float) -> Array:
    """The boxes with shorter sides made as long as ``least``, around their middle."""
    lacking = np.maximum(least - (boxes[:, 2:] - boxes[:, :2]), 0) / 2
    return np.concatenate([boxes[:, :2] - lacking, boxes[:, 2:] + lacking], axis=1)
