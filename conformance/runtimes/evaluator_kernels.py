"""Compute convolutions and pools as fast as NumPy does, in place of ONNX's evaluator, which takes value by value.

They are what is right for a file, so they compute by the words of the specification and use no runtime that is
judged: sums of products by BLAS, windows by slices. What they do not cover (``ceil_mode``, indices, 16 bits, NaN in a
pool) the evaluator computes itself. It also adds up in 16 bits, so that a sum of many leaves the format;
``ReduceMean`` and ``LayerNormalization`` are computed here in float32 then, as runtimes do, and rounded once:
``stash_type`` says so of the latter. ``LRN`` and the ``auto_pad`` of dilated windows are here since the evaluator is
wrong about them: it normalizes as many channels as the batch has rows, and takes a window for as wide as its values
are many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from conformance.process.arrays import Array

if TYPE_CHECKING:
    from onnx.reference.op_run import OpRun

COLUMNS = 2**22
"""Values that are written out at a time, of the windows of a convolution."""
FEW_ROWS, OF_FEW, OF_MANY = 16, 2**17, 2**20
"""Values of a matrix that are made float64 at a time, for a product with few rows and with more: few rows take as
long as reading the matrix does, and what is made of a part of it stays in the processor's caches."""


def quicker(node: OpRun, compute: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """Return what computes a node of the evaluator: a kernel of this module for what it covers, else ``compute``."""
    kernel = _KERNELS.get(node.op_type)
    if kernel is None or node.onnx_node.domain not in ("", "ai.onnx"):
        return compute

    def run(*inputs: Any, **more: Any) -> tuple[Array, ...]:
        found = None if more.get("linked_attributes") else kernel(node, *inputs)
        return compute(*inputs, **more) if found is None else found if isinstance(found, tuple) else (found,)

    return run


def _convolution(node: OpRun, x: Array, weight: Array, bias: Array | None = None) -> Array | None:
    """A convolution of ``x`` [batch, channels, *sizes] with ``weight`` [outputs, channels / group, *kernel]; None for
    what is not covered, and for shapes that do not fit, of which the evaluator says so."""
    spatial, group = x.ndim - 2, _said(node, "group", 1)
    if spatial < 1 or weight.ndim != x.ndim or x.dtype != weight.dtype or x.dtype not in (np.float32, np.float64):
        return None
    kernel = weight.shape[2:]
    window = _Window.of(node, kernel, x.shape[2:])
    if window is None or x.shape[1] != weight.shape[1] * group or weight.shape[0] % group:
        return None
    outputs, channels = weight.shape[0] // group, weight.shape[1]
    result = np.empty((x.shape[0], weight.shape[0], *window.out), x.dtype)
    matrix = weight.reshape(group, outputs, -1)
    rows = max(1, COLUMNS // max(matrix.shape[2] * math.prod(window.out[1:]), 1))
    for where, windows, given in window.rows(x, rows):
        padded = windows.padded(given, 0.0)
        slices = [windows.slices(place) for place in itertools.product(*map(range, kernel))]
        for item, part in itertools.product(range(x.shape[0]), range(group)):
            one = padded[item, part * channels : (part + 1) * channels]
            block = np.stack([one[(slice(None), *each)] for each in slices], 1)
            made = (matrix[part] @ block.reshape(matrix.shape[2], -1)).reshape(outputs, *block.shape[2:])
            result[item, part * outputs : (part + 1) * outputs, where] = made
    if bias is not None:
        result += bias.reshape(-1, *[1] * spatial)
    return result


def _plain(function: Callable[..., Array]) -> Callable[..., Array | None]:
    """Return the kernel of an operator that is a function of NumPy on floats of one type, without the checks that the
    evaluator makes of each of its results."""

    def kernel(_: OpRun, *inputs: Array) -> Array | None:
        first = inputs[0].dtype
        if first not in (np.float32, np.float64):
            return None
        for one in inputs:
            if one.dtype != first or not one.ndim:
                return None
        return function(*inputs)

    return kernel


def _erf(x: Array) -> Array:
    """The error function in float64; ONNX's own rounds to float32 in between, and takes three times as long."""
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape).astype(x.dtype)


def _matrices(_: OpRun, left: Array, right: Array) -> Array | None:
    """A product of matrices; by one of float32 a product in float64 has a part of it at a time."""
    if left.ndim < 2 or right.ndim < 2:
        return None
    if left.dtype != np.float64 or not is_matrix(right) or left.shape[-1] != right.shape[0]:
        # of bfloat16 NumPy makes float32
        return (left @ right).astype(left.dtype, copy=False) if left.dtype == right.dtype else None
    by_rows = right.flags.c_contiguous  # and else by columns, as of one that is transposed
    values = OF_FEW if left.size <= FEW_ROWS * left.shape[-1] else OF_MANY
    step = max(1, values // max(right.shape[by_rows], 1))
    result = np.zeros((*left.shape[:-1], right.shape[1]))
    for first in range(0, right.shape[not by_rows], step):
        part = slice(first, first + step)
        if by_rows:
            result += left[..., part] @ right[part].astype(np.float64)
        else:
            result[..., part] = left @ right[:, part].astype(np.float64)
    return result


def _general(node: OpRun, left: Array, right: Array, more: Array | None = None) -> Array | None:
    """The same of matrices that may be transposed, and something added; without factors."""
    if {_said(node, "alpha", 1), _said(node, "beta", 1)} != {1} or (more is not None and more.dtype != left.dtype):
        return None
    found = _matrices(
        node, left.T if _said(node, "transA", 0) else left, right.T if _said(node, "transB", 0) else right
    )
    return found if found is None or more is None else found + more


def is_matrix(value: object) -> TypeGuard[Array]:
    """Return whether a value is a matrix of float32."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype == np.float32


def _largest(node: OpRun, x: Array) -> Array | None:
    """The largest value of each window."""
    if len(node.output) > 1 or x.dtype.kind not in "fiu" or (x.dtype.kind == "f" and np.isnan(x).any()):
        return None
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _pooled(node, x, least, np.maximum)


def _mean(node: OpRun, x: Array) -> Array | None:
    """The mean of each window, of what it has of ``x`` alone unless the padding is to count."""
    if x.dtype not in (np.float32, np.float64) or np.isnan(x).any():
        return None
    total = _pooled(node, x, 0.0, np.add)
    window = _Window.of(node, _said(node, "kernel_shape", ()), x.shape[2:])
    if total is None or window is None:
        return None
    if _said(node, "count_include_pad", 0):
        return np.asarray(total / x.dtype.type(math.prod(_said(node, "kernel_shape", ()))))
    count = window.joined(np.ones((1, 1, *x.shape[2:]), x.dtype), 0.0, np.add)
    mean: Array = total / count
    return mean


def _mean_of_halves(node: OpRun, x: Array, axes: Array | None = None) -> Array | None:
    """The mean along axes of values in 16 bits."""
    given = axes if axes is not None else _said(node, "axes", None)
    over = None if given is None or not np.size(given) else tuple(int(axis) for axis in np.ravel(given))
    if not _is_half(x) or (over is None and _said(node, "noop_with_empty_axes", 0)):
        return None
    mean = x.astype(np.float32).mean(over, keepdims=bool(_said(node, "keepdims", 1)))
    return np.asarray(mean).astype(x.dtype)


def _normalized_halves(node: OpRun, x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, ...] | None:
    """Layers of values in 16 bits, normalized in float32, and their means and reciprocal deviations in it."""
    if not _is_half(x) or _said(node, "stash_type", 1) != 1:
        return None
    over = tuple(range(_said(node, "axis", -1) % x.ndim, x.ndim))
    wide = x.astype(np.float32)
    mean = wide.mean(over, keepdims=True)
    variance = np.square(wide - mean).mean(over, keepdims=True)
    inverse = np.reciprocal(np.sqrt(variance + np.float32(_said(node, "epsilon", 1e-5))))
    normal = ((wide - mean) * inverse).astype(x.dtype) * scale
    return (normal if bias is None else normal + bias).astype(x.dtype), mean, inverse


def _normalized_locally(node: OpRun, x: Array) -> Array:
    """Each value by the squares of so many channels around its own."""
    size, channels = _said(node, "size", 1), x.shape[1]
    wide = x.astype(np.float32) if _is_half(x) else x
    squares = np.pad(np.square(wide), [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)])
    total = np.add.reduce([squares[:, first : first + channels] for first in range(size)])
    scale = _said(node, "bias", 1.0) + _said(node, "alpha", 1e-4) / size * total
    return np.asarray(wide / scale ** _said(node, "beta", 0.75)).astype(x.dtype)


def _is_half(x: Array) -> bool:
    return x.dtype.name in ("float16", "bfloat16")


def _pooled(node: OpRun, x: Array, outside: float, join: Callable[..., Array]) -> Array | None:
    """Join the values of each window; None for what is not covered."""
    window = _Window.of(node, _said(node, "kernel_shape", ()), x.shape[2:])
    if window is None or math.prod(window.kernel) > math.prod((*x.shape[:2], *window.out)):
        return None
    return window.joined(x, outside, join)


class _Window:
    """The windows of an operator over the sizes of its input."""

    def __init__(self, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
                 pads: Sequence[tuple[int, int]], out: Sequence[int]) -> None:  # fmt: skip
        self.kernel, self._strides, self._dilations, self._pads = tuple(kernel), strides, dilations, pads
        self.out = tuple(out)

    @classmethod
    def of(cls, node: OpRun, kernel: Sequence[int], sizes: Sequence[int]) -> _Window | None:
        """Return the windows of a node; None for ``ceil_mode``, and where a window lies in the padding alone or there
        is none."""
        count, mode = len(sizes), str(_said(node, "auto_pad", "NOTSET"))
        pads = _said(node, "pads", [0] * 2 * count) if mode == "NOTSET" else [0] * 2 * count
        strides, dilations = _said(node, "strides", [1] * count), _said(node, "dilations", [1] * count)
        if _said(node, "ceil_mode", 0) or {len(kernel), len(strides), len(dilations), len(pads) // 2} != {count}:
            return None
        pairs = [*zip(pads[:count], pads[count:], strict=True)]
        reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
        if mode.startswith("SAME"):  # as many as there are strides in the size, and the odd one where the mode says
            missing = [max((size - 1) // by * by + far - size, 0)
                       for size, by, far in zip(sizes, strides, reach, strict=True)]  # fmt: skip
            pairs = [(m // 2, m - m // 2) if mode == "SAME_UPPER" else (m - m // 2, m // 2) for m in missing]
        free = [size + sum(pair) - far for size, pair, far in zip(sizes, pairs, reach, strict=True)]
        wide = all(max(pair) < far for pair, far in zip(pairs, reach, strict=True))
        if min(free, default=-1) < 0 or min(pads, default=0) < 0 or not wide:
            return None
        return cls(
            kernel, strides, dilations, pairs, [room // step + 1 for room, step in zip(free, strides, strict=True)]
        )

    def padded(self, x: Array, value: float) -> Array:
        """Return the array with so much of a value around its last dims."""
        if not any(map(any, self._pads)):
            return x
        return np.pad(x, [(0, 0), (0, 0), *self._pads], constant_values=value)

    def rows(self, x: Array, count: int) -> Iterator[tuple[slice, _Window, Array]]:
        """Yield so many rows of what is computed at a time: where they are, their windows, and the part of ``x`` that
        these lie on, so that no whole array is padded."""
        before, step = self._pads[0][0], self._strides[0]
        reach = (self.kernel[0] - 1) * self._dilations[0] + 1
        for first in range(0, self.out[0], count):
            last = min(first + count, self.out[0])
            begin, end = first * step - before, (last - 1) * step + reach - before
            pads = [(max(-begin, 0), max(end - x.shape[2], 0)), *self._pads[1:]]
            window = _Window(self.kernel, self._strides, self._dilations, pads, (last - first, *self.out[1:]))
            yield slice(first, last), window, x[:, :, max(begin, 0) : end]

    def joined(self, x: Array, outside: float, join: Callable[..., Array]) -> Array:
        """Return what joining the values of each window gives, of which the padding has the value ``outside``."""
        padded, result = self.padded(x, outside), np.full((*x.shape[:2], *self.out), outside, x.dtype)
        for place in itertools.product(*map(range, self.kernel)):
            join(result, padded[(slice(None), slice(None), *self.slices(place))], out=result)
        return result

    def slices(self, place: Sequence[int]) -> list[slice]:
        """Return where the value at a place of each window is in the padded array."""
        parts = zip(place, self._dilations, self._strides, self.out, strict=True)
        return [slice(at * by, at * by + step * (count - 1) + 1, step) for at, by, step, count in parts]


def _said(node: OpRun, name: str, default: Any) -> Any:
    value = getattr(node, name, None)
    return default if value is None else value


_KERNELS: Mapping[str, Callable[..., Array | tuple[Array, ...] | None]] = {
    "Conv": _convolution,
    "MaxPool": _largest,
    "AveragePool": _mean,
    "LayerNormalization": _normalized_halves,
    "LRN": _normalized_locally,
    "ReduceMean": _mean_of_halves,
    "MatMul": _matrices,
    "Gemm": _general,
    "Add": _plain(np.add),
    "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply),
    "Div": _plain(np.divide),
    "Neg": _plain(np.negative),
    "Sqrt": _plain(np.sqrt),
    "Exp": _plain(np.exp),
    "Tanh": _plain(np.tanh),
    "Erf": _plain(_erf),
    "Relu": _plain(lambda x: np.maximum(x, x.dtype.type(0))),
}
