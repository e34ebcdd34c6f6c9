"""Find comparisons that prove nothing: those that wrong outputs would have passed as well.

Four wrong outputs are tried against the reference of every draw: zeros, the mean everywhere, the rows of the batch
in another order, and the outputs of another draw of the same shape. A comparison that refuses each of them at least
once in a cell has been shown able to fail; an output for which one of them always passes is vacuous. Wrong indices
are looked up as those of a runtime are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from conformance.compare.compared_values import PLAIN, Reading
from conformance.compare.tolerance import Comparison
from conformance.process.arrays import Array, Inputs

ZEROS, MEAN, SHUFFLED, ANOTHER = "zeros", "the mean everywhere", "shuffled rows", "the outputs of another draw"
ONE_TEXT = "one text everywhere"
"""The wrong answer for texts, in place of zeros: the first text that the output ever has."""
_ALL = {ZEROS, MEAN, SHUFFLED, ANOTHER}


class AnyLimit(Protocol):
    """A tolerance or a limit of noise, which decides on an output."""

    def refuses(self, wrong: Array, right: Array) -> bool: ...


class Vacuity:
    """Collects, over all draws of a cell, which wrong outputs were refused."""

    def __init__(
        self, limits: Sequence[AnyLimit | None], reading: Reading = PLAIN, listed: int | None = None
    ) -> None:
        """One limit for each output; None is exact. The one that is ``listed`` is a list of tensors, of which all
        values are one output here."""
        self._listed = listed
        self.limits, self._reading = limits, reading
        # A wrong output is possible until it has been refused; shuffling and the mean may never be applicable.
        self._possible: list[set[str]] = [{ZEROS, ANOTHER} for _ in limits]
        self._refused: list[set[str]] = [set() for _ in limits]
        self._before: list[Array] | None = None
        self._text: dict[int, str] = {}
        """By output the first text of any draw."""

    def __len__(self) -> int:
        """The number of outputs."""
        return len(self.limits)

    def have_no_other(self) -> None:
        """Ask for nothing about the outputs of another draw, as all draws have the same inputs."""
        for possible in self._possible:
            possible.discard(ANOTHER)

    def together(self, count: int) -> None:
        """Take outputs whose numbers differ by multiples of ``count`` for one, as the same output of several steps:
        what was refused of one of them is refused of all."""
        for output in range(len(self.limits)):
            same = range(output % count, len(self.limits), count)
            self._refused[output] = set[str]().union(*(self._refused[other] for other in same))

    def see(self, wanted: Sequence[Array], inputs: Inputs | None = None) -> None:
        """Try the wrong outputs that have not been refused yet against one draw's reference; ``inputs`` are what
        indices may be looked up in."""
        if all(refused == _ALL for refused in self._refused):
            return
        wanted = self._joined(wanted)
        for output, right in enumerate(wanted):
            possible, refused = self._possible[output], self._refused[output]
            if right.dtype.kind == "U":
                possible.discard(ZEROS)
                possible.add(ONE_TEXT)
                self._text.setdefault(output, str(right.flat[0])) if right.size else None
            boxes = self._reading.detections_of(output)
            ordered = right.dtype.kind == "f" or self._reading.indices_of(output) is not None
            if ordered and right.ndim and len(right) > 1 and (boxes is None or output != boxes.boxes):
                possible.add(SHUFFLED)  # of boxes the order is open
            if MEAN not in possible and _varies(right):
                possible.add(MEAN)
            for wrong in possible - refused:
                candidate = self._wrong(wrong, output, right)
                if candidate is None:
                    continue
                compared = candidate, right
                if self._reading.is_read(output):
                    looked_up = self._looked_up(candidate, wrong, output, wanted, inputs or {})
                    if looked_up is None:
                        refused.add(wrong)
                        continue
                    compared = looked_up
                if self._refuses(*compared, self.limits[output]):
                    refused.add(wrong)
        self._before = list(wanted)

    def _joined(self, wanted: Sequence[Array]) -> Sequence[Array]:
        if self._listed is None:
            return wanted
        start, end = self._listed, len(wanted) - (len(self.limits) - 1 - self._listed)
        values = [array.reshape(-1) for array in wanted[start:end]] or [np.zeros(0, np.float32)]
        return [*wanted[:start], np.concatenate(values), *wanted[end:]]

    def _wrong(self, kind: str, output: int, right: Array) -> Array | None:
        if kind == ZEROS:
            return np.zeros_like(right)
        if kind == ONE_TEXT:
            return np.full(right.shape, self._text.get(output, ""))
        if kind == MEAN:
            return np.full_like(right, right.mean(dtype=np.float64)) if _varies(right) else None
        if kind == SHUFFLED:
            return np.roll(right, 1, axis=0) if right.ndim and len(right) > 1 else None
        return None if self._before is None else self._before[output]

    def _looked_up(
        self, candidate: Array, kind: str, output: int, wanted: Sequence[Array], inputs: Inputs
    ) -> tuple[Array, Array] | None:
        """Return what is compared of a wrong output and of the right one; None where the wrong one is refused before
        that, as indices that are none. The outputs of another draw that have rows in common come together."""
        got = [candidate if number == output else right for number, right in enumerate(wanted)]
        boxes = self._reading.detections_of(output)
        if kind == ANOTHER and boxes is not None and self._before is not None:
            for number in boxes.outputs:
                got[number] = self._before[number]
        read = self._reading.read(got, wanted, None, inputs, [False] * len(got))
        return None if isinstance(read, Comparison) else (read.got[output], read.wanted[output])

    @staticmethod
    def _refuses(wrong: Array, right: Array, limit: AnyLimit | None) -> bool:
        if wrong.shape != right.shape:
            return True
        return not np.array_equal(wrong, right) if limit is None else limit.refuses(wrong, right)

    def findings(self) -> dict[int, list[str]]:
        """For each vacuous output the wrong outputs that would always have passed."""
        kept = {output: sorted(possible - self._refused[output]) for output, possible in enumerate(self._possible)}
        return {output: wrong for output, wrong in kept.items() if wrong}


def _varies(right: Array) -> bool:
    """Return whether a constant would be wrong. Another draw tells what is constant but for rounding."""
    if right.dtype.kind != "f" or not right.size or not np.isfinite(right).all():
        return False
    return bool(np.ptp(right.astype(np.float64)) > 1e-3 * np.abs(right).max())
