"""Symbolics of operators along axes: sums, norms, statistics, running results, and what depends on order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from more_symbolics.tensor import Tensor, Value, constant_of, joined, promoted, result_dtype, symbolic, where

INFINITY = math.inf

# ---- sums and norms --------------------------------------------------------------------------------------------


@symbolic()
def nansum(x: Tensor, axes: list[int] | None, keep: bool, dtype: Value) -> Tensor:
    return where(x.isnan(), 0, x).to(result_dtype(x)).sum(axes or None, keep)


@symbolic()
def nanmean(x: Tensor, axes: list[int] | None, keep: bool, dtype: Value) -> Tensor:
    (x,) = promoted(x)
    return where(x.isnan(), 0.0, x).sum(axes or None, keep) / (~x.isnan()).count(axes or None, keep).to(x.dtype)


@symbolic()
def count_nonzero(x: Tensor, axes: Value) -> Tensor:
    true = x if x.dtype == torch.bool else ~x.equals(0)
    found = None if axes is None else constant_of(axes)
    return true.count([found] if isinstance(found, int) else found or None)


def _largest(x: Tensor, axes: Sequence[int] | None, keep: bool = False) -> Tensor:
    """Return the largest along axes, NaN where one is, which ReduceMax of runtimes may lose."""
    return where(x.isnan().any(axes, keep), math.nan, x.reduce("ReduceMax", axes, keep))


def norm_of(x: Tensor, p: float, axes: Sequence[int] | None = None, keep: bool = False) -> Tensor:
    if p == 2:
        return (x * x).sum(axes, keep).sqrt()
    size = x.abs()
    if math.isinf(p):
        return _largest(size, axes, keep) if p > 0 else -_largest(-size, axes, keep)
    if p == 0:
        return where(x.equals(0.0), 0.0, x.like(1.0)).sum(axes, keep)
    return size.sum(axes, keep) if p == 1 else (size**p).sum(axes, keep) ** (1 / p)


@symbolic()
def dist(x: Tensor, y: Tensor, p: float) -> Tensor:
    x, y = promoted(x, y)
    return norm_of(x - y, p)


@symbolic(11)
def pdist(x: Tensor, p: float) -> Tensor:
    """Return the distances of all pairs of rows, in the order of an upper triangle."""
    numbers = x.numbered(0)
    pairs = (numbers.unsqueeze(1) < numbers.unsqueeze(0)).op("NonZero")
    return norm_of(x.take(pairs.take(0, 0), 0) - x.take(pairs.take(1, 0), 0), p, [1])


@symbolic()
def renorm(x: Tensor, p: float, axis: int, limit: float) -> Tensor:
    norm = norm_of(x, p, [each for each in x.axes() if each != x.axis(axis)], keep=True)
    return x * where(norm > limit, limit / (norm + 1e-7), 1.0)


@symbolic()
def diff(x: Tensor, times: int, axis: int, before: Tensor | None, after: Tensor | None) -> Tensor:
    axis = x.axis(axis)
    parts = [one for one in (before, x, after) if one is not None]
    x = joined(parts, axis) if len(parts) > 1 else x
    for _ in range(times):
        later, earlier = x.slice(axis, 1), x.slice(axis, 0, -1)
        x = later.op("Xor", earlier) if x.dtype == torch.bool else later - earlier
    return x.op("Identity") if not times else x


def _trapezoids(y: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return the areas between neighbours along an axis; ``x`` are places, or the one distance between them."""
    axis, dtype = y.axis(axis), result_dtype(y, x)
    pairs = (y.slice(axis, 1) + y.slice(axis, 0, -1)).to(dtype) * 0.5
    if not x.rank:
        return pairs * x.to(dtype)
    if x.rank == 1:
        x = x.reshape([-1] + [1] * (y.rank - 1 - axis))
    x = x.at_least(y.rank)
    return pairs * (x.slice(axis, 1) - x.slice(axis, 0, -1)).to(dtype)


@symbolic()
def trapezoid(y: Tensor, x: Tensor, axis: int) -> Tensor:
    return _trapezoids(y, x, axis).sum([axis])


@symbolic()
def trapz(y: Tensor, x: Tensor, axis: int) -> Tensor:
    return _trapezoids(y, x, axis).sum([axis])


@symbolic(11)
def cumulative_trapezoid(y: Tensor, x: Tensor, axis: int) -> Tensor:
    return _trapezoids(y, x, axis).op("CumSum", y.constant(y.axis(axis)))


@symbolic()
def linalg_vecdot(x: Tensor, y: Tensor, axis: int) -> Tensor:
    x, y = promoted(x, y)
    return (x * y).sum([axis])


@symbolic()
def vdot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).to(result_dtype(x)).sum([0])


@symbolic()
def cov(x: Tensor, correction: int, frequencies: Tensor | None, weights: Tensor | None) -> Tensor:
    """Return weighted sums of products of differences from the mean, over what the weights amount to."""
    (x,) = promoted(x)
    return _cov(x, correction, frequencies, weights)


def _cov(x: Tensor, correction: float, frequencies: Tensor | None, weights: Tensor | None) -> Tensor:
    rank = x.rank
    x = x.reshape([1, -1]) if rank < 2 else x
    given = [one.to(x.dtype) for one in (frequencies, weights) if one is not None]
    every = x.like(1.0).expand(x.size(1))
    weight = given[0] * given[1] if len(given) == 2 else given[0] if given else every
    total = weight.sum()
    mean = (x * weight).sum([1], keep=True) / total
    lost = (weight * weights.to(x.dtype)).sum() / total * correction if weights is not None else x.like(correction)
    centred = x - mean
    found = ((centred * weight) @ centred.transpose(0, 1)) / (total - lost).largest_of(0.0)
    return found.reshape([]) if rank < 2 or x.fixed_size(0) == 1 else found


@symbolic(11)
def corrcoef(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    found = _cov(x, 1, None, None)
    if not found.rank:
        return found / found
    numbers = x.numbered(0)
    on = numbers.unsqueeze(0).equals(numbers.unsqueeze(1))
    spread = where(on, found, 0.0).sum([1]).sqrt()
    return (found / spread.unsqueeze(1) / spread.unsqueeze(0)).least_of(1.0).largest_of(-1.0)


# ---- running results, by a triangle: memory grows with the square of the size -----------------------------------


def _triangle(x: Tensor, axis: int, fill: float) -> Tensor:
    """Return at the end an axis of all that stands up to each place of an axis, which is the one before."""
    numbers = x.numbered(axis)
    until = ~(numbers.unsqueeze(0) > numbers.unsqueeze(1))
    return where(until, x.to_end(axis).unsqueeze(x.rank - 1), fill)


@symbolic(11)
def cumprod(x: Tensor, axis: int, dtype: Value) -> Tensor:
    (x,) = promoted(x)
    if not x.rank:
        return x.op("Identity")
    return _triangle(x, axis, 1).reduce("ReduceProd", [-1]).from_end(axis)


@symbolic(11)
def logcumsumexp(x: Tensor, axis: int) -> Tensor:
    if not x.rank:
        return x.op("Identity")
    before = _triangle(x, axis, -INFINITY)
    largest = before.reduce("ReduceMax", [-1], keep=True)
    least = where(largest.isinf(), 0.0, largest)
    return ((before - least).exp().sum([-1], keep=True).log() + least).squeeze(x.rank).from_end(axis)


def _running(x: Tensor, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the largest or least so far, and where its last stands; from a NaN on it is NaN."""
    if not x.rank:
        return x.op("Identity"), x.constant(0)
    before = _triangle(x, axis, -INFINITY if largest else INFINITY)
    extreme = before.reduce("ReduceMax" if largest else "ReduceMin", [-1], keep=True)
    lost = before.isnan()
    alike = where(lost.any([-1], keep=True), lost, before.equals(extreme))
    numbers = x.numbered(axis)
    until = ~(numbers.unsqueeze(0) > numbers.unsqueeze(1))
    last = where(alike & until, numbers, x.constant(-1)).to(torch.int32).reduce("ReduceMax", [-1]).to(torch.int64)
    found = x.to_end(axis).op("GatherElements", last, axis_i=x.rank - 1)
    return found.from_end(axis), last.from_end(axis)


@symbolic(11)
def cummax(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    return _running(x, axis, largest=True)


@symbolic(11)
def cummin(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    return _running(x, axis, largest=False)


# ---- in order --------------------------------------------------------------------------------------------------


def _in_order(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return with an axis at the end a tensor, its values in order with NaN as infinity, and how many are numbers."""
    x = x.to_end(axis) if x.rank else x.reshape([1])
    return x, where(x.isnan(), INFINITY, x).ascending(-1), (~x.isnan()).count([-1], keep=True)


def _at_place(
    x: Tensor, axis: int, keep: bool, place: Callable[[Tensor], Tensor], skips: bool = False
) -> tuple[Tensor, Tensor]:
    """Return what stands at a place in order, and where it first stands. The place follows from how many there are:
    all, or those that are numbers."""
    ends, ordered, numbers = _in_order(x, axis)
    at = place(numbers if skips else ends.size(-1).expand_to(numbers))
    found = ordered.op("GatherElements", at.largest_of(0), axis_i=ends.rank - 1)
    found = where((at < numbers) & ~(at < 0), found, math.nan)
    alike = ends.equals(found) | (ends.isnan() & found.isnan())
    first = alike.to(torch.int32).op("ArgMax", axis_i=ends.rank - 1)
    return _kept(found, x, axis, keep), _kept(first, x, axis, keep)


def _kept(found: Tensor, x: Tensor, axis: int, keep: bool) -> Tensor:
    """Return a result with the axis of size 1 at the end where the axis was, or without it."""
    if not x.rank:
        return found.reshape([])
    return found.from_end(axis) if keep else found.squeeze(found.rank - 1)


def _median(x: Tensor, axis: int | None, keep: bool, skips: bool) -> Tensor | tuple[Tensor, Tensor]:
    """Return the lower one of two in the middle. A NaN is the last in order, and so the median only of NaN; of
    others PyTorch has it be the median."""
    flat = (x.flatten() if axis is None else x).at_least(1)
    found, place = _at_place(flat, axis or 0, keep, lambda count: (count - 1) / 2, skips)
    if not skips:
        is_lost = flat.isnan().any([axis or 0], keep)
        first = flat.isnan().to(torch.int32).op("ArgMax", axis_i=flat.axis(axis or 0), keepdims_i=int(keep))
        found, place = where(is_lost, math.nan, found), where(is_lost, first, place)
    if keep and not x.rank and axis is not None:
        found, place = found.reshape([]), place.reshape([])
    return found if axis is None else (found, place)


@symbolic(11)
def median(x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    return _median(x, axis, keep, skips=False)


@symbolic(11)
def nanmedian(x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    return _median(x, axis, keep, skips=True)


@symbolic(11)
def kthvalue(x: Tensor, number: int, axis: int, keep: bool) -> tuple[Tensor, Tensor]:
    """Return a value by its place in ascending order, where NaN comes last."""
    return _at_place(x, axis, keep, lambda count: count * 0 + (number - 1))


@symbolic(11)
def msort(x: Tensor) -> Tensor:
    if not x.rank:
        return x.op("Identity")
    _, values, count = _in_order(x, 0)
    return where(x.numbered(0).at_most(count - 1), values, math.nan).from_end(0)


@symbolic(11)
def quantile(x: Tensor, q: Tensor, axis: int | None, keep: bool, interpolation: str) -> Tensor:
    return _quantile(x, q, axis, keep, interpolation, skips=False)


@symbolic(11)
def nanquantile(x: Tensor, q: Tensor, axis: int | None, keep: bool, interpolation: str) -> Tensor:
    return _quantile(x, q, axis, keep, interpolation, skips=True)


def _quantile(x: Tensor, q: Tensor, axis: int | None, keep: bool, interpolation: str, skips: bool) -> Tensor:
    """Return values at fractions of the way through all in order; fractions of one dim are the first axis."""
    flat = x.flatten() if axis is None else x
    _, values, count = _in_order(flat, axis or 0)
    last = values.rank - 1
    total = count if skips else values.size(-1)
    rank = q.to(x.dtype).reshape([-1]) * (total - 1).largest_of(0).to(x.dtype)
    if not skips:
        rank = rank.expand(joined([values.shape().slice(0, 0, -1), q.reshape([-1]).shape()], 0))
    rounded = {"lower": "Floor", "higher": "Ceil", "nearest": "Round"}.get(interpolation)
    rank = rank if rounded is None else rank.op(rounded)
    low, high = (values.op("GatherElements", rank.op(end).to(torch.int64), axis_i=last) for end in ("Floor", "Ceil"))
    weight = rank.like(0.5).expand_to(rank) if interpolation == "midpoint" else rank - rank.op("Floor")
    step = high - low
    found = where(weight < 0.5, low + step * weight, high - step * (1.0 - weight))
    found = where(count > 0 if skips else count.equals(values.size(-1)), found, math.nan)
    found = found.to_end(*range(last)) if last else found
    if keep and axis is None:
        found = found.reshape([-1] + [1] * x.rank)
    elif keep and x.rank:
        found = found.unsqueeze(flat.axis(axis) + 1)
    elif not x.rank:
        found = found.flatten()
    return found if q.rank else found.take(0, 0)


@symbolic(11)
def searchsorted(
    ordered: Tensor, x: Tensor, narrow: bool, right: bool, side: str | None, sorter: Tensor | None
) -> Tensor:
    """Return the first of the sorted values that does not lie before each, NaN at the end among them; memory grows
    with the product of both sizes."""
    if sorter is not None:
        ordered = ordered.op("GatherElements", sorter, axis_i=ordered.rank - 1)
    apart = x.unsqueeze(x.rank)
    among = ordered.unsqueeze(ordered.rank - 1) if ordered.rank > 1 else ordered
    after = among > apart if right or side == "right" else (among > apart) | among.equals(apart)
    first = after.to(torch.int32).op("ArgMax", axis_i=-1, keepdims_i=0)
    place = where(after.any([-1]), first, ordered.size(-1).squeeze(0))
    return place.to(torch.int32 if narrow else torch.int64)
