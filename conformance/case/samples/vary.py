"""Vary a sample: give it other sizes and values that PyTorch takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree

from conformance.case.samples.calls import Said
from conformance.process.errors import or_else

LARGER = 3
"""By how much a size that may vary grows: two more than itself is what strides of 2 leave unseen."""
CHANCE = 8
"""Of sizes that are tried at once for all dims, beside the ends of each."""
SCALES = (0.1, 1.0, 10.0, 10.0)
"""Of the normally distributed values that an operator has to take before all values are drawn."""


def outputs_of(call: Callable[..., Any], tensors: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
    seed(number)
    with torch.no_grad():
        given = _pytree.tree_leaves(call(*tensors))
    return [one for one in given if isinstance(one, torch.Tensor)]


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


def seed(number: int) -> None:
    """Set the seeds of all that samples and operators draw from."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def with_dims(
    said: Said, tensors: Sequence[torch.Tensor], call: Callable[..., Any], outputs: Sequence[torch.Tensor]
) -> Said:
    """Return the declaration with a dim in place of each size that PyTorch takes others of, where it gives outputs of
    the same number and ranks: of one axis where that may vary alone, else of the axes at one place of all inputs,
    else of all axes of that size; from 1 on where PyTorch takes 1, else from the sample's own."""
    ranks = [one.dim() for one in outputs]

    def takes(sizes: Mapping[Axis, int]) -> bool:
        return _ranks(call, said, tensors, sizes) == ranks

    dims: list[_Dim] = []
    for together in _groups([tuple(tensor.shape) for tensor in tensors]):
        axes = together - {axis for dim in dims for axis in dim.axes}
        if not any(number == 0 for number, _ in axes):
            continue
        [size] = {tensors[number].shape[axis] for number, axis in axes}
        for low in (1, size):
            wider = [*dims, _Dim(frozenset(axes), size, low)]
            if all(map(takes, _ends(wider))):
                dims = wider
                break
    names = {axis: f"n{number}" for number, dim in enumerate(dims) for axis in dim.axes}
    inputs = {
        name: {
            **entry,
            "type": f"{entry['type'].partition('[')[0]}"
            f"[{', '.join(names.get((number, axis), str(size)) for axis, size in enumerate(tensor.shape))}]",
        }
        for number, ((name, entry), tensor) in enumerate(zip(said["inputs"].items(), tensors, strict=True))
    }
    ranges = {f"n{number}": f"{dim.low}..{dim.size + LARGER}" for number, dim in enumerate(dims)}
    return {**said, "inputs": inputs, "dims": ranges} if ranges else said


Axis = tuple[int, int]
"""The number of a tensor, and of an axis of it."""


class _Dim(NamedTuple):
    """Axes of one size that vary together."""

    axes: frozenset[Axis]
    size: int
    """As the sample has it."""
    low: int


def _groups(shapes: Sequence[tuple[int, ...]]) -> Iterator[frozenset[Axis]]:
    """Yield axes of one size above 1 that may be a dim: each alone, those at one place from the end or from the
    start, and all. An axis of the first tensor is among them: those of weights vary in no model by themselves."""
    axes = [(number, axis) for number, shape in enumerate(shapes) for axis, size in enumerate(shape) if size > 1]
    kinds: tuple[Callable[[int, int], object], ...] = (
        lambda number, axis: (number, axis),
        lambda number, axis: (shapes[number][axis], axis - len(shapes[number])),
        lambda number, axis: (shapes[number][axis], axis),
        lambda number, axis: shapes[number][axis],
    )
    for kind in kinds:
        for first in dict.fromkeys(kind(number, axis) for number, axis in axes if number == 0):
            yield frozenset(each for each in axes if kind(*each) == first)


def _ends(dims: Sequence[_Dim]) -> Iterator[dict[Axis, int]]:
    """Yield all at their least and at their most, each alone at either and one above its own, and some by chance."""
    rng = np.random.default_rng(0)

    def sized(sizes: Iterable[int]) -> dict[Axis, int]:
        return {axis: size for dim, size in zip(dims, sizes, strict=True) for axis in dim.axes}

    yield sized(dim.low for dim in dims)
    yield sized(dim.size + LARGER for dim in dims)
    for one in dims:
        for size in (one.low, one.size + 1, one.size + LARGER):
            yield sized(size if dim is one else dim.size for dim in dims)
    for _ in range(CHANCE):
        yield sized(int(rng.integers(dim.low, dim.size + LARGER, endpoint=True)) for dim in dims)


def _ranks(
    call: Callable[..., Any], said: Said, tensors: Sequence[torch.Tensor], sizes: Mapping[Axis, int]
) -> list[int] | None:
    """Return the ranks of the outputs where sizes are changed so; None where PyTorch raises, or gives no value."""
    shapes = [
        [sizes.get((number, axis), size) for axis, size in enumerate(tensor.shape)]
        for number, tensor in enumerate(tensors)
    ]
    outputs = or_else([], lambda: outputs_of(call, draw_inputs(tensors, said, shapes, 0), 0))
    return [one.dim() for one in outputs] if any(one.numel() for one in outputs) else None


def with_any_values(said: Said, tensors: Sequence[torch.Tensor], call: Callable[..., Any]) -> Said:
    """Return the declaration without ranges of floats, where ordinary numbers of either sign make no NaN."""
    rng = np.random.default_rng(0)
    for scale in SCALES:
        given = [
            _in_order(torch.from_numpy(rng.normal(0, scale, tensor.shape)).to(tensor.dtype), entry)
            if tensor.is_floating_point()
            else tensor.clone()
            for tensor, entry in zip(tensors, said["inputs"].values(), strict=True)
        ]
        outputs = or_else(None, partial(outputs_of, call, given, 0))
        if outputs is None or any(one.isnan().any() for one in outputs):
            return said
    inputs = {
        name: {key: said for key, said in entry.items() if key != "values" or "uniform" not in said}
        for name, entry in said["inputs"].items()
    }
    return {**said, "inputs": inputs}


def draw_inputs(
    tensors: Sequence[torch.Tensor], said: Said, shapes: Sequence[Sequence[int]], number: int
) -> list[torch.Tensor]:
    """Return inputs of these shapes with values of the declared ranges."""
    rng = np.random.default_rng(number)
    return [
        _in_order(torch.from_numpy(_values(rng, entry.get("values"), shape)).to(tensor.dtype), entry)
        for tensor, entry, shape in zip(tensors, said["inputs"].values(), shapes, strict=True)
    ]


def _in_order(tensor: torch.Tensor, entry: Said) -> torch.Tensor:
    return tensor.sort(-1).values if "sorted" in entry else tensor


def _values(rng: np.random.Generator, said: Said | None, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if said is None:  # of a bool, or of a tensor without a finite value
        return rng.integers(0, 2, shape)
    if "padding" in said:
        return np.arange(shape[-1]) < rng.integers(1, shape[-1], (*shape[:-1], 1), endpoint=True)
    if "integers" in said:
        return rng.integers(said["integers"]["low"], said["integers"]["high"], shape, endpoint=True)
    return np.asarray(rng.uniform(said["uniform"]["low"], said["uniform"]["high"], shape))
