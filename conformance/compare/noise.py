"""Comparing at reduced precision: how much noise a conversion or a runtime adds, against the signal.

At fp16 and int8 every value is off by a little, so that one value says nothing. What counts is the power of the error
relative to the power of the output, in decibels: the signal-to-quantization-noise ratio (SQNR).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from conformance.compare.channels import Channels
from conformance.compare.excuses import UNMOVED
from conformance.compare.outstanding import parts
from conformance.compare.places import Places
from conformance.compare.tolerance import (
    MOST_EXCUSED,
    Comparison,
    Subject,
    Worst,
    failed,
    odd_shape,
    subjects,
    summary,
    worst_at,
)
from conformance.process.arrays import Array


@dataclass(frozen=True)
class NoiseLimit:
    """The least that a precision may leave and a runtime may keep, in decibels.

    ``sqnr`` is that of the converted graph's own semantics against PyTorch in float32, unless ``cosine`` (at least)
    and ``magnitude`` (at most, relative) are given instead. ``runtime`` is that of a runtime against these semantics.
    ``epsilon`` is the step of the format relative to a value.
    """

    sqnr: float
    runtime: float
    epsilon: float
    smallest: float = 0.0
    """The smallest value that the format holds; an error of that size is none."""
    cosine: float | None = None
    magnitude: float | None = None
    channel_sqnr: float | None = None
    """The least of any channel of an output; None where channels are not judged by themselves."""
    bias: float | None = None
    """The most that all values may be too large or too small by together, relative to them."""

    def refuses(self, wrong: Array, right: Array) -> bool:
        """Return whether ``wrong``, of the same shape, would have failed as an output of this precision."""
        if right.dtype.kind != "f":
            return not np.array_equal(wrong, right)
        noise = Noise(self)
        # What is below the smallest number is no error of a runtime, so that it proves nothing.
        return noise.see(wrong, right) > self.smallest**2 and not noise.within()


NOISE_LIMITS = {
    "fp16": NoiseLimit(sqnr=45.0, runtime=60.0, epsilon=2.0**-10, smallest=2.0**-24),
    "int8": NoiseLimit(sqnr=20.0, runtime=40.0, epsilon=2.0**-6),
    "bf16": NoiseLimit(sqnr=30.0, runtime=40.0, epsilon=2.0**-7),
    "int4": NoiseLimit(sqnr=15.0, runtime=40.0, epsilon=2.0**-10),
    "int2": NoiseLimit(sqnr=7.0, runtime=40.0, epsilon=2.0**-10),
    "fp8": NoiseLimit(sqnr=20.0, runtime=30.0, epsilon=2.0**-3),
    "fp4": NoiseLimit(sqnr=10.0, runtime=30.0, epsilon=2.0**-2),
}
"""The defaults by precision; ``docs/evidence/precision.md`` has the evidence. From bf16 on they are of files that
others have converted: sound ones that were measured keep 46 to 55 (bf16), 20 to 35 (int4), 5 to 23 (int2) and 26 to
39 dB (fp8), one of fp4 17, and an int4 or int2 model holds its weights alone in these bits, so that what it computes
with moves as in fp16."""

AGREEMENT = 0.95
"""The share of an integer or bool output that a reduced precision has to leave as it is."""

OWN = 2.0
"""How many times the conversion's own error (root mean square, against float32) a runtime may be off.

A runtime rounds at other places, or not at all where it fuses nodes. One that is no further from PyTorch than the
graph's own meaning is within twice that of the meaning, and is not to be accused. The meaning may be close to PyTorch
by luck; what it would be with the inputs rounded otherwise (``moved``) counts as much. Values that stand out from the
others count among themselves alone (``parts``).
"""

FLOOR = 7.0
"""Decibels below which an output is more noise than signal, and tells nothing of a runtime: at 6 dB, zeros would be
within ``OWN`` times its error."""

PEAK = 16.0
"""How many times the allowed noise (root mean square) one value may be off. Rounding differently by one step shifts a
value by at most 3.5 times the noise of the rounding itself, and errors of several layers add up."""


ALONE = 64.0
"""A draw is looked at by itself where its noise (mean square) is this many times the median of all draws. Of outputs
that are a single number, whose error may by chance be far above the median, one in ten million gets there by chance.
"""


_TINY = float(np.finfo(np.float64).tiny)


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise); infinite without noise, -infinite without signal or where the noise is infinite."""
    if noise <= 0:
        return math.inf
    ratio = signal / noise
    return 10 * math.log10(ratio) if ratio > 0 else -math.inf


def power(values: Array) -> float:
    return float(np.mean(np.square(values))) if values.size else 0.0


@dataclass
class Noise:
    """The noise of one output over all draws of a cell.

    Draws count alike, whatever their number of elements, so that a small shape that is all wrong is not lost among
    large shapes. A draw whose values are small is lost among draws of larger values: ``drowned`` finds it.
    """

    limit: NoiseLimit
    draws: int = 0
    signal: float = 0.0
    """Sum over the draws of the mean square of what is right."""
    noise: float = 0.0
    """Sum over the draws of the mean square of the error."""
    product: float = 0.0
    size: float = 0.0
    changed: float = 0.0
    """For integers and bools: the sum of the shares of values that differ."""
    counted: bool = False
    """Whether the output is of integers or bools."""
    each: list[tuple[float, float]] = field(default_factory=list)
    """Signal and noise of every draw."""
    channels: Channels = field(default_factory=Channels)
    places: Places = field(default_factory=Places)

    def see(self, got: Array, wanted: Array) -> float:
        """Add one draw; its noise (mean square of the error, or share of values that differ)."""
        self.draws += 1
        if wanted.dtype.kind != "f":
            self.counted = True
            share = float(np.mean(got != wanted)) if wanted.size else 0.0
            self.changed += share
            self.each.append((0.0, 0.0))
            return share
        self.channels.see(wanted, got)
        self.places.see(wanted, got)
        finite = np.isfinite(wanted) & np.isfinite(got)
        right, given = wanted[finite].astype(np.float64), got[finite].astype(np.float64)
        signal, noise = power(right), power(given - right)
        self.each.append((signal, noise))
        self.signal += signal
        self.noise += noise
        self.product += float(np.mean(given * right)) if right.size else 0.0
        self.size += power(given)
        return noise

    @property
    def sqnr(self) -> float:
        return decibels(self.signal, self.noise)

    @property
    def cosine(self) -> float:
        norm = math.sqrt(self.signal * self.size)
        return self.product / norm if norm > 0 else (1.0 if self.signal == self.size else 0.0)

    @property
    def magnitude(self) -> float:
        """Return how far the size of the output is off, relative to the right size."""
        if self.signal <= 0:
            return 0.0 if self.size <= 0 else math.inf
        return abs(math.sqrt(self.size / self.signal) - 1)

    @property
    def bias(self) -> float:
        """Return how much all values are too large (or, below zero, too small) together, relative to them: what is
        left when noise that goes either way has cancelled out."""
        return self.product / self.signal - 1 if self.signal > 0 else 0.0

    def within(self) -> bool:
        return self.ratio() <= 1

    def drowned(self) -> int | None:
        """The index of a draw, if any, that is more noise than signal and is lost among draws of larger values.

        Its noise has to stand out from the noise of all draws, and from what the format rounds at their size: where
        an output happens to be near zero, what is left of it may well be noise.
        """
        if not self.each:
            return None
        signals, noises = np.asarray(self.each).T
        typical = max(float(np.median(noises)), self.limit.epsilon**2 * float(np.median(signals)))
        lost = (noises > ALONE * typical) & (noises > signals * 10 ** (-FLOOR / 10))
        index = int(np.where(lost, noises, -1.0).argmax())
        return index if lost[index] else None

    def ratio(self) -> float:
        """Root mean square error over what is allowed, so that below 1 passes."""
        if self.counted:
            return self.changed / ((1 - AGREEMENT) * self.draws) if self.draws else 0.0
        return max(ratio for ratio, _ in self._judged())

    def _judged(self) -> Iterator[tuple[float, str]]:
        """Yield each limit: the error over what is allowed, and the measurement beside its limit."""
        yield self._of_all()
        worst = self.channels.worst()
        if self.limit.channel_sqnr is not None and worst is not None:
            channel, sqnr = worst
            text = f"channel {channel}: SQNR {sqnr:.1f} dB, at least {self.limit.channel_sqnr:g} dB expected"
            yield 10 ** ((self.limit.channel_sqnr - sqnr) / 20), text
        if self.limit.bias is not None:
            text = f"all values are off by {self.bias:+.2%} together, allowed are {self.limit.bias:.2%}"
            yield abs(self.bias) / self.limit.bias, text

    def _of_all(self) -> tuple[float, str]:
        if self.limit.cosine is not None:
            allowed = 1 - self.limit.cosine
            turned = (1 - self.cosine) / allowed if allowed > 0 else (0.0 if self.cosine >= 1 else math.inf)
            text = (
                f"cosine {self.cosine:.5f} and magnitude off by {self.magnitude:.2%}, allowed are "
                f"{self.limit.cosine:g} and {self.limit.magnitude:.2%}"
            )
            return max(turned, self.magnitude / (self.limit.magnitude or 1.0)), text
        text = f"SQNR {self.sqnr:.1f} dB{self._together()}, at least {self.limit.sqnr:g} dB expected"
        return 0.0 if self.noise == 0 else 10 ** ((self.limit.sqnr - self.sqnr) / 20), text

    def text(self) -> str:
        """Describe the measurement beside its limit: that which is furthest off."""
        if self.counted:
            return f"{self.changed / self.draws:.1%} of the values differ, allowed are {1 - AGREEMENT:.0%}"
        return max(self._judged())[1]

    def _together(self) -> str:
        return f" over all {self.draws} examples" if self.draws > 1 else ""


def compare_outputs(
    got: Sequence[Array],
    meant: Sequence[Array],
    exact: Sequence[Array],
    limits: Sequence[NoiseLimit],
    moved: Sequence[Array] | None = None,
    called: Sequence[Subject] | None = None,
) -> Comparison:
    """Compare a runtime's outputs with those that the converted graph means, for one draw.

    ``exact`` are PyTorch's, in float32. ``moved`` says of each value of each output how far other roundings move what
    is meant; an array without dims is about all values. See ``OWN`` for how far a runtime may be off. ``called`` is
    what texts call the outputs; None numbers them.
    """
    called = subjects(len(meant)) if called is None else called
    if len(got) != len(meant):
        return failed("WrongCount", f"{len(got)} outputs instead of {len(meant)}")
    if len(exact) != len(meant):
        return failed("WrongCount", f"the converted model gives {len(meant)} outputs instead of {len(exact)}")
    verdicts = []
    for output, (given, right, true) in enumerate(zip(got, meant, exact, strict=True)):
        far = moved[output] if moved else UNMOVED
        if right.dtype.kind != "f" and far.ndim and given.shape == right.shape == far.shape:
            given = np.where(np.isinf(far), right, given).astype(given.dtype)  # whole numbers that are left open
        verdict = odd_shape(called[output], given, right) or _compare_output(
            called[output], given, right, true, limits[output], far
        )
        if verdict.verdict == "failed":
            if far.ndim or not np.isinf(far) or verdict.error not in ("WrongShape", "WrongValue"):
                return verdict
            text, count = f"{called[output]}: its values, and how many, are left open", max(right.size, 1)
            verdict = Comparison("ill-conditioned", text=text, excused=count, left_open=count)
        verdicts.append(verdict)
    return summary(verdicts)


def _compare_output(
    output: Subject, got: Array, meant: Array, exact: Array, noise_limit: NoiseLimit, moved: Array
) -> Comparison:
    same_shape = exact.shape == meant.shape
    if not meant.size:
        return Comparison("verified")
    if meant.dtype.kind != "f":
        return _compare_counted(output, got, meant, exact if same_shape else None)
    beyond = ~np.isfinite(meant)
    if same_shape:  # where the graph overflows and PyTorch does not, a runtime may do either
        beyond &= np.isfinite(exact)
    odd = ~np.isfinite(got) & np.isfinite(meant)
    odd |= ~beyond & ~np.isfinite(meant) & ~((got == meant) | (np.isnan(got) & np.isnan(meant)))
    if odd.any():
        first = tuple(int(i) for i in np.argwhere(odd)[0])
        text = f"{output}: {int(odd.sum())} of {got.size} values are NaN or infinite on one side only"
        name = "WrongNaN" if np.isnan(got[first]) or np.isnan(meant[first]) else "WrongInf"
        return failed(name, text, worst_at(output.number, first, got, meant, math.inf, math.inf), odd)
    finite = np.isfinite(meant)
    if not finite.any() or finite.mean() < 0.5:
        return Comparison("nothing")
    right = np.where(finite, meant, 0).astype(np.float64)
    error = np.abs(np.where(finite, got, 0).astype(np.float64) - right)
    size = np.abs(right)
    own = np.broadcast_to(moved if moved.shape in ((), meant.shape) else moved.max(initial=0.0), meant.shape)
    if same_shape:
        own = np.maximum(own, np.where(finite & np.isfinite(exact), np.abs(exact.astype(np.float64) - right), 0))
    return _by_parts(output, got, meant, error, size, own, noise_limit)


def _by_parts(
    output: Subject, got: Array, meant: Array, error: Array, size: Array, own: Array, noise_limit: NoiseLimit
) -> Comparison:
    """Judge the values of an output part by part. What is allowed of a part is so of those that stand out from it; of
    these, values that are further off than any of the first part may be are excused."""
    floor = 10 ** (-noise_limit.runtime / 20)
    allowed, drowned = noise_limit.smallest**2, 0
    ordinary: Array | None = None
    worst: Worst | None = None
    excused = np.zeros(meant.shape, dtype=bool)
    for part in parts(size, own, floor / OWN, noise_limit.smallest):
        signal, noise, own_noise = power(size[part]), power(error[part]), power(own[part])
        due = signal * floor**2
        allowed = max(allowed, due, OWN**2 * own_noise)
        limit = np.maximum(PEAK * math.sqrt(allowed) + 4 * noise_limit.epsilon * size, _TINY)
        peaks = np.where(part, error / limit, -1.0)
        index = np.unravel_index(int(peaks.argmax()), peaks.shape)
        together = math.sqrt(noise / allowed) if allowed > 0 else (0.0 if noise == 0 else math.inf)
        ratio = max(float(peaks[index]), together)
        if worst is None or ratio > worst.ratio:
            worst = worst_at(output.number, index, got, meant, float(error[index]), ratio)
        if ratio > 1:
            among = "" if part.all() else f" in {int(part.sum())} of {got.size} values"
            text = f"{output}: {int((peaks > 1).sum())} of {got.size} values are off by more than rounding explains"
            if together > 1 and signal == 0:
                far = error[part].max()
                text = f"{output}: values that are 0 by the converted graph{among} come out as up to {far:.3g}"
            elif together > 1:
                text = (
                    f"{output}: SQNR {decibels(signal, noise):.1f} dB against the converted graph's own "
                    f"semantics{among}, at least {decibels(signal, allowed):.1f} dB expected"
                )
            return failed("WrongValue", text, worst, None if together > 1 else peaks > 1)
        if own_noise > due and decibels(signal, own_noise) < FLOOR:
            drowned += int(part.sum())
        ordinary = limit if ordinary is None else ordinary
        excused |= part & (error > ordinary)
    count, excuse = int(excused.sum()), None
    if count and ordinary is not None:
        far = np.where(excused, error / ordinary, -1.0)
        index = np.unravel_index(int(far.argmax()), far.shape)
        excuse = worst_at(output.number, index, got, meant, float(error[index]), float(far[index]))
    ill = max(count, drowned) > MOST_EXCUSED * got.size
    return Comparison("ill-conditioned" if ill else "verified", worst, excused=count, excuse=excuse)


def _compare_counted(output: Subject, got: Array, meant: Array, exact: Array | None) -> Comparison:
    """Integers and bools may differ in as many places as the conversion changed, or one in a hundred."""
    wrong = got != meant
    if not wrong.any():
        return Comparison("verified")
    changed = 0.0 if exact is None else float(np.mean(exact != meant))
    share, due = float(wrong.mean()), max(changed, 0.01)
    if share <= due:
        return Comparison("verified")
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    error = abs(float(got[first]) - float(meant[first]))
    text = f"{output}: {share:.1%} of the values differ from the converted graph's own semantics"
    return failed("WrongValue", text, worst_at(output.number, first, got, meant, error, share / due))
