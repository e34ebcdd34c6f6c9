"""Layers that look at windows of an image: convolutions both ways, pooling."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.tensorrt.network.layer_call import LayerCall
from conformance.runtimes.tensorrt.network.pointwise import Compute

Pads = tuple[Sequence[int], Sequence[int]]


def _pads(call: LayerCall, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]) -> Pads:
    """Return the padding before and after each axis. SAME modes pad to ``ceil(size / stride)`` windows."""
    mode = call.says("padding_mode")
    if not mode.startswith("SAME"):
        return call.says("pre_padding"), call.says("post_padding")
    before, after = [], []
    for size, window, stride in zip(sizes, windows, strides, strict=True):
        whole = max((-(-size // stride) - 1) * stride + window - size, 0)
        less, more = whole // 2, whole - whole // 2
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    return before, after


def _weights(call: LayerCall, name: str, index: int) -> Array:
    """Return the kernel or bias of a layer, which is an input or a property."""
    given = call.get(index)
    values = call.layer.says.get(name) if given is None else given
    if values is None and name == "kernel":
        raise call.uncovered("its kernel cannot be read")
    return np.asarray([] if values is None else values, dtype=np.float64)


def convolution(call: LayerCall) -> Array:
    x, window, strides = call.wide(0), call.says("kernel_size_nd"), call.says("stride_nd")
    steps, groups, made = call.says("dilation_nd"), call.says("num_groups"), call.says("num_output_maps")
    kernel = _weights(call, "kernel", 1).reshape(groups, made // groups, -1, *window)
    spans = [step * (size - 1) + 1 for step, size in zip(steps, window, strict=True)]
    if call.says("padding_mode") == "EXPLICIT_ROUND_UP":
        raise call.uncovered("rounded up")
    before, after = _pads(call, x.shape[2:], spans, strides)
    x = _padded(x, before, after, 0.0)
    outer = [(size - span) // stride + 1 for size, span, stride in zip(x.shape[2:], spans, strides, strict=True)]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    total = np.zeros((x.shape[0], groups, made // groups, *outer))
    for place in itertools.product(*map(range, window)):
        ends = zip(place, steps, outer, strides, strict=True)
        inside = tuple(slice(at * step, at * step + (count - 1) * by + 1, by) for at, step, count, by in ends)
        total += _sums(_at(kernel, place), _at(x, inside))
    return _with_bias(call, total.reshape(total.shape[0], made, *outer))


def _sums(kernel: Array, x: Array) -> Array:
    """Return for each group the sums of its channels by a kernel of [groups, outputs, channels]."""
    batch, groups, channels, *sizes = x.shape
    sums = np.matmul(kernel, x.reshape(batch, groups, channels, math.prod(sizes)))
    return np.asarray(sums.reshape(batch, groups, kernel.shape[-2], *sizes))


def _padded(x: Array, before: Sequence[int], after: Sequence[int], value: float) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=value)


def _at(x: Array, places: Sequence[int | slice]) -> Array:
    """Return a part of an array, of which it is a view, by places of its last axes."""
    where: Any = (..., *places)
    return np.asarray(x[where])


def _with_bias(call: LayerCall, x: Array) -> Array:
    bias = _weights(call, "bias", 2)
    return x + bias.reshape(-1, *[1] * (x.ndim - 2)) if bias.size else x


def deconvolution(call: LayerCall) -> Array:
    x, window, strides = call.wide(0), call.says("kernel_size_nd"), call.says("stride_nd")
    steps, groups, made = call.says("dilation_nd"), call.says("num_groups"), call.says("num_output_maps")
    kernel = _weights(call, "kernel", 1).reshape(groups, x.shape[1] // groups, made // groups, *window)
    sizes = x.shape[2:]
    whole = [
        (size - 1) * stride + step * (width - 1) + 1
        for size, stride, step, width in zip(sizes, strides, steps, window, strict=True)
    ]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *sizes)
    total = np.zeros((x.shape[0], groups, made // groups, *whole))
    for place in itertools.product(*map(range, window)):
        ends = zip(place, steps, sizes, strides, strict=True)
        inside = tuple(slice(at * step, at * step + (count - 1) * by + 1, by) for at, step, count, by in ends)
        part = _at(total, inside)
        part += _sums(np.swapaxes(_at(kernel, place), 1, 2), x)
    total = total.reshape(total.shape[0], made, *whole)
    before, after = _trims(call, sizes, whole, strides)
    sides = zip(before, after, whole, strict=True)
    total = _at(total, [slice(max(low, 0), size - max(high, 0)) for low, high, size in sides])
    first, last = ([max(-each, 0) for each in side] for side in (before, after))
    return _with_bias(call, _padded(total, first, last, 0.0))


def _trims(call: LayerCall, sizes: Sequence[int], whole: Sequence[int], strides: Sequence[int]) -> Pads:
    """Return what a deconvolution leaves away before and after each axis; SAME modes leave ``size * stride``."""
    mode = call.says("padding_mode")
    if not mode.startswith("SAME"):
        return call.says("pre_padding"), call.says("post_padding")
    more = [all_ - size * stride for all_, size, stride in zip(whole, sizes, strides, strict=True)]
    less, most = [each // 2 for each in more], [each - each // 2 for each in more]
    return (less, most) if mode == "SAME_UPPER" else (most, less)


def pooling(call: LayerCall) -> Array:
    """The largest value or the mean of each window. With padding that counts, what a window has beyond the padding
    does not."""
    x, word = call.wide(0), call.says("type")
    if word not in ("MAX", "AVERAGE"):
        raise call.uncovered(word)
    window, strides, mode = call.says("window_size_nd"), call.says("stride_nd"), call.says("padding_mode")
    shape, sizes = x.shape, x.shape[-len(window) :]
    x = x.reshape(1, -1, *sizes)
    before, after = _pads(call, sizes, window, strides)
    rooms = [sum(each) - width for *each, width in zip(sizes, before, after, window, strict=True)]
    up = mode == "EXPLICIT_ROUND_UP"
    outer = [(-(-room // by) if up else room // by) + 1 for room, by in zip(rooms, strides, strict=True)]
    # what the last window has beyond the padding
    beyond = [max((count - 1) * by - room, 0) for count, by, room in zip(outer, strides, rooms, strict=True)]
    ends = [high + more for high, more in zip(after, beyond, strict=True)]
    if word == "MAX":
        parts = _windows(_padded(x, before, ends, -np.inf), window, outer, strides)
        return functools.reduce(np.maximum, parts).reshape(*shape[: -len(window)], *outer)
    counted = np.ones((1, 1, *sizes))
    if not call.says("average_count_excludes_padding"):
        counted = _padded(counted, before, after, 1.0)
        counted = _padded(counted, [0] * len(beyond), beyond, 0.0)
    else:
        counted = _padded(counted, before, ends, 0.0)
    counts = sum(_windows(counted, window, outer, strides))
    total = sum(_windows(_padded(x, before, ends, 0.0), window, outer, strides))
    return np.asarray(total / counts).reshape(*shape[: -len(window)], *outer)


def _windows(x: Array, window: Sequence[int], outer: Sequence[int], strides: Sequence[int]) -> Iterator[Array]:
    """Yield for each place of a window the values that stand there in all windows."""
    for place in itertools.product(*map(range, window)):
        ends = zip(place, outer, strides, strict=True)
        yield _at(x, [slice(at, at + (count - 1) * by + 1, by) for at, count, by in ends])


KINDS: Mapping[str, Compute] = {
    "CONVOLUTION": convolution, "DECONVOLUTION": deconvolution, "POOLING": pooling,
}  # fmt: skip
