"""Say of a weight that is not the original's rounded where it differs, and by what slip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.compare.noise import decibels, power
from conformance.models.precision.held_weights import HeldWeight
from conformance.process.arrays import Array

NEAR, NEARER = 12.0, 10.0
"""Decibels that a weight has to have in another order, and how many more than as it is, to be in that order."""
UNLIKE = 3.0
"""Decibels below which a row is another one. It has twice as many as what it was exchanged with, of other scales."""
FAR = 1.5
"""Steps from the original's that rounding otherwise than to the nearest does not explain."""
CLIPPED = 0.55
"""Steps from which on a value at the end of its range is said to lie outside."""
NEARLY = 0.97
"""The part of the values that nearly all are: a few are at the ends of a range."""
MANY = 0.1
"""The part of the values that has to be rounded otherwise, for a way of rounding to be named."""
MOST = 0.9
"""The part of what is wrong that has to be in one channel or block, for that to be named."""


@dataclass(frozen=True)
class Slip:
    """A mistake in a weight, as a sentence."""

    text: str
    repaired: Array
    """The weight with this put right."""
    known: bool = True
    """True where a slip explains it, as a wrong scale or another order does."""


def describe_spoiled(weight: HeldWeight, name: str, right: Array, instead: Array) -> Slip:
    """Return what is wrong with a weight: ``right`` is the original's, ``instead`` what it should be (float64, of one
    shape)."""
    called = f"{name} of {weight.reader}"
    if not np.isfinite(weight.value).all():
        at = [*map(int, np.argwhere(~np.isfinite(weight.value))[0])]
        return Slip(f"{called} is infinite or NaN at {at}, {right[tuple(at)]:.4g} in the original", instead)
    order = _order(weight, right)
    if order is not None:
        return Slip(f"{called} is the original's {order}", instead)
    excess = np.maximum((weight.value - right) ** 2 - (instead - right) ** 2, 0)
    place, where = _place(weight, excess)
    text, factor, offset = next(_slips(weight, right, where, excess), ("", 1.0, 0.0))
    if text:
        repaired = instead if (factor, offset) == (1.0, 0.0) else np.array(weight.value)
        if repaired is not instead:
            repaired[where] = (repaired[where] - offset) / factor
        return Slip(f"{called}{place}: {text}", repaired)
    wrong = int((excess > 0).sum())
    far = decibels(power(right[where]), power(weight.value[where] - right[where]))
    text = f"{wrong} of {right.size} values are not the nearest to the original's, {far:.1f} dB"
    if weight.grid is None:
        most = tuple(map(int, np.unravel_index(int(excess.argmax()), excess.shape)))
        text = f"it has other values than in the original, at {[*most]} {weight.value[most]:.4g} in place of " \
               f"{right[most]:.4g}"  # fmt: skip
    local = bool(place) and bool((np.abs(weight.value - right) > FAR * weight.step).any())
    return Slip(f"{called}{place}: {text}", instead, known=local)


def describe_clipped(weight: HeldWeight, name: str, right: Array) -> str | None:
    """Return how many values of a weight lie outside of its range, and how far; None where none does. That is a loss
    and no mistake: scales that are powers of 2 leave out a few values, so as not to be twice as coarse."""
    if (grid := weight.grid) is None:
        return None
    levels = grid.levels.astype(np.float64)
    at_end = grid.dequantized(np.where((levels <= grid.low) | (levels >= grid.high), 1.0, 0.0)) > 0
    steps = np.where(at_end, np.abs(weight.value - right) / weight.step, 0.0)
    count = int((steps > CLIPPED).sum())
    return f"{name} ({count} of {steps.size:,} values, by up to {steps.max():.1f} steps)" if count else None


def _sqnr(got: Array, wanted: Array) -> float:
    return decibels(power(wanted), power(got - wanted))


def _order(weight: HeldWeight, right: Array) -> str | None:
    """Return in which other order the values are the original's; None where they are in none of those tried."""
    value, least = weight.value, max(NEAR, _sqnr(weight.value, right) + NEARER)

    def orders() -> Iterator[tuple[str, Array]]:
        if value.ndim == 2 and value.shape[0] == value.shape[1]:
            yield "transposed", value.T
        grid = weight.grid
        levels, made = (value, np.asarray) if grid is None else (grid.levels.astype(np.float64), grid.value)
        for axis in range(levels.ndim):
            yield f"in reversed order along axis {axis}", made(np.flip(levels, axis))
            if levels.shape[axis] % 2 == 0:
                pairs = np.arange(levels.shape[axis]).reshape(-1, 2)[:, ::-1].ravel()
                yield (
                    f"with neighbours exchanged along axis {axis} (halves of bytes)",
                    made(np.take(levels, pairs, axis)),
                )
        if value.ndim == 4:
            yield "with the kernel in reversed order", made(levels[..., ::-1, ::-1])
        if grid is not None and grid.axis is not None:
            for text, scale, zero in grid.turned():
                yield text, grid.dequantized((grid.levels.astype(np.float64) - zero) * scale)

    found = next((text for text, array in orders() if _sqnr(array, right) >= least), None)
    return found or _exchanged(weight, right)


def _exchanged(weight: HeldWeight, right: Array) -> str | None:
    """Return which places along an axis, or which of its blocks, have the values of one another."""
    if right.ndim < 2:
        return None
    block = weight.grid.block if weight.grid is not None else 0
    for axis in range(right.ndim):
        for size in filter(None, (1, block)):
            if right.shape[axis] % size == 0:
                pair = _pair(_rows(weight.value, axis, size), _rows(right, axis, size))
                if pair is not None:
                    what = "places" if size == 1 else f"blocks of {size}"
                    return f"with {what} {pair[0]} and {pair[1]} along axis {axis} exchanged"
    if block and right.ndim == 2 and right.shape[0] % block == 0:
        for at in range(right.shape[1]):
            pair = _pair(*(array[:, at].reshape(-1, block) for array in (weight.value, right)))
            if pair is not None:
                return f"with blocks {pair[0]} and {pair[1]} of output {at} exchanged"
    return None


def _pair(got: Array, wanted: Array) -> tuple[int, int] | None:
    """Return the only two rows that are not those of their place, if each has the values of the other."""
    wrong = [at for at in range(len(got)) if _sqnr(got[at], wanted[at]) < UNLIKE]
    if len(wrong) != 2 or min(_sqnr(got[a], wanted[b]) for a, b in (wrong, wrong[::-1])) < 2 * UNLIKE:
        return None
    return wrong[0], wrong[1]


def _rows(array: Array, axis: int, size: int) -> Array:
    moved = np.moveaxis(array, axis, 0)
    return moved.reshape(moved.shape[0] // size, -1)


def _place(weight: HeldWeight, excess: Array) -> tuple[str, tuple[Any, ...]]:
    """Return in which channel, and block of it, what is wrong is, in words and as an index; nothing where it is
    everywhere."""
    total = float(excess.sum())
    where: list[Any] = [slice(None)] * excess.ndim
    words = []
    for axis in range(excess.ndim) if excess.ndim > 1 else ():
        sums = excess.sum(tuple(at for at in range(excess.ndim) if at != axis))
        if len(sums) > 1 and total and sums.max() >= MOST * total:
            where[axis] = [int(sums.argmax())]
            words.append(f"place {int(sums.argmax())} of axis {axis}")
            continue
        block = weight.grid.block if weight.grid is not None else 0
        if block and len(sums) > block and total:
            begins = np.add.reduceat(sums, range(0, len(sums), block))
            if begins.max() >= MOST * total:
                first = int(begins.argmax()) * block
                where[axis] = slice(first, first + block)
                words.append(f"block {int(begins.argmax())} of axis {axis}")
    if excess.ndim > 1 and weight.grid is not None and weight.grid.axis is not None and len(words) == 1:
        words = [words[0].replace("place", "channel")]
    return (f", {', '.join(words)}" if words else ""), tuple(where)


def _slips(
    weight: HeldWeight, right: Array, where: tuple[Any, ...], excess: Array
) -> Iterator[tuple[str, float, float]]:
    """Yield what explains a weight, with the factor and the offset of its values beside the original's."""
    value, step = weight.value[where], np.broadcast_to(weight.step, right.shape)[where]
    wanted = right[where]
    signal, apart = float(np.sum(wanted**2)), value - wanted
    if not signal or not excess.any():
        return
    whole = weight.grid is not None
    if not value.any():
        yield "it is zeros, and has other values than in the original", 1.0, 0.0
    factor = float(np.sum(value * wanted)) / float(np.sum(wanted**2))
    typical = float(np.median(step)) if step.size else 0.0
    left = power(value - factor * wanted)
    rounding = typical**2 / 12
    half, slack = 0.51 * step, 0.01 * step

    def nearly_all(holds: Array) -> bool:
        return bool(np.mean(holds) > NEARLY)

    if step.any() and float(np.mean(excess[where] > 0)) > MANY and nearly_all(np.abs(apart) < step + slack):
        if nearly_all(np.abs(value) <= np.abs(wanted) + slack):
            yield "it is truncated towards zero, not rounded to the nearest", 1.0, 0.0
        if nearly_all(value <= wanted + slack):
            yield "it is rounded down (floor), not to the nearest", 1.0, 0.0
        if nearly_all(value >= wanted - slack):
            yield "it is rounded up (as by floor of a negative scale), not to the nearest", 1.0, 0.0
    if whole:
        steps, reach = np.abs(wanted) / step, float((np.abs(value) / step).max())
        beyond = steps > reach + 0.5
        if beyond.any() and nearly_all((np.abs(apart) <= half) | beyond):
            yield f"it is clipped to {reach:.0f} steps, the original's reaches {steps.max():.0f}", 1.0, 0.0
    offset = float(np.median(apart))
    if whole and abs(offset) > 0.6 * typical and power(apart - offset) < max(2 * rounding, 0.05 * power(apart)):
        yield f"its zero point is off by {abs(offset) / typical:.0f}", 1.0, offset
    if whole and _coarse(weight, where) > 1:
        yield f"it takes only every {_coarse(weight, where)}th level, as of fewer bits", 1.0, 0.0
    if whole and abs(factor - 1) > 0.015 and left < max(3 * rounding * max(factor, 1) ** 2, 0.15 * power(apart)):
        yield f"its scale is {factor:.3g} times what fits the original", factor, 0.0
    if not whole and left < 0.05 * power(apart) and abs(factor - 1) > 1e-3:
        yield f"it has other values than in the original, {factor:.3g} times these", 1.0, 0.0


def _coarse(weight: HeldWeight, where: tuple[Any, ...]) -> int:
    """Return the number that all levels are multiples of, beside the first of them."""
    grid = weight.grid
    if grid is None or grid.levels.dtype.kind not in "iuV" or not grid.levels.size:
        return 1
    levels = np.unique(grid.levels.astype(np.int64))
    return math.gcd(*(levels - levels[0]).tolist()) if len(levels) > 2 else 1
