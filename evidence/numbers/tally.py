"""Compare what a kernel gives for inputs, in the order of their bits, with what is right, and count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.compare.tolerance import DEFAULTS
from conformance.process.arrays import Array
from evidence.numbers.functions import Function
from evidence.numbers.kernels import Kernel
from evidence.numbers.right import Format, Right

SLICE = 7
"""Values of a short input: fewer than a register of 256 bits holds of float32."""
FAR = 4
Seen = Sequence[int]
"""The bits of an input, of what was given and of what is right; of "fall" those of the first input and of what was
given for it and the next, of "by length" of what was given in a long input and in a short one."""


@dataclass
class Row:
    """A function in a runtime and a format, and what was counted of some values."""

    function: str
    format: str
    runtime: str
    version: str
    values: str
    """``all`` of the format or a ``sample``."""
    processor: str
    seconds: float = 0.0
    """Of the processor, for what is right and for the kernel."""
    by_mpmath: int = 0
    """Values near a tie that mpmath decided."""
    error: str | None = None
    """The reason for which the runtime does not run it."""
    count: int = 0
    compared: int = 0
    """Values of which what was given and what is right are finite, and no zero stands for a subnormal."""
    off: int = 0
    """Those of them that are not what is right."""
    steps: int = 0
    """The steps of the format that they are off, added up."""
    cut: int = 0
    """Values that were given in short inputs as well."""
    largest: dict[str, float] = field(default_factory=dict)
    """Of steps off ("worst"), of an error as a share of what the suite allows where the largest value of an output is
    1 or more ("share"), and of a "fall" in steps."""
    events: dict[str, int] = field(default_factory=dict)
    """Counts by kind: NaN or an infinity in place of another value, or the other way ("nan", "infinity"); a zero of
    the other "sign"; zero in place of a subnormal, or a subnormal taken for zero ("flushed"); more than ``FAR`` steps
    off ("over"); a step against the direction of the function ("fall"); another result in a short input ("by
    length")."""
    at: dict[str, Seen] = field(default_factory=dict)
    """The largest, and the first of each kind."""

    def add(self, other: Row) -> None:
        """Add what was counted of the values that follow."""
        for name in ("seconds", "by_mpmath", "count", "compared", "off", "steps", "cut"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, value in other.largest.items():
            self.keep_largest(kind, value, other.at[kind])
        for kind, count in other.events.items():
            self.events[kind] = self.events.get(kind, 0) + count
            self.at.setdefault(kind, other.at[kind])

    def keep_largest(self, kind: str, value: float, seen: Seen) -> None:
        if value > self.largest.get(kind, 0):
            self.largest[kind], self.at[kind] = value, seen

    def see(self, kind: str, where: Array, *bits: Array) -> None:
        """Count the places of a mask."""
        if count := int(np.count_nonzero(where)):
            self.events[kind] = self.events.get(kind, 0) + count
            self.at.setdefault(kind, [int(one[int(where.argmax())]) for one in bits])

    def see_largest(self, kind: str, values: Array, *bits: Array) -> None:
        place = int(values.argmax())
        self.keep_largest(kind, values[place].item(), [int(one[place]) for one in bits])


class Watched:
    """A kernel that is compared with what is right, and the ``row`` of what is counted."""

    def __init__(self, kernel: Kernel, function: Function, of: Format, row: Row) -> None:
        self.kernel, self.of, self.row, self._pieces = kernel, of, row, function.pieces
        zeros = np.array([0.0, -0.0] * SLICE, of.dtype)
        self._given_at_zero = kernel(zeros)[:2].view(of.bits).copy()
        self._right_at_zero = Right(function, of).of(zeros[:2]).view(of.bits)

    def look(self, x: Array, right: Array, slices: int, *, more: bool) -> None:
        """Compare the results of ``x`` with what is right, and of ``slices`` short inputs with the results of ``x``.

        With ``more`` the last value is the first of the next range, and here for its neighbour. Raises TypeError for
        results of another type or shape.
        """
        got = self.kernel(x)
        if got.dtype != self.of.dtype or got.shape != x.shape:
            raise TypeError(f"{got.dtype}{list(got.shape)} for {x.dtype}{list(x.shape)}")
        self._monotone(x, got)
        self._by_length(x, got.view(self.of.bits), slices)
        count = len(x) - more
        bits, given, wanted = (one.view(self.of.bits)[:count] for one in (x, got, right))
        self.row.count += count
        self.row.compared += int(np.count_nonzero(np.isfinite(right[:count])))
        odd = np.flatnonzero(given != wanted)
        if len(odd):
            self._compare(bits[odd], given[odd], wanted[odd])

    def _compare(self, x: Array, given: Array, wanted: Array) -> None:
        """Count values whose bits are others."""
        value, got, right = (one.view(self.of.dtype).astype(np.float64) for one in (x, given, wanted))
        is_nan, finite, steps = np.isnan(got), np.isfinite(right), self.of.steps(given, wanted)
        self.row.see("nan", is_nan != np.isnan(right), x, given, wanted)
        self.row.see("sign", (got == 0) & (right == 0), x, given, wanted)
        half = (x >= self.of.sign).astype(np.int64)
        as_zero = (np.abs(value) < self.of.least) & (given == self._given_at_zero[half])
        flushed = as_zero & (wanted != self._right_at_zero[half]) | (got == 0) & (np.abs(right) < self.of.least)
        left = ~is_nan & ~np.isnan(right) & (got != right)
        flushed &= left & (steps > 1)  # by one step rounding may miss the least subnormal as well
        infinite = left & ~flushed & ~(finite & np.isfinite(got))
        self.row.see("flushed", flushed, x, given, wanted)
        self.row.see("infinity", infinite, x, given, wanted)
        self.row.compared -= int(np.count_nonzero(finite & (is_nan | flushed | infinite)))
        left &= ~flushed & ~infinite
        if left.any():
            steps, got, right, *bits = (one[left] for one in (steps, got, right, x, given, wanted))
            allowed = DEFAULTS[self.of.name]
            self.row.off += len(steps)
            self.row.steps += int(steps.sum())
            self.row.see("over", steps > FAR, *bits)
            self.row.see_largest("worst", steps, *bits)
            self.row.see_largest("share", np.abs(got - right) / (allowed.atol + allowed.rtol * np.abs(right)), *bits)

    def _monotone(self, x: Array, got: Array) -> None:
        """Count neighbours whose results are in the wrong order. ``x`` has one sign, and its size grows."""
        size = np.abs(x.astype(np.float32))
        signed = -1 if np.signbit(x[0]) else 1
        for one, other, direction in self._pieces if size[0] == size[0] else ():
            low, high = np.sort(np.array([signed * one, signed * other], np.float32))
            first, last = int(np.searchsorted(size, low)), int(np.searchsorted(size, high, "right"))
            y = got[first:last].astype(np.float32, copy=False)
            wrong = y[1:] < y[:-1] if direction == signed else y[1:] > y[:-1]
            if wrong.any():
                bits = [each.view(self.of.bits)[first:last] for each in (x, got)]
                x_bits, before, after = (each[wrong] for each in (bits[0][:-1], bits[1][:-1], bits[1][1:]))
                self.row.see("fall", np.ones(len(before), bool), x_bits, before, after)
                self.row.see_largest("fall", self.of.steps(before, after), x_bits, before, after)

    def _by_length(self, x: Array, given: Array, slices: int) -> None:
        """Count results that are others in a short input."""
        starts = np.linspace(0, len(x) - SLICE, slices).astype(np.int64)
        places = (starts[:, None] + np.arange(SLICE)).ravel()
        short = [self.kernel(x[start : start + SLICE]).view(self.of.bits) for start in starts]
        alone, together = np.concatenate(short), given[places]
        nan = np.isnan(alone.view(self.of.dtype)) & np.isnan(together.view(self.of.dtype))
        self.row.see("by length", (alone != together) & ~nan, x.view(self.of.bits)[places], together, alone)
        self.row.cut += len(places)
