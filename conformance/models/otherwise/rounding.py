"""Round float64 arrays to a given number of bits, and move them by units in their last place; and find how far sums
are off where their terms are added up in another order, or one by one.

A computation in float32 rounds the result of each operator, and another one rounds it otherwise: by another order of
its sums, or by an approximation that is off by a unit in the last place. This is the stochastic arithmetic of CESTAC
(J. Vignes, "A stochastic arithmetic for reliable scientific computation", 1993), with the random part in the last
place of a given number of bits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np

from conformance.models.reference.dispatch import Arguments
from conformance.process.arrays import PART, Array, in_parts

if TYPE_CHECKING:
    from torch import Tensor

MATRICES = re.compile(
    r"aten\.(_?linalg_(det|slogdet|inv|solve|lu|cholesky|qr|svd|eig|lstsq|ldl|pinv)|cholesky|triangular_solve)"
)
"""Operators that factor a matrix. What they give is right for a matrix that is off by a unit of its norm, and no
algorithm comes closer (Higham, chapters 9 and 10): a singular one may have any small determinant."""

OF_SUMS = 0.5
"""How far another order of the same sum is taken to be off, in units of the sum of its terms' sizes.

The bound is one unit for each addition (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section
4.2; TOSA's conformance tests allow as many, ``verify_dot_product``). Products of both signs come nowhere near: adding
up 4,096 one by one is off by 0.1 of these units, in blocks by less; products of 10 bits are off by 30. Terms of one
sign do, as those of a mean: 16,384 equal ones are off by 400 to 800. So a plain sum is added up one by one as well,
to see how far it is off, and so are products of matrices and convolutions, whose terms may have one sign for a
while."""

ONE_BY_ONE = 0.05
"""The same for a pool, whose terms may have one sign, for each of its terms: what equal ones come to."""

LONG = 32
"""From how many terms on a sum is added up one by one; for fewer ``OF_SUMS`` is more."""

PLAIN_SUMS = ("aten.sum", "aten.mean", "aten.cumsum", "prims.sum")
"""Operators that add up their first argument, along the dims that their second one names."""

POOLS = (
    "aten.avg_pool2d", "aten.avg_pool3d", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d",
)  # fmt: skip

PRODUCTS = {
    "aten.mm": 0, "aten.bmm": 0, "aten.mv": 0, "aten.dot": 0, "aten.linear": 0, "aten.addmm": 1, "aten.baddbmm": 1,
    "aten.addmv": 1,
}  # fmt: skip
"""Operators that multiply matrices, with the place of the first factor among their arguments."""

MOST_TERMS = 2**19
"""Of how many terms all sums of a product are added up one by one; those of more take too long."""

SUMS = {*PLAIN_SUMS, *POOLS, *PRODUCTS, "aten.convolution", "aten.mkldnn_convolution"}
"""Operators that add up products of their tensors: of the sizes of their tensors they give the sizes of their terms,
added up."""


def one_by_one(name: str, args: Arguments, out: Tensor, magnitude: Tensor) -> Tensor | None:
    """Return how far each value of a sum is off in float32 where its terms are added up one after another; for pools,
    how far it may be; None for other operators and for short sums."""
    import torch

    if name in POOLS:
        spatial = 3 if name.endswith("3d") else 2
        window: float = args[0].shape[-spatial:].numel() / out.shape[-spatial:].numel()
        if "adaptive" not in name:
            window = math.prod(args[1]) ** (spatial // len(args[1]))
        return magnitude * (ONE_BY_ONE * window * 2.0**-24)
    if name in PRODUCTS or name == "aten.convolution":
        products = _products(name, args) if name in PRODUCTS else _of_convolution(args, out)
        return None if products is None else torch.from_numpy(_off_one_by_one(products).reshape(out.shape))
    if name not in PLAIN_SUMS:
        return None
    value, dims = args[0], args[1] if len(args) > 1 else None
    axes = [dims] if isinstance(dims, int) else dims or [*range(value.dim())]
    count = math.prod(value.shape[axis] for axis in axes)
    if count < LONG:
        return None
    last = [*range(-len(axes), 0)]
    terms = value.movedim(axes, last).flatten(-len(axes))
    error = torch.from_numpy(_off_one_by_one(terms, partial=name == "aten.cumsum"))
    if name == "aten.cumsum":
        return error.movedim(-1, axes[0])
    return error.reshape(out.shape) / (count if name == "aten.mean" else 1)


def _products(name: str, args: Arguments) -> Tensor | None:
    """Return the terms of each value of a product of matrices along the last axis; None where a sum has few, or all
    together are too many."""
    left: Tensor = args[PRODUCTS[name]]
    right: Tensor = args[PRODUCTS[name] + 1]
    right = right.unsqueeze(0) if right.dim() == 1 else right if name == "aten.linear" else right.mT
    if left.shape[-1] < LONG or left.numel() * right.shape[-2] > MOST_TERMS:
        return None
    return left.unsqueeze(-2) * (right if left.dim() == 1 else right.unsqueeze(-3))


def _of_convolution(args: Arguments, out: Tensor) -> Tensor | None:
    """Return the same of a convolution over one or two dims without groups, of shape ``[*out.shape, terms]``."""
    import torch

    value: Tensor = args[0]
    weight: Tensor = args[1]
    stride, padding, dilation, transposed, _, groups = args[3:9]
    count, spatial = weight[0].numel(), weight.dim() - 2
    if transposed or groups > 1 or spatial not in (1, 2) or count < LONG or out.numel() * count > MOST_TERMS:
        return None
    if spatial == 1:  # one dim of size 1 before its own
        value, weight = value.unsqueeze(-2), weight.unsqueeze(-2)
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    columns = torch.nn.functional.unfold(value, weight.shape[2:], dilation, padding, stride)
    return columns.mT.unsqueeze(1) * weight.flatten(1).unsqueeze(1)


PHASES = (1.0, 1.13, 1.37, 1.71)
"""By what terms are multiplied before they are added up one by one. Of many equal terms each addition rounds alike
for a while, up or down by what is in their last bits: 262,144 equal ones are off by 3e-6 to 3e-3 of their sum. A
runtime's terms have other last bits, so that its sum may drift where the one that is tried does not."""


def _off_one_by_one(terms: Tensor, *, partial: bool = False) -> Array:
    """Return how far a sum of terms along the last axis is off where they are added up one by one: the most that it,
    or a sum of the first of them, is; with ``partial`` so for each of these sums. 0 for sums that are exact."""
    values = terms.detach().numpy()
    first, *others = (_drift((values * phase).astype(np.float32), partial) / phase for phase in PHASES)
    most = np.where(first == 0, 0.0, np.maximum.reduce([first, *others]))
    return np.nan_to_num(most, nan=0.0, posinf=0.0)


def _drift(values: Array, partial: bool) -> Array:
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(values, -1, dtype=np.float64)
        sums -= np.add.accumulate(values, -1, dtype=np.float32)
    sizes = np.abs(sums, out=sums)  # the largest counts, since the error of a whole sum may be small by luck
    return np.maximum.accumulate(sizes, -1) if partial else sizes.max(-1, keepdims=True)


LARGEST = {8: 3.3895313892515355e38, 11: 65504.0, 24: float(np.finfo(np.float32).max)}
"""The largest number of a format, by its bits (the significand's, with the one that is implied)."""
UNDERFLOW = {8: (-126, -133), 11: (-14, -24), 24: (-126, -126)}
"""By the bits of a format: below which power of two numbers have fewer bits, and the power that is their unit.

Below its normal numbers float32 is taken to have none: processors and kernels are free to flush them to zero, and a
form such as 1 / (1 + exp(x)) gives zero before its result would. Half precision is computed in float32 on a CPU, and
keeps its subnormal numbers."""


_Found = TypeVar("_Found")
Call = tuple[int, str, tuple[int, ...]]
"""The place of a sum in a run: which of its sums it is, its operator, and the shape of its result."""


class Sums:
    """Keep for each sum of a run what its terms add up to without their signs, and how far off it is where they are
    added up one by one. Other roundings of the same inputs take both from here: the terms differ in their last bits,
    and adding them up again takes as long as all else."""

    def __init__(self) -> None:
        self._kept: dict[Call, tuple[Array, Any]] = {}
        self._bytes = 0

    def of(self, call: Call, result: Array, measure: Callable[[], tuple[_Found, ...]]) -> tuple[_Found, ...]:
        """Return what was measured for a call, in arrays or numbers; kept for later as long as there is room. Where
        the ``result`` of the call is another one, as of zeros that are moved, or behind a jump, it is measured anew.
        """
        sample = result.reshape(-1)[:: result.size // SAMPLE + 1]
        known = self._kept.get(call)
        if known is not None and _near(sample, known[0]):
            kept: tuple[_Found, ...] = known[1]
            return kept
        found = measure()
        size = sum(getattr(one, "nbytes", 0) for one in (sample, *found))
        if known is None and self._bytes + size <= MOST_SUMS:
            self._kept[call], self._bytes = (sample.copy(), found), self._bytes + size
        return found


def _near(sample: Array, known: Array) -> bool:
    """Return whether values are within ``NEAR`` of those that are known. Few are NaN or infinite, and what asks about
    these takes ten times as long, for each node of a graph."""
    quick = bool((np.abs(sample - known) <= NEAR * np.abs(known)).all())
    return quick or np.allclose(sample, known, rtol=NEAR, atol=0.0, equal_nan=True)


MOST_SUMS = 2**28
"""Bytes that are kept of the sums of a run; what is beyond is measured again."""
SAMPLE, NEAR = 2**12, 0.5
"""The number of values of a result that are compared with those that its sums were measured for, and their largest
distance, relative to themselves, at which these still hold: rounding moves only what cancels out as far."""


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
    sums: Sums = field(default_factory=lambda: Sums(), compare=False, repr=False)


MOST_UNITS = 4
"""How many units an uneven rounding is off at most."""

MERGED = 2
"""By how many bits results are shorter that are merged, which is as far as ``MOST_UNITS`` goes."""


def bits_of(dtypes: list[str], half: str | None = None) -> int | None:
    """The bits that a module computes with whose inputs have these NumPy dtypes, and that has a ``half`` inside; None
    where float64 is no better."""
    if half is not None:
        return {"float16": 11, "bfloat16": 8}[half]
    floats = {dtype for dtype in dtypes if dtype.startswith("float")}
    if "float64" in floats:
        return None
    return 11 if floats == {"float16"} else 24


FRACTION, BIAS = 52, 1023
"""Bits of the fraction of a number in float64, and what its exponent is stored with in addition."""


def _in_place(exponent: int) -> Array:
    """Return the bits of a number in float64 with this exponent, which is stored in front of its fraction. It is an
    array, as every number that an array of a few values is computed with: NumPy takes four times as long for
    Python's, and a graph has thousands of nodes."""
    return np.array(exponent << FRACTION)


_EXPONENT = _in_place(0x7FF)


@cache
def signs_by_byte(mirrored: bool, uneven: bool) -> Array:
    """The signs, times a number of units each where they are uneven, that random bytes stand for."""
    byte = np.arange(256)
    signs = np.where(byte % 2 == 1, -1.0, 1.0) if mirrored else np.where(byte % 2 == 1, 1.0, -1.0)
    return signs * (1 + byte // 2 % MOST_UNITS) if uneven else signs


MOVED_WEIGHTS = 2**24
"""The most weights that are moved, for time and memory. Of a module with more, the results alone tell."""


def is_plain(value: object) -> TypeGuard[Array]:
    """Return whether a value is an array of float64, as rounding moves them."""
    return isinstance(value, np.ndarray) and value.dtype == np.float64


FEW = 2**10
"""Values of an array that is moved together with others."""


class Units:
    """Moves float64 arrays by units in their last place, with other random signs at each call. Numbers that leave the
    format, NaN and infinities are nothing to warn of: where it is used, NumPy is told to be silent."""

    def __init__(self, rounding: Rounding) -> None:
        self._rng = np.random.default_rng(rounding.seed)
        self._signs = signs_by_byte(rounding.mirrored, rounding.uneven)
        self._bits, self._ties, self._finer = rounding.bits + rounding.finer, rounding.ties, rounding.finer
        self._grid = (0.5 if rounding.mirrored else 0.0) if rounding.merged else None
        lowest, smallest = UNDERFLOW[rounding.bits]
        self._lowest, self._smallest = _in_place(lowest + BIAS - 1), _in_place(smallest - rounding.finer + BIAS)
        self._below = _in_place(self._bits - 1)
        self.largest = LARGEST[rounding.bits]
        self._most = np.array(self.largest)
        self._pool, self._at = np.zeros(0), 0

    def rounded(self, value: Array) -> Array:
        """Return the values as multiples of the unit in their last place, off by one, and infinite beyond the format.

        Those that need no rounding stay, as they are exact in every computation.
        """
        return in_parts(self._rounded, value)

    def _rounded(self, value: Array) -> Array:
        if not value.ndim:
            return self._rounded(value.reshape(1)).reshape(())
        unit = self._unit(value)
        nearest = value / unit
        np.rint(nearest, out=nearest)
        nearest *= unit
        stays = ~np.isfinite(value) if self._ties else nearest == value
        if self._grid is None:
            unit *= self._drawn(value)
            nearest += unit
        else:
            unit *= 2.0**MERGED
            nearest = (np.round(value / unit + self._grid) - self._grid) * unit
        np.copyto(nearest, value, where=stays)
        beyond = np.abs(nearest) > self._most
        if np.count_nonzero(beyond):
            np.copyto(nearest, np.copysign(np.inf, nearest), where=beyond)
        return nearest

    def summed(self, value: Array, size: Array, *one_by_one: Array) -> Array:
        """Return sums off by units of ``size``, what their terms add up to without their signs, or by how far off
        adding them up ``one_by_one`` is in float32."""
        if self._grid is not None:
            return self.rounded(value)
        return in_parts(self._summed, value, size, *one_by_one)

    def _summed(self, value: Array, size: Array, *one_by_one: Array) -> Array:
        error = size.astype(np.float64)
        error *= 2.0**-self._bits
        for least in one_by_one:
            error = np.maximum(error, least * 2.0**-self._finer)
        error *= self._drawn(value)
        error += value
        return np.where(np.isfinite(error), error, value)

    def nudged(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Return weights off by one unit, but those of large models. Whole numbers, such as positions, stay."""
        floats = {name: value for name, value in weights.items() if is_plain(value)}
        if sum(value.size for value in floats.values()) > MOVED_WEIGHTS:
            return dict(weights)
        small = [name for name, value in floats.items() if value.size <= FEW]
        with np.errstate(all="ignore"):
            found = {name: self.moved(value) for name, value in floats.items() if value.size > FEW}
            together = self.moved(np.concatenate([np.zeros(0), *(floats[name].ravel() for name in small)]))
        end = 0
        for name in small:
            begin, end = end, end + floats[name].size
            found[name] = together[begin:end].reshape(floats[name].shape)
        return {**weights, **found}

    def moved(self, value: Array) -> Array:
        """Return values off by one unit. Whole numbers stay."""
        return in_parts(self._moved, value)

    def _moved(self, value: Array) -> Array:
        if not value.ndim:
            return self._moved(value.reshape(1)).reshape(())
        moves = np.isfinite(value) & (np.round(value) != value)
        return np.where(moves, value + self._drawn(value) * self._unit(value), value)

    def perturbed(self, value: Array) -> Array:
        """Return matrices off by one unit of their largest element."""
        finite = np.isfinite(value)
        largest = np.abs(np.where(finite, value, 0.0)).max((-2, -1), keepdims=True)
        return np.where(finite, value + self._drawn(value) * largest * 2.0**-self._bits, value)

    def _unit(self, value: Array) -> Array:
        # The exponents are taken out of the numbers' bits, and the units made of them, since frexp and ldexp take
        # longer than all the rest. In float64, 2 ** n is n + 1023 in front of 52 zeros.
        exponents: Array = value.view(np.int64) & _EXPONENT
        small = exponents <= self._lowest
        exponents -= self._below
        np.copyto(exponents, self._smallest, where=small)
        return exponents.view(np.float64)

    def _drawn(self, value: Array) -> Array:
        begin = self._at
        self._at += value.size
        if self._at > self._pool.size:  # drawn for many arrays at once, as they may have a few values each
            begin, self._at = 0, value.size
            drawn = np.frombuffer(self._rng.bytes(max(value.size, PART)), dtype=np.uint8)
            self._pool = np.take(self._signs, drawn)
        return self._pool[begin : self._at].reshape(value.shape)
