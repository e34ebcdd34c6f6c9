"""Layers that compute each value by itself, or over axes: activations, sums, products, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.tensorrt.network.layer_call import LayerCall, is_float

Compute = Callable[[LayerCall], Any]
"""Computes the output of a layer, or a tuple of several."""

erf = np.vectorize(math.erf, otypes=[np.float64])

UNARY: Mapping[str, Callable[[Array], Array]] = {
    "EXP": np.exp, "LOG": np.log, "SQRT": np.sqrt, "RECIP": lambda x: 1 / x, "ABS": np.abs, "NEG": np.negative,
    "SIN": np.sin, "COS": np.cos, "TAN": np.tan, "SINH": np.sinh, "COSH": np.cosh, "ASIN": np.arcsin,
    "ACOS": np.arccos, "ATAN": np.arctan, "ASINH": np.arcsinh, "ACOSH": np.arccosh, "ATANH": np.arctanh,
    "CEIL": np.ceil, "FLOOR": np.floor, "ERF": erf, "NOT": np.logical_not, "SIGN": np.sign, "ROUND": np.rint,
    "ISINF": np.isinf, "ISNAN": np.isnan,
}  # fmt: skip


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: Mapping[str, Callable[[Array, float, float], Array]] = {
    "RELU": lambda x, a, b: np.maximum(x, 0),
    "SIGMOID": lambda x, a, b: _sigmoid(x),
    "TANH": lambda x, a, b: np.tanh(x),
    "LEAKY_RELU": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ELU": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)),
    "SELU": lambda x, a, b: b * np.where(x >= 0, x, a * np.expm1(x)),
    "SOFTSIGN": lambda x, a, b: x / (1 + np.abs(x)),
    "SOFTPLUS": lambda x, a, b: a * np.logaddexp(0, b * x),
    "CLIP": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "HARD_SIGMOID": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "SCALED_TANH": lambda x, a, b: a * np.tanh(b * x),
    "THRESHOLDED_RELU": lambda x, a, b: np.where(x > a, x, 0),
    "GELU_ERF": lambda x, a, b: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "GELU_TANH": lambda x, a, b: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}  # fmt: skip


def _divide(a: Array, b: Array) -> Array:
    """Divide; whole numbers towards 0, as C++ does."""
    if a.dtype.kind not in "iu":
        return np.true_divide(a, b)
    quotient = np.floor_divide(a, b)
    return np.asarray(quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype))


ELEMENTWISE: Mapping[str, Callable[[Array, Array], Array]] = {
    "SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum, "SUB": np.subtract, "DIV": _divide,
    "POW": np.power, "FLOOR_DIV": np.floor_divide, "AND": np.logical_and, "OR": np.logical_or,
    "XOR": np.logical_xor, "EQUAL": np.equal, "GREATER": np.greater, "LESS": np.less,
}  # fmt: skip

REDUCE: Mapping[str, Callable[..., Array]] = {
    "SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean,
}  # fmt: skip
_EMPTY = {"MAX": -np.inf, "MIN": np.inf}


def unary(call: LayerCall) -> Array:
    return UNARY[call.says("op")](call.wide(0))


def activation(call: LayerCall) -> Array:
    # ``type`` is that of the layer itself, and of the activation once it is read as one
    return ACTIVATIONS[call.says("type")](call.wide(0), call.says("alpha"), call.says("beta"))


def elementwise(call: LayerCall) -> Array:
    return ELEMENTWISE[call.says("op")](call.wide(0), call.wide(1))


def parametric_relu(call: LayerCall) -> Array:
    x = call.wide(0)
    return np.where(x >= 0, x, x * call.wide(1))


def select(call: LayerCall) -> Array:
    return np.where(call[0], call[1], call[2])


def reduce(call: LayerCall) -> Array:
    word, x, axes = call.says("op"), call.wide(0), call.axes()
    if word not in REDUCE:
        raise call.uncovered(word)
    more: dict[str, Any] = {"initial": _EMPTY[word]} if word in _EMPTY and is_float(call[0]) else {}
    if x.dtype.kind in "iu" and word in ("SUM", "PROD"):
        more["dtype"] = x.dtype
    return REDUCE[word](x, axis=axes, keepdims=bool(call.says("keep_dims")), **more)


def softmax(call: LayerCall) -> Array:
    x, axes = call.wide(0), call.axes()
    if not x.size:
        return x
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axes, keepdims=True))


def scale(call: LayerCall) -> Array:
    """``(x * scale + shift) ** power``, for the whole tensor, each channel or each value."""
    x, mode, channel = call.wide(0), call.says("mode"), call.says("channel_axis")

    def shaped(name: str, default: float) -> Array:
        values = np.asarray(call.says(name), dtype=np.float64)
        if not values.size:
            return np.asarray(default)
        if mode == "ELEMENTWISE":
            return values.reshape(x.shape[channel:])
        return values.reshape(() if mode == "UNIFORM" else [-1, *[1] * (x.ndim - channel - 1)])

    return (x * shaped("scale", 1.0) + shaped("shift", 0.0)) ** shaped("power", 1.0)


def matrix_multiply(call: LayerCall) -> Array:
    a, b = call.wide(0), call.wide(1)
    of_a, of_b = call.says("op0"), call.says("op1")
    a = np.swapaxes(a, -1, -2) if of_a == "TRANSPOSE" else a[..., None, :] if of_a == "VECTOR" else a
    b = np.swapaxes(b, -1, -2) if of_b == "TRANSPOSE" else b[..., :, None] if of_b == "VECTOR" else b
    product = a @ b
    product = product[..., 0] if of_b == "VECTOR" else product
    if of_a == "VECTOR":
        product = product[..., 0] if of_b == "VECTOR" else product[..., 0, :]
    return product


def einsum(call: LayerCall) -> Array:
    operands = [call.wide(index) for index in range(len(call.arrays))]
    return np.asarray(np.einsum(call.says("equation"), *operands))


def cumulative(call: LayerCall) -> Array:
    if call.says("op") != "SUM":
        raise call.uncovered(call.says("op"))
    x, axis = call.wide(0), int(call.scalar(1))
    x = np.flip(x, axis) if call.says("reverse") else x
    sums = np.cumsum(x, axis=axis, dtype=x.dtype)
    sums = sums - x if call.says("exclusive") else sums
    return np.flip(sums, axis) if call.says("reverse") else sums


def normalization(call: LayerCall) -> Array:
    """Subtract the mean over the axes, or over each group of channels, and divide by the standard deviation."""
    x, axes, groups = call.wide(0), call.axes(), int(call.says("num_groups"))
    parts = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups) if groups != 1 else x
    axes = (2,) if groups != 1 else axes
    spread = np.sqrt(parts.var(axis=axes, keepdims=True) + call.says("epsilon"))
    normal = ((parts - parts.mean(axis=axes, keepdims=True)) / spread).reshape(x.shape)
    return np.asarray(normal * _by_channel(call.wide(1), x, groups) + _by_channel(call.wide(2), x, groups))


def _by_channel(values: Array, x: Array, groups: int) -> Array:
    """Repeat values of groups, which the first form of this layer has, for their channels."""
    if groups != 1 and values.shape[1] == groups != x.shape[1]:
        return np.repeat(values, x.shape[1] // groups, axis=1)
    return values


def local_response(call: LayerCall) -> Array:
    """Divide by the sum of squares over neighbouring channels (``ILRNLayer``)."""
    x, size = call.wide(0), int(call.says("window_size"))
    before = (size - 1) // 2
    padded = np.pad(x**2, [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    sums = sum(padded[:, offset : offset + x.shape[1]] for offset in range(size))
    return np.asarray(x / (call.says("k") + call.says("alpha") / size * np.asarray(sums)) ** call.says("beta"))


KINDS: Mapping[str, Compute] = {
    "UNARY": unary, "ACTIVATION": activation, "ELEMENTWISE": elementwise, "PARAMETRIC_RELU": parametric_relu,
    "SELECT": select, "REDUCE": reduce, "SOFTMAX": softmax, "SCALE": scale, "MATRIX_MULTIPLY": matrix_multiply,
    "EINSUM": einsum, "CUMULATIVE": cumulative, "NORMALIZATION": normalization, "LRN": local_response,
}  # fmt: skip
