"""The weights of a converted file as it holds them: what each stands for, and the grid that it was rounded to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.onnxgraph.reads import Graph, held, initializers, plain

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_BY_CAST = ("float16", "bfloat16")
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "float4_e2m1fn": 6.0}
"""The largest value of each type of floats of few bits."""


@dataclass(frozen=True)
class Grid:
    """Levels with what makes values of them; scale and zero point have the shape of the levels."""

    levels: Array
    scale: Array
    zero: Array
    low: float | Array
    high: float | Array
    dequantized: Callable[[Array], Array]
    """Makes the weight of levels: as floats, in the order of its axes."""
    packed: Callable[[Array], Array]
    """Makes the constant of levels (float64)."""
    unpacked: Callable[[Array], Array]
    """Makes the levels (float64) of the constant."""
    axis: int | None = None
    """Along which axis of the levels the scales lie; None where there is one for all."""
    block: int = 0
    """The number of levels along ``axis`` that have one scale; 0 where each has its own."""
    epsilon: float = 1e-6
    """The share by which the float may be off that was rounded to a level."""

    def value(self, levels: Array) -> Array:
        return self.dequantized((levels - self.zero) * self.scale)

    def turned(self) -> Iterator[tuple[str, Array, Array]]:
        """Yield scales and zero points along other axes of one size, in words and of the shape of the levels."""
        for axis in range(self.levels.ndim):
            if (
                axis != self.axis
                and self.axis is not None
                and self.levels.shape[axis] == self.levels.shape[self.axis]
            ):
                order = [*range(self.levels.ndim)]
                order[axis], order[self.axis] = order[self.axis], order[axis]
                text = f"with its scales along axis {axis} in place of axis {self.axis}"
                yield text, self.scale.transpose(order), self.zero.transpose(order)


@dataclass(frozen=True)
class HeldWeight:
    """A constant of a converted file."""

    name: str
    value: Array
    """The weight that the constant stands for, float64."""
    reader: str
    """The node that reads it."""
    rounded: Callable[[Array, bool], Array]
    """Makes of a weight, float64 of this shape, the constant that is nearest to it of all that it could be; where the
    second argument is true, with the smallest scales that leave nothing out (powers of 2 where they are now), as what
    it then stands for."""
    step: Array
    """The distance of neighbours among what it could hold, at each value; 0 where it holds any float32."""
    grid: Grid | None = None
    """The grid of a quantized weight; None of floats."""

    def nearest(self, right: Array) -> Array:
        """Return what the constant stands for that is nearest to a weight."""
        constant = self.rounded(right, False)
        return constant.astype(np.float64) if self.grid is None else self.grid.value(self.grid.unpacked(constant))

    def widest(self, right: Array) -> Array | None:
        """Return the same with scales that leave nothing out; None where it has none."""
        return None if self.grid is None else self.rounded(right, True)


def held_weights(model: ModelProto) -> Iterator[HeldWeight]:
    """Yield the constants of a model's main graph that are no whole numbers: as floats, or as levels with a scale
    and a zero point beside them (DequantizeLinear, QLinear operators, MatMulInteger, ConvInteger, MatMulNBits)."""
    graph = Graph(model)
    constants = {**initializers(model), **_arrays(held(model.graph.node))}
    done: set[str] = set()
    for node in graph.nodes:
        for grid, name in _grids(graph, node, constants):
            if name not in done:
                done.add(name)
                yield quantized(grid, name, node)
    for name, array in constants.items():
        kind = array.dtype.name
        if name in done or name not in graph.readers or kind not in ("float32", *_BY_CAST):
            continue
        reader = graph.nodes[graph.readers[name][0]]
        with np.errstate(over="ignore", invalid="ignore"):
            value = array.astype(np.float64)
        yield HeldWeight(name, value, _name(reader), partial(_rounded_float, array.dtype), _spacing(value, kind))


def _arrays(tensors: Mapping[str, TensorProto]) -> dict[str, Array]:
    from onnx import numpy_helper

    return {name: numpy_helper.to_array(tensor) for name, tensor in tensors.items()}


def _name(node: NodeProto) -> str:
    return str(node.name or next(filter(None, node.output)))


def _cast(value: Array, dtype: np.dtype[np.generic]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return value.astype(np.float32).astype(dtype)


def _rounded_float(dtype: np.dtype[np.generic], value: Array, wide: bool) -> Array:
    return _cast(value, dtype)


def _spacing(value: Array, kind: str) -> Array:
    """Return how far apart floats of a kind are at each value; 0 of float32."""
    bits, least = {"float16": (10, -14), "bfloat16": (7, -126), "float8_e4m3fn": (3, -6), "float8_e5m2": (2, -14),
                   "float4_e2m1fn": (1, 0), "float32": (0, 0)}[kind]  # fmt: skip
    if not bits:
        return np.zeros(value.shape)
    size = np.where(np.isfinite(value), np.abs(value), 0)
    _, exponent = np.frexp(size)
    apart: Array = np.exp2(np.maximum(np.where(size > 0, exponent - 1, least), least) - bits)
    return apart


def quantized(grid: Grid, name: str, node: NodeProto) -> HeldWeight:
    """Return the constant of a name that a node reads, on a grid."""
    kind, zero = grid.levels.dtype.name, grid.zero
    levels = grid.levels.astype(np.float64)
    if not zero.any() and np.array_equal(grid.low, -grid.high - 1) and levels.min(initial=0) > grid.low:
        grid = replace(grid, low=-grid.high)  # a converter may leave out the lowest level
    powers = bool(np.equal(np.frexp(grid.scale)[0], 0.5).all())
    apart = _spacing(levels, kind) if kind in _LARGEST else np.ones(levels.shape)
    places = np.rint(grid.dequantized(np.arange(levels.size, dtype=np.float64).reshape(levels.shape))).astype(
        np.int64
    )

    def rounded(value: Array, wide: bool) -> Array:
        wanted, scale = np.zeros(levels.shape), grid.scale
        wanted.flat[places.ravel()] = value.ravel()  # in the order of the levels; what fills up a block is 0
        if wide:
            room = np.where(wanted * scale > 0, grid.high - zero, zero - grid.low)
            _, groups = np.unique(scale, return_inverse=True)
            most = np.zeros(int(groups.max(initial=0)) + 1)
            np.maximum.at(most, groups.ravel(), (np.abs(wanted) / np.maximum(room, 1)).ravel())
            scale = np.copysign(np.maximum(most[groups.reshape(levels.shape)], np.abs(scale)), scale)
            scale = np.copysign(np.exp2(np.ceil(np.log2(np.abs(scale)))), scale) if powers else scale
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            exact = np.clip(np.nan_to_num(wanted / scale) + zero, grid.low, grid.high)
            found = _cast(exact, grid.levels.dtype) if kind in _LARGEST else np.rint(exact)
        return grid.dequantized((found - zero) * scale) if wide else grid.packed(found)

    step = grid.dequantized(apart * np.abs(grid.scale))
    return HeldWeight(name, grid.value(levels), _name(node), rounded, step, grid)


# ---- where levels stand --------------------------------------------------------------------------------------


def _grids(graph: Graph, node: NodeProto, constants: Mapping[str, Array]) -> Iterator[tuple[Grid, str]]:
    """Yield the quantized constants that a node reads, each with its name."""
    given = [*node.input]
    if node.op_type == "MatMulNBits":
        if {*filter(None, given[1:4])} <= constants.keys():
            yield _of_bits(node, constants), given[1]
        return
    if node.op_type == "DynamicQuantizeLSTM":
        for place in (1, 2):
            scale, zero = given[6 + 2 * place : 8 + 2 * place]
            if {given[place], scale, zero} <= constants.keys():
                yield from _along(constants[given[place]], constants[scale], constants[zero], 2, given[place])
        return
    if node.op_type in ("MatMulInteger", "ConvInteger"):
        scale = _scale_behind(graph, node, constants)
        if len(given) > 1 and given[1] in constants and scale is not None:
            zero = constants.get(given[3]) if len(given) > 3 else None
            axis = 0 if node.op_type == "ConvInteger" else constants[given[1]].ndim - 1
            yield from _along(constants[given[1]], scale, zero, axis, given[1])
        return
    if node.op_type == "QuantizeLinear" and {*given} <= constants.keys():  # which a DequantizeLinear undoes
        yield from _of_float(node, constants)
        return
    for place, name in enumerate(given):
        source = _gathered(graph, name, constants) if node.op_type == "DequantizeLinear" and place == 0 else name
        following = given[place + 1 : place + 3]
        if source not in constants or not following or following[0] not in constants:
            continue
        levels, scale = constants[source], constants[following[0]]
        if not _holds_levels(levels) or scale.dtype.name not in ("float32", *_BY_CAST):
            continue
        zero = constants.get(following[1]) if len(following) > 1 else None
        if node.op_type == "DequantizeLinear":
            says = {entry.name: plain(entry) for entry in node.attribute}
            axis = says.get("axis", 1) % max(levels.ndim, 1)
            yield from _along(levels, scale, zero, axis, source, says.get("block_size", 0))
        elif zero is not None and zero.dtype == levels.dtype:
            yield from _along(levels, scale, zero, _channels(node, levels.ndim), source)


def _of_float(node: NodeProto, constants: Mapping[str, Array]) -> Iterator[tuple[Grid, str]]:
    """Yield a weight that is kept as floats and quantized when the file runs."""
    value, scale, *rest = (constants[name] for name in node.input)
    if not rest or not _holds_levels(rest[0]) or value.dtype.kind != "f":
        return
    says = {entry.name: plain(entry) for entry in node.attribute}
    empty = np.zeros(value.shape, rest[0].dtype)
    for grid, name in _along(empty, scale, rest[0], says.get("axis", 1) % max(value.ndim, 1), node.input[0]):
        with np.errstate(all="ignore"):
            exact = np.clip(np.nan_to_num(value / grid.scale) + grid.zero, grid.low, grid.high)
        whole = exact if empty.dtype.name in _LARGEST else np.rint(exact)
        levels, back = whole.astype(np.float32).astype(empty.dtype), grid.value

        def packed(array: Array, back: Callable[[Array], Array] = back) -> Array:
            return back(array).astype(value.dtype)

        def unpacked(array: Array, grid: Grid = grid) -> Array:
            found: Array = np.clip(np.rint(array / grid.scale) + grid.zero, grid.low, grid.high)
            return found

        epsilon = 1e-6 if value.dtype == np.float32 else 2.0**-10
        yield replace(grid, levels=levels, packed=packed, unpacked=unpacked, epsilon=epsilon), name


def _holds_levels(array: Array) -> bool:
    return array.dtype.name in (*_LARGEST, *RANGES)


RANGES = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535), "int4": (-8, 7),
    "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3), "int32": (-(2**31), 2**31 - 1),
}  # fmt: skip
"""The lowest and the highest level of a type."""


def _channels(node: NodeProto, rank: int) -> int:
    """Return the axis of the channels of a weight of an operator on whole numbers."""
    says = {entry.name: plain(entry) for entry in node.attribute}
    if node.op_type == "QLinearConv" or says.get("transB"):
        return 0
    return max(rank - 1, 0)


def _gathered(graph: Graph, name: str, constants: Mapping[str, Array]) -> str:
    """Return the table of which a node picks rows before they are dequantized, or the name itself."""
    maker = graph.node_of(name)
    return str(maker.input[0]) if maker is not None and maker.op_type == "Gather" else name


def _scale_behind(graph: Graph, node: NodeProto, constants: Mapping[str, Array]) -> Array | None:
    """Return the scale of a weight that a product of whole numbers is multiplied by: Cast, and Mul by a product of
    the scale with that of the other side."""
    for cast in _readers(graph, node.output[0]):
        for product in _readers(graph, cast.output[0]):
            if product.op_type != "Mul":
                continue
            for name in product.input:
                maker = graph.node_of(name)
                scales = [name] if maker is None else [*maker.input] if maker.op_type == "Mul" else []
                for scale in scales:
                    if scale in constants:
                        return constants[scale]
    return None


def _readers(graph: Graph, name: str) -> list[NodeProto]:
    return [graph.nodes[index] for index in graph.readers.get(name, ())]


def _along(
    levels: Array, scale: Array, zero: Array | None, axis: int, name: str, block: int = 0
) -> Iterator[tuple[Grid, str]]:
    """Yield levels with scales along an axis, for each place of it or for each block of it; nothing where the shapes
    do not fit."""

    def spread(array: Array) -> Array | None:
        wide = array.astype(np.float64)
        if array.size == 1:
            return np.broadcast_to(wide.reshape(()), levels.shape)
        if block:
            wide = np.repeat(wide, block, axis)
            wide = np.take(wide, range(min(wide.shape[axis], levels.shape[axis])), axis)
            return wide if wide.shape == levels.shape else None
        if array.size != levels.shape[axis]:
            return None
        return np.broadcast_to(wide.reshape([-1 if at == axis else 1 for at in range(levels.ndim)]), levels.shape)

    scales, zeros = spread(scale), spread(np.zeros(1) if zero is None else zero)
    if scales is None or zeros is None:
        return
    kind = levels.dtype.name
    low, high = RANGES.get(kind, (-_LARGEST.get(kind, 0.0), _LARGEST.get(kind, 0.0)))
    along = axis if scale.size > 1 else None

    def packed(array: Array) -> Array:
        return _cast(array, levels.dtype) if kind in _LARGEST else array.astype(np.int64).astype(levels.dtype)

    yield Grid(levels, scales, zeros, low, high, np.asarray, packed, _wide, along, block), name


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _of_bits(node: NodeProto, constants: Mapping[str, Array]) -> Grid:
    """Return the weight of a MatMulNBits: of each output blocks of packed levels, the lowest bits first."""
    says = {entry.name: plain(entry) for entry in node.attribute}
    bits, block, outputs, inputs = says.get("bits", 4), says["block_size"], says["N"], says["K"]
    blocks = -(-inputs // block)

    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    constant = constants[node.input[1]]

    def unpacked(array: Array) -> Array:
        parts = (array.reshape(outputs, -1, 1) >> shifts) & np.uint8(2**bits - 1)
        return parts.reshape(outputs, -1)

    def packed(array: Array) -> Array:
        parts = array.astype(np.uint8).reshape(outputs, -1, len(shifts)) << shifts
        found: Array = np.bitwise_or.reduce(parts, -1).reshape(constant.shape)
        return found

    zero: Array = np.full((outputs, blocks), 2.0 ** (bits - 1))
    if len(node.input) > 3 and node.input[3]:
        given = constants[node.input[3]]
        zero = (unpacked(given)[:, :blocks] if given.dtype == np.uint8 else given).astype(np.float64)
    scale = constants[node.input[2]].astype(np.float64)
    scale, zero = (np.repeat(array.reshape(outputs, blocks), block, 1) for array in (scale, zero))
    return Grid(
        unpacked(constant), scale, zero, 0, 2**bits - 1, lambda array: array[:, :inputs].T, packed,
        lambda array: unpacked(array).astype(np.float64), 1, block,
    )  # fmt: skip


def standing_for(
    weights: Sequence[HeldWeight], original: ModelProto
) -> Iterator[tuple[HeldWeight, str, Array, tuple[int, ...]]]:
    """Yield each weight with the name of the float constant of the original that it stands for, its values (float64,
    of the weight's shape) and the order of axes that makes the original's of these.

    Converters keep the original's name, or put something before or behind it.
    """
    known = {name: array for name, array in {**initializers(original), **_arrays(held(original.graph.node))}.items()
             if array.dtype == np.float32}  # fmt: skip
    longest = sorted(known, key=len, reverse=True)
    for weight in weights:
        name = next((name for name in longest if _is_of(name, weight.name)), None)
        if name is None:
            continue
        right, forward = known[name].astype(np.float64), tuple(range(known[name].ndim))
        turned = (*forward[:-2], *forward[-2:][::-1])
        transposed = "_Transposed" in weight.name or right.shape != weight.value.shape
        for order in (turned, forward) if transposed else (forward,):
            if right.transpose(order).shape == weight.value.shape:
                yield weight, name, right.transpose(order), order
                break


def _is_of(name: str, longer: str) -> bool:
    """Return whether a name is the other one, or that with something before or behind it."""
    if not name:
        return False
    before, found, behind = longer.partition(name)
    return bool(found) and (not before or before[-1] in "_./:") and (not behind or behind[0] in "_./:")
