"""Round what a function is to float32, float16 and bfloat16, correctly: to the nearest, ties to even.

Float64 decides but where its error could: where the value times 1 - ``DOUBT`` and times 1 + ``DOUBT`` are rounded
otherwise (A. Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded last bit", 1991).
There mpmath computes it to ``BITS`` bits, and what then is equal to a tie is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch
from mpmath import mp, mpf

from conformance.process.arrays import Array
from evidence.numbers.functions import Function

DOUBT = 2.0**-42
"""More than a form of ``functions`` is off in float64, as a share of the value; ``off_by`` measures that."""
BITS = 400
TINY = 2.0**-60
"""Below it float64 does not hold what a function has more than half of its input."""


@dataclass(frozen=True)
class Format:
    """A floating-point type, and the unsigned integers that are its bits."""

    name: str
    dtype: np.dtype[np.generic]
    bits: np.dtype[np.generic]
    least: float
    """The least normal number."""

    @property
    def sign(self) -> int:
        """The bit of the sign; as many patterns have none."""
        return 1 << (8 * self.bits.itemsize - 1)

    def steps(self, one: Array, other: Array) -> Array:
        """Return how many numbers of the format further ``other`` is, of bits: both zeros are one number."""
        signed = (each.astype(np.int64) for each in (one, other))
        return np.abs(np.subtract(*(np.where(each >= self.sign, self.sign - each, each) for each in signed)))


FORMATS = {one.name: one for one in (
    Format("float32", np.dtype(np.float32), np.dtype(np.uint32), 2.0**-126),
    Format("float16", np.dtype(np.float16), np.dtype(np.uint16), 2.0**-14),
    Format("bfloat16", np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16), 2.0**-126),
)}  # fmt: skip


@np.errstate(all="ignore")
def rounded(value: Array, to: Format) -> Array:
    """Return float64 rounded once."""
    if to.name != "bfloat16":
        return value.astype(to.dtype)
    single = value.astype(np.float32)  # to odd, so that rounding again decides no tie (Boldo and Melquiond, 2008)
    bits = single.view(np.uint32) - (np.abs(single) > np.abs(value))
    return (bits | (single != value)).astype(np.uint32).view(np.float32).astype(to.dtype)


@dataclass
class Right:
    """A function rounded to a format; ``asked`` counts the values that mpmath decided."""

    function: Function
    to: Format
    asked: int = 0

    @np.errstate(all="ignore")
    def of(self, x: Array) -> Array:
        """Return the results of inputs of the format, in it."""
        wide = x.astype(np.float64)
        value = self.function.exact(torch.from_numpy(wide)).numpy()
        if self.function.halves:
            tiny = np.flatnonzero((np.abs(wide) < TINY) & (wide != 0))
            value[tiny] = np.nextafter(value[tiny], np.inf)
        result = rounded(value, self.to)
        if self.function.is_exact:
            return result
        low, high = rounded(value * (1 - DOUBT), self.to), rounded(value * (1 + DOUBT), self.to)
        for place in np.flatnonzero(low.view(self.to.bits) != high.view(self.to.bits)):
            if not (self.function.halves and abs(wide[place]) < TINY):
                result[place] = self.nearest(float(wide[place]), low[place], high[place])
                self.asked += 1
        return result

    def nearest(self, x: float, low: np.generic, high: np.generic) -> np.generic:
        """Return which of two neighbours the function of ``x`` is nearer to; ``low`` is nearer to zero."""
        bits, near, far = int(low.view(self.to.bits)), float(low), float(high)  # type: ignore[arg-type]  # NumPy's stubs
        if np.isinf(far):
            far = 2 * near - float(np.array(bits - 1, self.to.bits).view(self.to.dtype))
        with mp.workprec(BITS):
            value, tie = abs(self.function.digits(mpf(x))), abs(mpf(near) + mpf(far)) / 2
            if abs(value - tie) <= tie * mpf(2) ** (20 - BITS):
                return high if bits % 2 else low  # the even one
            return high if value > tie else low


@np.errstate(all="ignore")
def off_by(function: Function, count: int = 200) -> float:
    """Return how far the form in float64 is off at most, as a share of the value, of random inputs with results that
    float32 holds: ``count`` of 10 within some units of zero, the others of any size."""
    rng, worst = np.random.default_rng(1), 0.0
    x = rng.integers(0, 2**32, 8 * count).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, rng.normal(0, 5, 2 * count).astype(np.float32)]).astype(np.float64)
    with mp.workprec(BITS):
        for one, got in zip(x, function.exact(torch.from_numpy(x)).numpy(), strict=True):
            if 2.0**-150 < abs(got) < 2.0**128 and np.isfinite(one):
                value = function.digits(mpf(one))
                worst = max(worst, float(abs((mpf(got) - value) / value)))
    return worst
