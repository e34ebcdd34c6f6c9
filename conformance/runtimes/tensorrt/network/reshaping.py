"""Layers that move values without computing any: constants, shapes, slices, gathers, scatters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.tensorrt.network.layer_call import FP8_MOST, LayerCall, array_of
from conformance.runtimes.tensorrt.network.pointwise import Compute


def constant(call: LayerCall) -> Array:
    (made,) = call.outputs
    weights = call.says("weights")
    if not isinstance(weights, np.ndarray):
        raise call.uncovered(f"weights in {made.dtype}")
    return array_of(weights, made.dtype, call.says("shape"))


def identity(call: LayerCall) -> Array:
    return call[0]


def shape(call: LayerCall) -> Array:
    return np.asarray(call[0].shape, dtype=np.int64)


def shuffle(call: LayerCall) -> Array:
    """Transpose, reshape and transpose again; a size of 0 keeps that of the input where it is a placeholder."""
    x = call[0]
    x = np.transpose(x, call.says("first_transpose")[: x.ndim])
    wanted = call.get(1)
    sizes = list(call.says("reshape_dims") or ()) if wanted is None else [int(size) for size in wanted]
    if wanted is not None or call.says("reshape_dims") is not None:
        if call.says("zero_is_placeholder"):
            sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
        x = x.reshape(_without_unknown(sizes, x.size))
    return np.transpose(x, call.says("second_transpose")[: x.ndim])


def _without_unknown(sizes: Sequence[int], count: int) -> list[int]:
    """Return sizes with a number for -1, which NumPy finds no number for where the others make 0."""
    known = int(np.prod([size for size in sizes if size >= 0]))
    return [count // known if size < 0 < known else max(size, 0) if size < 0 else size for size in sizes]


def concatenation(call: LayerCall) -> Array:
    return np.concatenate([call[index] for index in range(len(call.arrays))], axis=call.says("axis"))


def cast(call: LayerCall) -> Array:
    """A cast to FP8 of what FP8 does not hold is left open: ONNX lets a model choose, and a layer does not say."""
    (made,) = call.outputs
    if made.dtype == "FP8" and (np.abs(call.wide(0)) > FP8_MOST).any():
        raise call.uncovered("values that FP8 does not hold")
    return call[0]


def squeeze(call: LayerCall) -> Array:
    """Take away axes of size 1: those that are named, or all."""
    if call.get(1) is None:
        return np.squeeze(call[0])
    return np.squeeze(call[0], tuple(int(axis) for axis in call[1].reshape(-1)))


def unsqueeze(call: LayerCall) -> Array:
    return np.expand_dims(call[0], tuple(int(axis) for axis in call[1].reshape(-1)))


def padding(call: LayerCall) -> Array:
    before, after = call.says("pre_padding_nd"), call.says("post_padding_nd")
    x = call[0]
    pads = [(0, 0)] * (x.ndim - len(before)) + list(zip(before, after, strict=True))
    x = np.pad(x, [(max(low, 0), max(high, 0)) for low, high in pads])
    sides = zip(pads, x.shape, strict=True)
    return x[tuple(slice(max(-low, 0), size - max(-high, 0)) for (low, high), size in sides)]


def slice_of(call: LayerCall) -> Array:
    """Take ``shape`` values of each axis from ``start`` on in steps of ``stride``; the mode says what is outside."""
    x, mode = call[0], call.says("mode")
    start, sizes, strides = (_dims(call, index, name) for index, name in enumerate(("start", "shape", "stride"), 1))
    axes = call.get(5)
    named = call.layer.says.get("axes") if axes is None else [int(axis) for axis in axes.reshape(-1)]
    for axis, first, size, stride in zip(named or range(x.ndim), start, sizes, strides, strict=True):
        places = first + np.arange(size) * stride
        x = _taken(call, x, places, axis % x.ndim, mode)
    return x


def _dims(call: LayerCall, index: int, name: str) -> list[int]:
    given = call.get(index)
    sizes = call.says(name) if given is None else given.reshape(-1)
    if sizes is None:
        raise call.uncovered(f"its {name} cannot be read")
    return [int(size) for size in sizes]


def _taken(call: LayerCall, x: Array, places: Array, axis: int, mode: str) -> Array:
    size = x.shape[axis]
    if mode in ("STRICT_BOUNDS", "DEFAULT"):
        return np.take(x, places, axis=axis)
    if mode == "WRAP":
        return np.asarray(np.take(x, places % size, axis=axis))
    if mode == "CLAMP":
        return np.take(x, np.clip(places, 0, size - 1), axis=axis)
    if mode == "REFLECT":
        period = max(2 * (size - 1), 1)
        folded = np.abs(places) % period
        inner = np.where(folded >= size, period - folded, folded) if size > 1 else folded * 0
        return np.asarray(np.take(x, inner, axis=axis))
    if mode != "FILL":
        raise call.uncovered(f"mode {mode}")
    given = call.get(4)
    fill = np.zeros((), x.dtype) if given is None else given.reshape(()).astype(x.dtype)
    inside = (places >= 0) & (places < size)
    inside = inside.reshape([-1 if each == axis else 1 for each in range(x.ndim)])
    if not size:
        return np.full([len(places) if each == axis else old for each, old in enumerate(x.shape)], fill)
    return np.where(inside, np.take(x, np.clip(places, 0, size - 1), axis=axis), fill)


def gather(call: LayerCall) -> Array:
    x, places, mode = call[0], call[1].astype(np.int64), call.says("mode")
    rows = call.says("num_elementwise_dims")
    if mode == "ND":
        return _gather_nd(x, places, rows)
    axis = call.says("axis") % x.ndim
    places = np.where(places < 0, places + x.shape[axis], places)
    if mode == "ELEMENT":
        return np.take_along_axis(x, places, axis=axis)
    if not rows:
        return np.take(x, places, axis=axis)
    shared = x.shape[:rows]
    taken = [np.take(x[row], places[row], axis=axis - rows) for row in np.ndindex(*shared)]
    return np.stack(taken).reshape(*shared, *taken[0].shape)


def _gather_nd(x: Array, places: Array, rows: int) -> Array:
    shared = x.shape[:rows]
    taken = [x[row][tuple(np.moveaxis(places[row], -1, 0))] for row in np.ndindex(*shared)]
    return np.stack(taken).reshape(*shared, *taken[0].shape)


def scatter(call: LayerCall) -> Array:
    x, places, updates = call[0].copy(), call[1].astype(np.int64), call[2]
    if call.says("mode") == "ND":
        x[tuple(np.moveaxis(places, -1, 0))] = updates
        return x
    axis = call.says("axis") % x.ndim
    np.put_along_axis(x, np.where(places < 0, places + x.shape[axis], places), updates, axis=axis)
    return x


def one_hot(call: LayerCall) -> Array:
    places, depth, axis = call[0], int(call.scalar(2)), call.says("axis")
    off, on = call[1]
    if (places < 0).any():  # of which NVIDIA's documentation says nothing
        raise call.uncovered("negative indices")
    axis = axis % (places.ndim + 1)
    each = np.arange(depth).reshape([-1 if one == axis else 1 for one in range(places.ndim + 1)])
    return np.asarray(np.where(np.expand_dims(places, axis) == each, on, off))


def top_k(call: LayerCall) -> tuple[Array, Array]:
    """The largest or smallest values along an axis, with their places; of equal ones the first."""
    x, (axis,) = call[0], call.axes()
    k = call.says("k") if call.get(1) is None else int(call.scalar(1))
    keys = call.wide(0).astype(np.float64)
    order = np.argsort(-keys if call.says("op") == "MAX" else keys, axis=axis, kind="stable")
    places = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, places, axis=axis), places


def non_zero(call: LayerCall) -> tuple[Array, ...]:
    places = np.asarray(np.nonzero(call[0]))
    return (places, np.asarray(places.shape[1]))[: len(call.outputs)]


def reverse_sequence(call: LayerCall) -> Array:
    x, lengths = call[0].copy(), call[1].reshape(-1)
    batch, time = call.says("batch_axis"), call.says("sequence_axis")
    rows = np.moveaxis(x, (batch, time), (0, 1))
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    return x


def fill(call: LayerCall) -> Array:
    """A ramp: ``alpha`` and, along each axis, ``beta`` for every step."""
    if call.says("operation") != "LINSPACE":
        raise call.uncovered(f"random values, {call.says('operation')}")
    given, alpha, beta = call.get(0), call.get(1), call.get(2)
    sizes = call.says("shape") if given is None else tuple(int(size) for size in given.reshape(-1))
    first = np.asarray(call.says("alpha") if alpha is None else alpha)
    steps = np.asarray(call.says("beta") if beta is None else beta).reshape(-1)
    whole = first.dtype.kind in "iu" and steps.dtype.kind in "iu"
    ramp = np.full(sizes, first.reshape(()), dtype=np.int64 if whole else np.float64)
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=False)):
        along = [-1 if each == axis else 1 for each in range(len(sizes))]
        ramp += (np.arange(size) * step.astype(ramp.dtype)).reshape(along)
    return ramp


KINDS: Mapping[str, Compute] = {
    "CONSTANT": constant, "IDENTITY": identity, "CAST": cast, "SHAPE": shape, "SHUFFLE": shuffle,
    "CONCATENATION": concatenation, "SQUEEZE": squeeze, "UNSQUEEZE": unsqueeze, "PADDING": padding,
    "SLICE": slice_of, "GATHER": gather, "SCATTER": scatter, "ONE_HOT": one_hot, "TOPK": top_k,
    "NON_ZERO": non_zero, "REVERSE_SEQUENCE": reverse_sequence, "FILL": fill,
}  # fmt: skip
