"""The unary operators of the tables: in float64, to any number of digits, in PyTorch, and as nodes of ONNX.

The forms in float64 are written so that nothing cancels, of functions of PyTorch that are off by about a unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import mpmath
import torch
import torch.nn.functional as torch_functions
from mpmath import mp, mpf
from torch import Tensor

Piece = tuple[float, float, int]
"""An interval on which a function does not fall (1) or does not rise (-1)."""
INF = math.inf
LOWEST = -1e4
"""Below it, functions that tend to -0 are taken for their value here: minus infinity times 0 would be NaN."""
GAMMA, ALPHA = 1.05070102214813232421875, 1.67326319217681884765625
"""The defaults of ONNX's Selu."""
QUARTER = 1.5707962
"""A little less than half of pi."""
UP, DOWN, BOTH = ((-INF, INF, 1),), ((-INF, INF, -1),), ((-INF, 0.0, -1), (0.0, INF, 1))
POSITIVE = ((0.0, INF, 1),)


@dataclass(frozen=True)
class Function:
    """One operator with one choice of attributes."""

    name: str
    exact: Callable[[Tensor], Tensor]
    """In float64."""
    digits: Callable[[mpf], mpf]
    """In mpmath, to the digits that it is set to."""
    in_torch: Callable[[Tensor], Tensor]
    pieces: tuple[Piece, ...] = UP
    """The intervals on which it is monotone; those around 0 where it has many."""
    operator: str = ""
    """Its name in ONNX; ``name`` where this is empty."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    exponent: float | None = None
    """The second input."""
    halves: bool = False
    """True if it is half of a tiny input and a little more, which float64 does not show where the half is a tie."""
    is_exact: bool = False
    """True if float64 holds the result."""


def _gelu(x: Tensor) -> Tensor:
    x = x.clamp(min=LOWEST)
    return x * 0.5 * torch.erfc(x * -math.sqrt(0.5))


def _tanh_gelu(x: Tensor) -> Tensor:
    x = x.clamp(min=LOWEST)
    return x / (1 + torch.exp((x + 0.044715 * x * x * x) * -math.sqrt(8 / math.pi)))


def _tanh_gelu_digits(x: mpf) -> mpf:
    return x / (1 + mpmath.exp(-mpmath.sqrt(8 / mp.pi) * (x + mpf(44715) / 10**6 * x**3)))


def _mish(x: Tensor) -> Tensor:
    e = torch.exp(x.clamp(LOWEST, 40.0))
    e = e * (e + 2)
    return x.clamp(min=LOWEST) * (e / (e + 2))


def _mish_digits(x: mpf) -> mpf:
    e = mpmath.exp(x)
    return x * e * (e + 2) / (e * (e + 2) + 2)


def _hard_swish(x: Tensor) -> Tensor:
    x = x.clamp(min=LOWEST)
    return x * ((x + 3).clamp(0.0, 6.0) / 6)


def _softsign(x: Tensor) -> Tensor:
    x = x.clamp(-1e300, 1e300)
    return x / (1 + x.abs())


def _elu(low: float, inner: float = 1.0, high: float = 1.0) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.where(x > 0, x * high, torch.expm1(x / inner) * low)


def _elu_digits(low: float, inner: float = 1.0, high: float = 1.0) -> Callable[[mpf], mpf]:
    return lambda x: x * mpf(high) if x > 0 else mpmath.expm1(x / inner) * mpf(low)


VALLEYS = {"gelu": ((-INF, -0.76, -1), (-0.75, INF, 1)), "mish": ((-INF, -1.2, -1), (-1.19, INF, 1))}
FUNCTIONS = {one.name: one for one in (
    Function("Exp", torch.exp, mpmath.exp, torch.exp),
    Function("Log", torch.log, mpmath.log, torch.log, POSITIVE),
    Function("Tanh", torch.tanh, mpmath.tanh, torch.tanh),
    Function("Sigmoid", lambda x: 1 / (1 + torch.exp(-x)), lambda x: 1 / (1 + mpmath.exp(-x)), torch.sigmoid),
    Function("Erf", torch.erf, mpmath.erf, torch.erf),
    Function("Gelu", _gelu, lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2, torch_functions.gelu,
             VALLEYS["gelu"], halves=True),
    Function("Gelu, tanh", _tanh_gelu, _tanh_gelu_digits, lambda x: torch_functions.gelu(x, approximate="tanh"),
             VALLEYS["gelu"], "Gelu", {"approximate": "tanh"}, halves=True),
    Function("Sqrt", torch.sqrt, mpmath.sqrt, torch.sqrt, POSITIVE),
    Function("Reciprocal", torch.reciprocal, lambda x: 1 / x, torch.reciprocal, ((-INF, -0.0, -1), (0.0, INF, -1))),
    Function("Softplus", lambda x: x.clamp(min=0.0) + torch.log1p(torch.exp(-x.abs())),
             lambda x: mpmath.log1p(mpmath.exp(x)), torch_functions.softplus),
    Function("Pow 2", lambda x: x * x, lambda x: x * x, lambda x: x**2, BOTH, "Pow", exponent=2.0, is_exact=True),
    Function("Pow 3", lambda x: x * x * x, lambda x: x**3, lambda x: x**3, UP, "Pow", exponent=3.0),
    Function("Pow 0.5", lambda x: torch.sqrt(x.masked_fill(x == -INF, INF)).abs(), mpmath.sqrt, lambda x: x**0.5,
             POSITIVE, "Pow", exponent=0.5),
    Function("Sin", torch.sin, mpmath.sin, torch.sin, ((-QUARTER, QUARTER, 1),)),
    Function("Cos", torch.cos, mpmath.cos, torch.cos, ((-2 * QUARTER, 0.0, 1), (0.0, 2 * QUARTER, -1))),
    Function("Tan", torch.tan, mpmath.tan, torch.tan, ((-QUARTER, QUARTER, 1),)),
    Function("Elu", _elu(1.0), _elu_digits(1.0), torch_functions.elu),
    Function("Selu", _elu(ALPHA * GAMMA, high=GAMMA), _elu_digits(ALPHA * GAMMA, high=GAMMA), torch_functions.selu),
    Function("Celu, alpha 2", _elu(2.0, 2.0), _elu_digits(2.0, 2.0), lambda x: torch_functions.celu(x, 2.0), UP,
             "Celu", {"alpha": 2.0}),
    Function("Mish", _mish, _mish_digits, torch_functions.mish, VALLEYS["mish"]),
    Function("HardSwish", _hard_swish, lambda x: x * min(max(x + 3, mpf(0)), mpf(6)) / 6, torch_functions.hardswish,
             ((-INF, -1.5, -1), (-1.5, INF, 1)), halves=True),
    Function("Softsign", _softsign, lambda x: x / (1 + abs(x)), torch_functions.softsign),
    Function("Asin", torch.asin, mpmath.asin, torch.asin),
    Function("Acos", torch.acos, mpmath.acos, torch.acos, DOWN),
    Function("Atan", torch.atan, mpmath.atan, torch.atan),
    Function("Sinh", torch.sinh, mpmath.sinh, torch.sinh),
    Function("Cosh", torch.cosh, mpmath.cosh, torch.cosh, BOTH),
)}  # fmt: skip
"""By name, those of networks first. ``ALPHA * GAMMA`` has 48 bits, which float64 holds."""
