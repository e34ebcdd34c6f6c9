"""Symbolics of operators that arrange elements: copies, stacks, parts, and orders."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import torch

from more_symbolics.tensor import Tensor, Value, constant_of, fixed_size_of, joined, promoted, symbolic

# ---- copies, and views ----------------------------------------------------------------------------------------


@symbolic()
def alias_copy(x: Tensor) -> Tensor:
    return x.op("Identity")


@symbolic()
def expand_copy(x: Tensor, sizes: Value, implicit: Value) -> Tensor:
    return x.aten("expand", sizes, implicit)


@symbolic()
def view_copy(x: Tensor, sizes: Value) -> Tensor:
    return x.aten("view", sizes)


@symbolic()
def permute_copy(x: Tensor, axes: list[int]) -> Tensor:
    return x.permute(axes)


@symbolic()
def transpose_copy(x: Tensor, one: int, other: int) -> Tensor:
    return x.transpose(one, other)


@symbolic()
def t_copy(x: Tensor) -> Tensor:
    return x.transpose(0, 1) if x.rank == 2 else x.op("Identity")


@symbolic()
def mT(x: Tensor) -> Tensor:
    return x.transpose(-2, -1)


@symbolic()
def mH(x: Tensor) -> Tensor:
    return x.transpose(-2, -1)


@symbolic()
def matrix_H(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


@symbolic()
def unsqueeze_copy(x: Tensor, axis: int) -> Tensor:
    return x.unsqueeze(axis % (x.rank + 1))


@symbolic()
def squeeze_copy(x: Tensor, axes: Value = None) -> Tensor:
    """Drop axes of size 1, which have to be of a fixed size: whether it is 1 decides on the rank of the result."""
    asked = x.axes() if axes is None else constant_of(axes)
    asked = [asked] if isinstance(asked, int) else asked
    single = [x.axis(axis) for axis in asked if x.rank and x.fixed_size(x.axis(axis)) == 1]
    return x.squeeze(*sorted(set(single))) if single else x.op("Identity")


@symbolic()
def ravel(x: Tensor) -> Tensor:
    return x.flatten()


@symbolic()
def narrow_copy(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    axis = x.axis(axis)
    return x.slice(axis, start, start + length) if start >= 0 else x.slice(axis, start).slice(axis, 0, length)


@symbolic()
def as_strided_copy(x: Tensor, sizes: list[int], strides: list[int], offset: int | None) -> Tensor:
    return x.flatten().take(strided(sizes, strides, offset), 0)


def strided(sizes: Sequence[int], strides: Sequence[int], offset: int | None) -> list[int]:
    """Return the places in memory of what a strided view has, nested as the view is."""
    places = torch.arange(1) + (offset or 0)
    for size, stride in zip(sizes, strides, strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return places.reshape(list(sizes)).tolist()


@symbolic(11)
def unfold_copy(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Return windows along an axis as a new last axis."""
    axis = x.axis(axis)
    if not x.rank:
        return x.unsqueeze(0)
    count = (x.size(axis) - size) / step + 1
    starts = x.constant(0).op("Range", count.squeeze(0), x.constant(1)) * step
    places = starts.unsqueeze(1) + x.constant(list(range(size)))
    return x.take(places, axis).to_end(axis + 1)


# ---- parts -----------------------------------------------------------------------------------------------------


def _at(x: Tensor, axis: int, places: Sequence[int]) -> list[Tensor]:
    """Return the parts between places along an axis."""
    ends = [*places, None]
    return [
        x.slice(axis, start) if end is None else x.slice(axis, start, end)
        for start, end in zip([0, *places], ends, strict=True)
    ]


def _equal(x: Tensor, axis: int, count: int) -> list[Tensor]:
    """Return so many parts of one size."""
    size = x.size(axis) / count
    return [x.slice(axis, size * number, size * (number + 1)) for number in range(count)]


def _parts(x: Tensor, axis: int, places: Value) -> list[Tensor]:
    said = constant_of(places)
    return _equal(x, axis, said) if isinstance(said, int) else _at(x, axis, said)


@symbolic(10)
def hsplit(x: Tensor, sections: Value) -> list[Tensor]:
    return _parts(x, 0 if x.rank == 1 else 1, sections)


@symbolic(10)
def vsplit(x: Tensor, sections: Value) -> list[Tensor]:
    return _parts(x, 0, sections)


@symbolic(10)
def dsplit(x: Tensor, sections: Value) -> list[Tensor]:
    return _parts(x, 2, sections)


@symbolic()
def split_with_sizes_copy(x: Tensor, sizes: list[int], axis: int) -> list[Tensor]:
    ends = [sum(sizes[: count + 1]) for count in range(len(sizes))]
    return [x.slice(axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]


@symbolic()
def unbind_copy(x: Tensor, axis: int) -> list[Tensor]:
    """Return the parts of a fixed size: it says how many there are."""
    return [x.take(number, axis) for number in range(fixed_size_of(x, axis))]


# ---- order -----------------------------------------------------------------------------------------------------


def _reversed(x: Tensor, *axes: int) -> Tensor:
    for axis in axes:
        x = x.slice(axis, -1, -(2**63), -1)
    return x


@symbolic(10)
def fliplr(x: Tensor) -> Tensor:
    return _reversed(x, 1)


@symbolic(10)
def flipud(x: Tensor) -> Tensor:
    return _reversed(x, 0)


@symbolic(10)
def rot90(x: Tensor, turns: int, axes: list[int]) -> Tensor:
    first, second = axes
    turns %= 4
    if turns == 2:
        return _reversed(x, first, second)
    if turns:
        x = _reversed(x, second if turns == 1 else first).transpose(first, second)
    return x.op("Identity")


def _rolled(x: Tensor, axes: list[int] | None, back: bool) -> Tensor:
    for axis in x.axes() if axes is None else axes:
        half = x.size(axis) / 2
        start = half if back else x.size(axis) - half
        x = joined([x.slice(axis, start), x.slice(axis, 0, start)], x.axis(axis))
    return x


@symbolic(10)
def fft_fftshift(x: Tensor, axes: list[int] | None) -> Tensor:
    return _rolled(x, axes, back=False)


@symbolic(10)
def fft_ifftshift(x: Tensor, axes: list[int] | None) -> Tensor:
    return _rolled(x, axes, back=True)


@symbolic()
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    sizes = x.shape()
    apart = joined([sizes.slice(0, 0, 1), x.constant([groups, -1]), sizes.slice(0, 2)], 0)
    return x.reshape(apart).transpose(1, 2).reshape(sizes)


# ---- stacks and products ---------------------------------------------------------------------------------------


@symbolic()
def column_stack(tensors: list[Tensor]) -> Tensor:
    columns = [one.reshape([-1, 1]) if one.rank < 2 else one for one in promoted(*tensors)]
    return joined(columns, 1)


@symbolic()
def dstack(tensors: list[Tensor]) -> Tensor:
    return joined([_of_three_axes(one) for one in promoted(*tensors)], 2)


def _of_three_axes(x: Tensor) -> Tensor:
    return x.reshape([1, -1, 1]) if x.rank < 2 else x.unsqueeze(2) if x.rank == 2 else x


@symbolic(11)
def block_diag(tensors: list[Tensor]) -> Tensor:
    blocks = [one.at_least(2) for one in promoted(*tensors)]
    rows = []
    for block in blocks:
        zeros = [block.like(0).expand([block.size(0), other.size(1)]) for other in blocks]
        rows.append(joined([block if one is block else zero for one, zero in zip(blocks, zeros, strict=True)], 1))
    return joined(rows, 0)


def _grids(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of one dim, each along an axis of its own, expanded over those of the others."""
    rank = len(tensors)
    lined = [
        one.unsqueeze(*(axis for axis in range(rank) if axis != number)) if rank > 1 else one
        for number, one in enumerate(tensors)
    ]
    sizes = joined([one.shape() for one in tensors], 0)
    return [one.expand(sizes) for one in lined]


@symbolic()
def cartesian_prod(tensors: list[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return tensors[0].op("Identity")
    return joined([one.reshape([-1, 1]) for one in _grids([one.reshape([-1]) for one in tensors])], 1)


@symbolic(11)
def combinations(x: Tensor, count: int, with_replacement: bool) -> Tensor:
    """Return all choices of so many, in the order of their places: those of a grid whose places ascend."""
    grids = _grids([x.numbered(0)] * count)
    ascend = [one.at_most(other) if with_replacement else one < other for one, other in itertools.pairwise(grids)]
    if not ascend:
        return x.unsqueeze(1)
    return x.take(functools.reduce(Tensor.__and__, ascend).op("NonZero").transpose(0, 1), 0)
