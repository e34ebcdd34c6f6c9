"""Symbolics of operators that are about places: diagonals, what is scattered into others, and where elements are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from more_symbolics.arrays import strided
from more_symbolics.tensor import ALL, Tensor, joined, result_dtype, symbolic, where

# ---- diagonals -------------------------------------------------------------------------------------------------


def _on_diagonal(rows: Tensor, columns: Tensor, offset: int) -> Tensor:
    """Return where numbers of rows and columns are those of a diagonal."""
    return columns.unsqueeze(0).equals(rows.unsqueeze(1) + offset)


def _along(x: Tensor, offset: int, size: Tensor) -> Tensor:
    """Return the last axis of a tensor of diagonals as rows or columns of matrices of this size, zeros behind it."""
    sizes = joined([x.shape().slice(0, 0, -1), size - x.size(-1)], 0)
    found = joined([x, x.like(0).expand(sizes)], x.rank - 1)
    return found.unsqueeze(x.rank) if offset >= 0 else found.unsqueeze(x.rank - 1)


def _embedded(x: Tensor, offset: int) -> Tensor:
    """Return a diagonal as matrices of zeros with it, in two axes at the end."""
    size = x.size(-1) + abs(offset)
    numbers = x.constant(0).op("Range", size.squeeze(0), x.constant(1))
    return where(_on_diagonal(numbers, numbers, offset), _along(x, offset, size), x.like(0))


def _diagonal(x: Tensor, offset: int, one: int, other: int) -> Tensor:
    """Return a diagonal of two axes as a new last axis."""
    x = x.to_end(one, other)
    rows, columns = x.size(-2), x.size(-1)
    length = (rows + min(offset, 0)).least_of(columns - max(offset, 0)).largest_of(0)
    steps = x.constant(0).op("Range", length.squeeze(0), x.constant(1))
    places = steps * (columns + 1) + (columns * -offset if offset < 0 else offset)
    flat = x.reshape(joined([x.shape().slice(0, 0, -2), rows * columns], 0))
    return flat.take(places, -1)


@symbolic(11)
def diag_embed(x: Tensor, offset: int, one: int, other: int) -> Tensor:
    one, other = one % (x.rank + 1), other % (x.rank + 1)
    return _embedded(x, offset).from_end(one, other)


@symbolic(11)
def diag(x: Tensor, offset: int) -> Tensor:
    return _embedded(x, offset) if x.rank == 1 else _diagonal(x, offset, 0, 1)


@symbolic(11)
def diagflat(x: Tensor, offset: int) -> Tensor:
    return _embedded(x.flatten(), offset)


@symbolic(11)
def diagonal_copy(x: Tensor, offset: int, one: int, other: int) -> Tensor:
    return _diagonal(x, offset, one, other)


@symbolic(11)
def linalg_diagonal(x: Tensor, offset: int, one: int, other: int) -> Tensor:
    return _diagonal(x, offset, one, other)


@symbolic(11)
def trace(x: Tensor) -> Tensor:
    return _diagonal(x, 0, 0, 1).to(result_dtype(x)).sum([0])


@symbolic(11)
def diagonal_scatter(x: Tensor, new: Tensor, offset: int, one: int, other: int) -> Tensor:
    ends = x.to_end(one, other)
    lined = _along(new, offset, ends.size(-2 if offset >= 0 else -1))
    return where(_on_diagonal(ends.numbered(-2), ends.numbered(-1), offset), lined, ends).from_end(one, other)


# ---- into other tensors ----------------------------------------------------------------------------------------


@symbolic(11)
def as_strided_scatter(x: Tensor, new: Tensor, sizes: list[int], strides: list[int], offset: int | None) -> Tensor:
    places = x.constant(torch.tensor(strided(sizes, strides, offset)).flatten().tolist())
    return x.flatten().op("ScatterElements", places, new.flatten(), axis_i=0).reshape(x.shape())


@symbolic(11)
def take_along_dim(x: Tensor, places: Tensor, axis: int | None) -> Tensor:
    """Return what stands at places along an axis, which go round at both ends as PyTorch has it."""
    if axis is None:
        x, places, axis = x.flatten(), places.flatten(), 0
    axis = x.axis(axis)
    places = places.op("Mod", x.size(axis))
    rest = [each for each in x.axes() if each != axis]
    sizes = [x.size(each).largest_of(places.size(each)) for each in rest]
    sizes.insert(axis, places.size(axis))
    own = [*sizes]
    own[axis] = x.size(axis)
    return x.expand(own).op("GatherElements", places.expand(sizes), axis_i=axis)


@symbolic(16)
def put(x: Tensor, places: Tensor, new: Tensor, accumulate: bool) -> Tensor:
    said = {"reduction_s": "add"} if accumulate else {}
    flat = x.flatten().op("ScatterElements", places.flatten(), new.flatten(), axis_i=0, **said)
    return flat.reshape(x.shape())


@symbolic(11)
def select_scatter(x: Tensor, new: Tensor, axis: int, place: int) -> Tensor:
    axis = x.axis(axis)
    count = x.size(axis) if place < 0 else 0
    chosen = x.numbered(axis).equals(count + place if place < 0 else place)
    return where(_lying(chosen, axis, x.rank), new.unsqueeze(axis), x)


@symbolic(11)
def slice_scatter(x: Tensor, new: Tensor, axis: int, start: int | None, end: int | None, step: int) -> Tensor:
    """Replace a slice: its places along the axis, as the same slice of all places has them."""
    axis = x.axis(axis)
    places = x.numbered(axis).slice(0, start or 0, ALL if end is None else end, step)
    lying = _lying(places, axis, x.rank).expand_to(new)
    return x.op("ScatterElements", lying, new, axis_i=axis)


def _lying(x: Tensor, axis: int, rank: int) -> Tensor:
    """Return a tensor of one dim along an axis of so many."""
    others = [each for each in range(rank) if each != axis]
    return x.unsqueeze(*others) if others else x


@symbolic(18)
def index_reduce(x: Tensor, axis: int, places: Tensor, new: Tensor, reduce: str, include_self: bool) -> Tensor:
    """Reduce rows into others; where they do not count themselves, what they are reduced into is neutral."""
    if not x.rank:
        return _reduced_into(x.reshape([1]), 0, places, new.reshape([1]), reduce, include_self).reshape([])
    return _reduced_into(x, x.axis(axis), places, new, reduce, include_self)


def _reduced_into(x: Tensor, axis: int, places: Tensor, new: Tensor, reduce: str, include_self: bool) -> Tensor:
    lying = _lying(places.flatten(), axis, x.rank).expand_to(new)
    counted = x.like(0.0).expand_to(x).op("ScatterElements", lying, x.like(1.0).expand_to(new), axis_i=axis,
                                          reduction_s="add")  # fmt: skip
    neutral = {"prod": 1.0, "mean": 0.0, "amax": -float("inf"), "amin": float("inf")}[reduce]
    base = x if include_self else where(counted > 0.0, x.like(neutral), x)
    kind = {"prod": "mul", "mean": "add", "amax": "max", "amin": "min"}[reduce]
    found = base.op("ScatterElements", lying, new, axis_i=axis, reduction_s=kind)
    if reduce == "mean":
        return found / (counted + 1.0 if include_self else counted.largest_of(1.0))
    lost = where(new.isnan(), new.like(1.0), 0.0)  # which runtimes may lose among larger and smaller ones
    lost = where(base.isnan(), x.like(1.0), 0.0).op("ScatterElements", lying, lost, axis_i=axis, reduction_s="add")
    return found if reduce == "prod" else where(lost > 0.0, math.nan, found)


@symbolic(11)
def max_unpool2d(x: Tensor, places: Tensor, sizes: list[int]) -> Tensor:
    return _unpooled(x, places, sizes)


@symbolic(11)
def max_unpool3d(x: Tensor, places: Tensor, sizes: list[int], stride: list[int], padding: list[int]) -> Tensor:
    return _unpooled(x, places, sizes)


def _unpooled(x: Tensor, places: Tensor, sizes: Sequence[int]) -> Tensor:
    rank = x.rank - len(sizes)
    before = x.shape().slice(0, 0, rank)
    together = joined([before, x.constant([-1])], 0)
    empty = x.like(0).expand(joined([before, x.constant([math.prod(sizes)])], 0))
    filled = empty.op("ScatterElements", places.reshape(together), x.reshape(together), axis_i=rank)
    return filled.reshape(joined([before, x.constant(list(sizes))], 0))


@symbolic()
def argwhere(x: Tensor) -> Tensor:
    true = x if x.dtype == torch.bool else ~x.equals(0)
    places = (true if x.rank else true.reshape([1])).op("NonZero").transpose(0, 1)
    return places if x.rank else places.slice(1, 0, 0)


@symbolic()
def isin(x: Tensor, among: Tensor, assume_unique: bool, invert: bool) -> Tensor:
    found = x.unsqueeze(x.rank).equals(among.flatten()).any([-1])
    return ~found if invert else found


@symbolic()
def sum_to_size(x: Tensor, sizes: list[int]) -> Tensor:
    """Sum over what was broadcast: axes in front, and those of size 1 that are not so here."""
    x = x.to(result_dtype(x))
    front = x.rank - len(sizes)
    x = x.sum(list(range(front))) if front else x
    single = [axis for axis, size in enumerate(sizes) if size == 1]
    return x.sum(single, keep=True) if single else x.op("Identity")
