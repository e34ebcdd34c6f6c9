"""Round float64 tensors to a given number of bits, and move them by units in their last place.

A computation in float32 rounds the result of each operator, and another one rounds it otherwise: by another order
of its sums, or by an approximation that is off by a unit in the last place. This is the stochastic arithmetic of
CESTAC (J. Vignes, "A stochastic arithmetic for reliable scientific computation", 1993), with the random part in the
last place of a given number of bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from conformance.export.long_sums import OF_SUMS

LARGEST = {11: 65504.0, 24: float(np.finfo(np.float32).max)}
"""The largest number of a format, by its bits (the significand's, with the one that is implied)."""
UNDERFLOW = {11: (-14, -24), 24: (-126, -126)}
"""By the bits of a format: below which power of two numbers have fewer bits, and the power that is their unit.

Below its normal numbers float32 is taken to have none: processors and kernels are free to flush them to zero, and a
form such as 1 / (1 + exp(x)) gives zero before its result would. Half precision is computed in float32 on a CPU, and
keeps its subnormal numbers."""


@dataclass(frozen=True)
class Rounding:
    """Results have ``bits`` of significand and ``finer`` more, and are off by one unit there.

    The signs are drawn by ``seed`` and do not depend on ``finer``, so that two roundings which differ in it alone
    move everything in the same direction, by steps that differ by a factor of 2 ** finer.
    """

    bits: int
    seed: int
    finer: int = 0
    mirrored: bool = False
    """Whether everything is moved in the direction opposite to that without it."""
    ties: bool = False
    """Whether results that need no rounding are off by one unit as well, so that no two are equal."""
    uneven: bool = False
    """Whether everything is off by one to ``MOST_UNITS`` units, each by a number of its own. Two results that are
    both off by one unit cancel out in every other rounding where one is subtracted from the other."""
    given: bool = False
    """Whether the weights stay as they are, as what is given exactly: only what is computed is off."""
    merged: bool = False
    """Whether results are rounded to a grid of ``MERGED`` fewer bits, or with ``mirrored`` to one that lies between
    its numbers, and moved no further: those that are nearly equal are equal in one of the two."""
    sums: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """The errors of sums that are added up one by one, by the place of the call in the run. Another rounding of the
    same inputs takes it from here: the terms differ in their last bits, and adding them up takes as long as all else.
    """


MOST_UNITS = 4
"""How many units an uneven rounding is off at most."""

MERGED = 2
"""By how many bits results are shorter that are merged, which is as far as ``MOST_UNITS`` goes."""


def uneven(rng: np.random.Generator, signs: Any) -> Any:
    """The signs of an array, each times a whole number of units up to ``MOST_UNITS``."""
    return signs * rng.integers(1, MOST_UNITS, size=signs.shape, endpoint=True)


def bits_of(dtypes: list[str]) -> int | None:
    """The bits that a module computes with whose inputs have these NumPy dtypes; None where float64 is no better."""
    floats = {dtype for dtype in dtypes if dtype.startswith("float")}
    if "float64" in floats:
        return None
    return 11 if floats == {"float16"} else 24


class Units:
    """Moves float64 tensors by units in their last place, with other random signs at each call."""

    def __init__(self, rounding: Rounding) -> None:
        self._rng = np.random.default_rng(rounding.seed)
        self._by_byte = _by_byte(rounding.mirrored, rounding.uneven)
        self._bits, self._ties, self._finer = rounding.bits + rounding.finer, rounding.ties, rounding.finer
        self._grid = (0.5 if rounding.mirrored else 0.0) if rounding.merged else None
        self._lowest, smallest = UNDERFLOW[rounding.bits]
        self._smallest = smallest - rounding.finer
        self.largest = LARGEST[rounding.bits]

    def rounded(self, value: Any) -> Any:
        """The values as multiples of the unit in their last place, off by one, and infinite beyond the format.

        Those that need no rounding stay, as they are exact in every computation, or were rounded when they were made
        and have only been moved since.
        """
        import torch

        unit = self._unit(value)
        nearest = torch.round(value / unit).mul_(unit)
        moves = torch.isfinite(value) if self._ties else nearest != value  # NaN stays NaN
        if self._grid is None:
            nearest.add_(self._signs(value).mul_(unit))
        else:
            coarse = unit * 2.0**MERGED
            nearest = (torch.round(value / coarse + self._grid) - self._grid).mul_(coarse)
        rounded = torch.where(moves, nearest, value)
        if rounded.numel() and not max(map(abs, torch.stack(rounded.aminmax()).tolist())) <= self.largest:
            beyond = rounded.abs() > self.largest
            rounded[beyond] = torch.copysign(rounded.new_tensor(math.inf), rounded[beyond])
        return rounded

    def nudged(self, value: Any) -> Any:
        """Weights, which are multiples of their unit, off by one. Whole numbers, such as positions, stay."""
        import torch

        unit, signs = self._unit(value), self._signs(value)
        return torch.where(torch.isfinite(value) & (torch.round(value) != value), value + signs * unit, value)

    def summed(self, value: Any, magnitude: Any, one_by_one: Any = 0.0) -> Any:
        """Sums off by ``OF_SUMS`` units of what their terms add up to without their signs, or by ``one_by_one``, how
        far adding them up one by one is off in float32."""
        import torch

        if self._grid is not None:
            return self.rounded(value)
        size = magnitude * (OF_SUMS * 2.0**-self._bits)
        size = torch.maximum(size, torch.as_tensor(one_by_one * 2.0**-self._finer, dtype=size.dtype))
        error = self._signs(value) * size
        return torch.where(torch.isfinite(value) & torch.isfinite(error), value + error, value)

    def perturbed(self, value: Any) -> Any:
        """Matrices off by one unit of their largest element."""
        import torch

        finite = torch.isfinite(value)
        largest = torch.where(finite, value, 0.0).abs().amax((-2, -1), keepdim=True)
        return torch.where(finite, value + self._signs(value) * largest * 2.0**-self._bits, value)

    def _unit(self, value: Any) -> Any:
        import torch

        # The exponents are taken out of the numbers' bits, and the units made of them, since frexp and ldexp take
        # longer than all the rest. In float64, 2 ** n is n + 1023 in front of 52 zeros.
        exponents = value.contiguous().view(torch.int64).bitwise_right_shift(_FRACTION).bitwise_and_(0x7FF)
        small = exponents <= self._lowest + _BIAS - 1
        exponents -= self._bits - 1
        exponents.masked_fill_(small, self._smallest + _BIAS)
        return exponents.bitwise_left_shift_(_FRACTION).view(torch.float64)

    def _signs(self, value: Any) -> Any:
        import torch

        drawn = np.frombuffer(self._rng.bytes(value.numel()), dtype=np.uint8)
        return torch.from_numpy(self._by_byte[drawn]).reshape(value.shape)


_FRACTION, _BIAS = 52, 1023
"""Bits of the fraction of a number in float64, and what its exponent is stored with in addition."""


@cache
def _by_byte(mirrored: bool, uneven: bool) -> np.ndarray[Any, Any]:
    """The signs, times a number of units each where they are uneven, that random bytes stand for."""
    byte = np.arange(256)
    signs = np.where(byte % 2 == 1, -1.0, 1.0) if mirrored else np.where(byte % 2 == 1, 1.0, -1.0)
    return signs * (1 + byte // 2 % MOST_UNITS) if uneven else signs


MOVED_WEIGHTS = 2**24
"""How many weights are moved at most, for time and memory. Of a module with more, the results alone tell."""


def nudged(weights: Mapping[str, Any], rounding: Rounding) -> dict[str, Any]:
    """The float64 tensors among the weights, each value off by one unit in its last place; none of a large module."""
    import torch

    units = Units(rounding)
    if sum(value.numel() for value in weights.values()) > MOVED_WEIGHTS:
        return {}
    return {name: units.nudged(value) for name, value in weights.items() if value.dtype == torch.float64}
