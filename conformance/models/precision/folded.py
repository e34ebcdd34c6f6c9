"""Weights in few bits that an export has multiplied out to floats, so that no operator of the file tells of them.

Such a weight differs from the original's, and lies on a grid: all values of a tensor, a channel or a block are whole
multiples of one number. Of 8 values or more that is no chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from conformance.models.precision.held_weights import RANGES, Grid, HeldWeight, quantized
from conformance.process.arrays import Array
from conformance.runtimes.onnxgraph.mapped import MappedModel
from conformance.runtimes.onnxgraph.reads import Graph, held, plain

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_READS = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1, "Gather": 0}
"""The place of the weight among the inputs of an operator."""
_STEPS = {"Cast", "Reshape", "Transpose", "Mul", "Sub"}
"""Operators that make the weight of its levels as the file runs."""
_BLOCKS = (256, 128, 64, 32, 16, 8)
_FEWEST = 8
"""Values that have one scale; fewer lie on a grid of 255 levels by chance."""
_MOST = 255
"""Steps from 0 to the furthest level: of 8 bits with a zero point at one end."""
_NEAR = 1e-3
"""Steps that float32 may leave a value beside its level."""
_SAMPLE = 4096
"""Values by which a weight is recognized."""
_ALIKE = 0.8
"""The share of values that have the sign of the original's: half of random ones do, and nearly all of rounded ones,
whatever their scales."""


class Stand(NamedTuple):
    """A weight with the constant of the original that it stands for, its values (float64, of the weight's shape) and
    the order of axes that makes the original's of these."""

    weight: HeldWeight
    name: str
    right: Array
    order: tuple[int, ...]


def folded_precision(original: MappedModel, converted: MappedModel) -> str | None:
    """Return the precision in which every weight of a product is that is not the original's; None where all are the
    original's, or one is neither."""
    found = [*folded_weights(original, converted)]
    if not found or None in found:
        return None
    grids = [one.weight.grid for one in found if one is not None and one.weight.grid is not None]
    levels = max(float(np.max(grid.high - grid.low)) for grid in grids) + 1
    return "int2" if levels <= 4 else "int4" if levels <= 16 else "int8"


def folded_weights(original: MappedModel, converted: MappedModel) -> Iterator[Stand | None]:
    """Yield the weights of products that are multiplied out, each beside the original's; None for one that is neither
    that nor the original's. Those that operators quantize or dequantize are left out."""
    known = {name: array for name, array in _constants(original).items()
             if array.dtype == np.float32 and array.ndim > 1}  # fmt: skip
    taken: set[str] = set()
    for read in _all_read(converted.model, _constants(converted)):
        if not read.steps and any(_same(read.constant, right) for _, _, right in _turned(known, read.shape)):
            continue
        stand = _standing_for(read, known)
        on_grid = None if stand is None or stand.name in taken else _on_grid(read.value)
        if stand is None or on_grid is None or _scales(_rows(stand.right, on_grid[0])) is not None:
            yield None
        else:
            taken.add(stand.name)
            yield stand._replace(weight=quantized(read.on(*on_grid), read.name, read.node))


def _constants(of: MappedModel) -> Mapping[str, Array]:
    from onnx import numpy_helper

    tensors = {tensor.name: tensor for tensor in of.model.graph.initializer} | held(of.model.graph.node)
    return {name: of.weights[name] if name in of.weights else numpy_helper.to_array(one)
            for name, one in tensors.items()}  # fmt: skip


@dataclass(frozen=True)
class _Read:
    """A constant as a product reads it: through operators that make floats of it, with a scale behind the product."""

    name: str
    node: NodeProto
    steps: tuple[tuple[NodeProto, int], ...]
    """The operators from the constant on, each with the place at which it reads what is behind."""
    behind: Array
    """A factor of the product, beside the weight; 1 for nothing."""
    constants: Mapping[str, Array]

    def made(self, array: Array, *, scaled: bool = True) -> Array:
        """Return the weight (float64) that values in place of the constant make, or, unless ``scaled``, these in its
        order."""
        found = array.astype(np.float64)
        for node, place in self.steps:
            other = self.constants[node.input[1 - place]] if len(node.input) > 1 else None
            if node.op_type == "Reshape" and other is not None:
                found = found.reshape(other.astype(np.int64))
            elif node.op_type == "Transpose":
                found = found.transpose(next((plain(one) for one in node.attribute), None))
            elif other is not None and scaled:
                found = found * other if node.op_type == "Mul" else (found - other) * (1 if place == 0 else -1)
        return found * self.behind if scaled else found

    @property
    def constant(self) -> Array:
        return self.constants[self.name]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.made(np.zeros(self.constant.shape), scaled=False).shape if self.steps else self.constant.shape

    @cached_property
    def value(self) -> Array:
        return self.made(self.constant)

    def on(self, groups: Array, scale: Array, axis: int | None, block: int) -> Grid:
        """Return the grid of the weight, each value in a group that has a scale."""
        constant = self.constant
        moved = self.made(np.zeros(constant.shape))
        grown = self.made(np.ones(constant.shape)) - moved
        places = self.made(np.arange(constant.size).reshape(constant.shape), scaled=False).astype(np.int64)
        wide = scale[groups]
        levels = np.rint(self.value / wide).astype(np.int64)

        def packed(array: Array) -> Array:
            found = np.zeros(constant.size)
            found[places.ravel()] = ((array * wide - moved) / grown).ravel()
            if constant.dtype.name in RANGES:
                found = np.clip(np.rint(found), *RANGES[constant.dtype.name])
            return found.reshape(constant.shape).astype(constant.dtype)

        low, high = np.zeros((2, len(scale)))
        np.minimum.at(low, groups, levels)
        np.maximum.at(high, groups, levels)
        zero = np.zeros(levels.shape)
        return Grid(levels, wide, zero, low[groups], high[groups], np.asarray, packed,
                    lambda array: self.made(array) / wide, axis, block)  # fmt: skip


def _all_read(model: ModelProto, constants: Mapping[str, Array]) -> Iterator[_Read]:
    """Yield the constants of two axes and more that products read as their weights, each once."""
    graph = Graph(model)
    done: set[str] = set()
    for node in graph.nodes:
        place = _READS.get(node.op_type, len(node.input))
        if place >= len(node.input):
            continue
        name, steps = node.input[place], []
        while name not in constants and (maker := graph.node_of(name)) is not None and maker.op_type in _STEPS:
            at = next((at for at, one in enumerate(maker.input) if one not in constants), 0)
            if not {*maker.input[:at], *maker.input[at + 1 :]} <= constants.keys():
                break
            steps.append((maker, at))
            name = maker.input[at]
        if name in done or name not in constants:
            continue
        done.add(name)
        read = _Read(name, node, tuple(steps[::-1]), np.ones(()), constants)
        if len(read.shape) > 1 and (steps or constants[name].dtype == np.float32):
            yield replace(read, behind=_behind(graph, node, read.shape, constants))


def _behind(graph: Graph, node: NodeProto, shape: tuple[int, ...], constants: Mapping[str, Array]) -> Array:
    """Return what a product is multiplied by, in the shape of its weight's channels; 1 for nothing."""
    readers = [graph.nodes[at] for at in graph.readers.get(node.output[0], ())]
    if node.op_type not in ("MatMul", "Gemm") or len(node.input) > 2 or [one.op_type for one in readers] != ["Mul"]:
        return np.ones(())
    scale = next((constants[name] for name in readers[0].input if name in constants), np.ones(()))
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    if scale.size not in (1, shape[0 if turned else -1]) or scale.size not in (1, *scale.shape[-1:]):
        return np.ones(())
    return scale.reshape(-1, 1).astype(np.float64) if turned else scale.reshape(-1).astype(np.float64)


def _turned(known: Mapping[str, Array], shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...], Array]]:
    """Yield the weights of a shape, or of it with its last axes exchanged, and the order of axes that gives it."""
    for name, array in known.items():
        forward = tuple(range(array.ndim))
        for order in {forward, (*forward[:-2], *forward[-2:][::-1])}:
            if array.transpose(order).shape == shape:
                yield name, order, array.transpose(order)


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one.flat[:_SAMPLE], other.flat[:_SAMPLE])


def _standing_for(read: _Read, known: Mapping[str, Array]) -> Stand | None:
    """Return the weight of the original that is most like one by the signs of its values."""
    best, most = None, _ALIKE
    value = read.value.flat[:_SAMPLE]
    given = value != 0
    for name, order, right in _turned(known, read.shape):
        alike = float(np.mean(np.sign(value) == np.sign(right.flat[:_SAMPLE]), where=given)) if given.any() else 0.0
        if alike > most:
            best, most = (name, right, order), alike
    return None if best is None else Stand(_NOT_YET, best[0], best[1].astype(np.float64), best[2])


_NOT_YET = HeldWeight("", np.zeros(0), "", lambda value, wide: value, np.zeros(0))


# ---- the grid of values ----------------------------------------------------------------------------------------


def _on_grid(value: Array) -> tuple[Array, Array, int | None, int] | None:
    """Return the number of the group at each value, the scale of each group, along which axis these lie and in blocks
    of how many (0 for none), of the largest groups whose values are all whole multiples of a scale; None where there
    are none."""
    for groups, axis, block in _groupings(value.shape):
        rows = _rows(value, groups)
        if rows.shape[1] >= _FEWEST and (scale := _scales(rows)) is not None:
            return groups, scale, axis, block
    return None


def _rows(value: Array, groups: Array) -> Array:
    return value.ravel()[np.argsort(groups, axis=None, kind="stable")].reshape(int(groups.max()) + 1, -1)


def _groupings(shape: tuple[int, ...]) -> Iterator[tuple[Array, int | None, int]]:
    yield np.zeros(shape, np.int64), None, 0
    places = np.indices(shape, sparse=True)
    for axis in range(len(shape)):
        yield np.broadcast_to(places[axis], shape), axis, 0
    for block in _BLOCKS if len(shape) == 2 else ():
        for axis in range(2):
            if shape[axis] % block == 0 and shape[axis] > block:
                yield places[axis] // block + places[1 - axis] * (shape[axis] // block), axis, block


def _scales(rows: Array) -> Array | None:
    """Return the largest number for each row of which its values are whole multiples, at most 255 times it."""
    most, scale = np.abs(rows).max(1), np.ones(len(rows))
    some = (most[:4, None] / np.arange(1, _MOST + 1))[:, :, None]  # of a few values, to be done with most weights
    with np.errstate(invalid="ignore"):
        if not (_whole(rows[:4, None, :64] / some).any(1) | (most[:4] == 0)).all():
            return None
    left = np.flatnonzero(most)
    for steps in range(1, _MOST + 1):
        tried = most[left] / steps
        fits = _whole(rows[left, :64] / tried[:, None])
        fits[fits] = _whole(rows[left[fits]] / tried[fits, None])
        scale[left[fits]] = tried[fits]
        left = left[~fits]
        if not left.size:
            return scale
    return None


def _whole(values: Array) -> Array:
    found: Array = (np.abs(values - np.rint(values)) < _NEAR).all(-1)
    return found
