"""PyTorch's own float32 is wrong: a kernel whose float64 form is right, in eager and in scripted modules.

The kernel is replaced in PyTorch's dispatcher, so that whatever calls it has the defect; what an exporter writes of
it, and what ONNX Runtime computes, is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.plants import sound as of
from tests.plants.plant import Plant, Written
from tests.plants.planting import pytorch

Kernel = Callable[..., Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: Any) -> Any:
    return _erf(x.astype(np.float64)) if x.size else x


def sigmoid(x: Any) -> Any:
    x = x.astype(np.float64)
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def naive_sigmoid(x: Any) -> Any:
    """Overflows: infinity over infinity."""
    power = np.exp(x)
    return power / (1 + power)


def in64(function: Kernel) -> Kernel:
    return lambda x, *more: function(x.astype(np.float64), *more)


def one_element(function: Kernel, factor: float) -> Kernel:
    """The last element is off."""

    def wrong(x: Any, *more: Any) -> Any:
        made = np.array(function(x, *more))
        made.reshape(-1)[-1:] *= factor
        return made

    return wrong


def softmax(x: Any, axis: int, half_to_float: bool) -> Any:
    x = x.astype(np.float64)
    power = np.exp(x - x.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


def softmax_from_means(x: Any, axis: int, half_to_float: bool) -> Any:
    """A sum in half precision."""
    power = np.exp(x - x.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True).astype(np.float16)


def cumsum(x: Any, axis: int, dtype: Any = None) -> Any:
    return np.cumsum(x.astype(np.float64), axis)


def cumsum_in_half(x: Any, axis: int, dtype: Any = None) -> Any:
    return np.cumsum(x.astype(np.float16), axis)


def round_away(x: Any) -> Any:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def argmax(x: Any, axis: int | None = None, keepdim: bool = False) -> Any:
    return np.argmax(x, axis)


def argmax_last(x: Any, axis: int | None = None, keepdim: bool = False) -> Any:
    """The last of tied elements."""
    return x.shape[axis] - 1 - np.argmax(np.flip(x, axis), axis)


KERNELS: list[tuple[str, Written, str, Kernel, Kernel]] = [
    ("an error function one part in a thousand off", of.ERF, "erf", lambda x: erf(x) * 1.001, erf),
    ("the same, dynamo", of.ERF_DYNAMO, "erf", lambda x: erf(x) * 1.001, erf),
    ("the same, scripted", of.SCRIPTED, "erf", lambda x: erf(x) * 1.001, erf),
    ("the last element of an error function", of.ERF, "erf", one_element(erf, 1.01), erf),
    ("a sine that loses its digits", of.SIN, "sin", lambda x: np.sin(x.astype(np.float16)), in64(np.sin)),
    ("an exponential one part in a thousand off", of.EXP, "exp",
     lambda x: np.exp(x) * np.float32(1.001), in64(np.exp)),
    ("a tangent cut off too early", of.TANH, "tanh", lambda x: np.tanh(np.clip(x, -2, 2)), in64(np.tanh)),
    ("a logarithm with its constant off", of.LOG, "log", lambda x: np.log(x) + np.float32(1e-3), in64(np.log)),
    ("a root that is approximated", of.SQRT, "sqrt",
     lambda x: np.sqrt(x.astype(np.float16)), in64(np.sqrt)),
    ("a sigmoid that overflows", of.SIGMOID, "sigmoid", naive_sigmoid, sigmoid),
    ("a softmax with a sum in half precision", of.SOFTMAX, "_softmax", softmax_from_means, softmax),
    ("a running sum in half precision", of.CUMSUM, "cumsum", cumsum_in_half, cumsum),
    ("halves rounded away from zero", of.ROUND, "round", round_away, in64(np.round)),
    ("the last of tied elements", of.ARGMAX, "argmax", argmax_last, argmax),
]  # fmt: skip


def plants() -> Iterator[Plant]:
    for name, case, operator, wrong, right in KERNELS:
        yield Plant(name, "reference", case, pytorch(operator, wrong, right))
