"""Find the noise of an output: the rows that have most of it, and single values that stand out from the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from conformance.compare.channels import channel_axis
from conformance.process.arrays import Array

ROWS = 32
"""Rows that are measured together, where an output has more of them; of fewer each is by itself."""
APART = 16.0
"""An error stands out from this many times the root mean square of all smaller ones on, as ``noise.PEAK``. Of 24
outputs of sound files with weights alone in few bits none has such a value; of 63 by ONNX Runtime's static quantizer
28 have, where inputs leave the range that they were calibrated for. So it is reported, and judges nothing."""
MOST = 256
"""Values that are compared with all smaller ones. Where many more are off, these are rows or channels."""


@dataclass(frozen=True)
class WorstRows:
    """Rows of an output in one draw, with their signal to noise."""

    draw: int
    axis: int
    first: int
    last: int
    sqnr: float
    """Decibels."""


def row_axis(shape: tuple[int, ...]) -> int | None:
    """Return the axis of the rows of an output: the first one that is not that of channels and has several places;
    None where there is none."""
    channels = channel_axis(len(shape))
    return next((axis for axis, size in enumerate(shape) if axis != channels and size > 1), None)


class Places:
    """The worst rows and the largest errors of one output, over all draws."""

    def __init__(self) -> None:
        self.rows: WorstRows | None = None
        """The rows with the least signal to noise; None before there are rows with any noise."""
        self.count = 0
        """The number of values that were seen."""
        self._off = 0
        """The number of those that are off at all."""
        self._power = 0.0
        self._largest = np.zeros((0, 3))
        """The largest errors, each with its draw and its place in the flat output."""
        self._shapes: list[tuple[int, ...]] = []

    def see(self, wanted: Array, got: Array) -> None:
        """Add one draw, of which values that are not finite on both sides do not count."""
        draw = len(self._shapes)
        self._shapes.append(wanted.shape)
        if not wanted.size:
            return
        finite = np.isfinite(wanted) & np.isfinite(got)
        right = np.where(finite, wanted, 0).astype(np.float64)
        error = np.abs(np.where(finite, got, 0).astype(np.float64) - right)
        self.count += error.size
        self._off += int(np.count_nonzero(error))
        self._power += float(np.sum(np.square(error)))
        most = min(MOST, error.size)
        places = np.argpartition(error, -most, axis=None)[-most:]
        new = np.stack([error.ravel()[places], np.full(len(places), draw), places], axis=1)
        both = np.concatenate([self._largest, new])
        self._largest = both[np.argsort(both[:, 0])[::-1][:MOST]]
        self._see_rows(draw, right, error)

    def _see_rows(self, draw: int, right: Array, error: Array) -> None:
        """Compare the noise of rows with their signal, or with that of all rows where theirs is less: a row that
        happens to be small says nothing."""
        axis = row_axis(right.shape)
        if axis is None:
            return
        others = tuple(at for at in range(right.ndim) if at != axis)
        signal, noise = (np.mean(np.square(values), axis=others) for values in (right, error))
        starts = np.arange(0, len(noise), ROWS if len(noise) > ROWS else 1)
        sizes = np.diff([*starts, len(noise)])
        signal, noise = (np.add.reduceat(values, starts) / sizes for values in (signal, noise))
        signal = np.maximum(signal, float(np.mean(np.square(right))))
        ratio = np.where((noise > 0) & (signal > 0), signal / np.where(noise > 0, noise, 1.0), np.inf)
        worst = int(ratio.argmin())
        sqnr = 10 * math.log10(ratio[worst]) if math.isfinite(ratio[worst]) else math.inf
        if sqnr < (math.inf if self.rows is None else self.rows.sqnr):
            first = int(starts[worst])
            self.rows = WorstRows(draw, axis, first, first + int(sizes[worst]) - 1, sqnr)

    def standing_out(self) -> int:
        """Return how many values are off by ``APART`` times the root mean square of all smaller errors, up to
        ``MOST``. Values that are exact say nothing of how large an error may be, and more than half stand out from
        nothing."""
        errors = self._largest[: min(MOST, self._off // 2), 0]
        left = np.maximum(self._power - np.cumsum(np.square(errors)), 0)
        others = self._off - np.arange(1, len(errors) + 1)
        return int(np.flatnonzero(errors > APART * np.sqrt(left / others)).max(initial=-1)) + 1

    def furthest(self) -> tuple[int, tuple[int, ...]]:
        """Return the draw and the index of the value that is furthest off; there has to be one."""
        _, draw, place = self._largest[0]
        return int(draw), tuple(int(at) for at in np.unravel_index(int(place), self._shapes[int(draw)]))
