"""Symbolics of operators that compute each element by itself.

Forms are chosen so that no difference of nearly equal numbers is left: expm1 and log1p by hyperbolic functions, the
tail of the error function by a series of its own. Coefficients are of Chebyshev series, made at 40 digits,
highest power first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from more_symbolics.tensor import Tensor, promoted, symbolic, where

INFINITY = math.inf


def _native(name: str, operator: str) -> None:
    """Make a symbolic of an operator that ONNX has by itself."""

    def function(x: Tensor) -> Tensor:
        return promoted(x)[0].op(operator)

    function.__name__, function.__doc__ = name, f"Return ONNX's {operator}."
    globals()[name] = symbolic()(function)


for _name in ("acosh", "asinh", "atanh", "cosh", "sinh"):
    _native(_name, _name.capitalize())


@symbolic()
def deg2rad(x: Tensor) -> Tensor:
    return promoted(x)[0] * (math.pi / 180)


@symbolic()
def rad2deg(x: Tensor) -> Tensor:
    return promoted(x)[0] * (180 / math.pi)


@symbolic()
def exp2(x: Tensor) -> Tensor:
    """Return a power of 2, not the exponential of a product, whose rounding grows with x."""
    (x,) = promoted(x)
    return x.like(2.0) ** x


@symbolic()
def expm1(x: Tensor) -> Tensor:
    """Return 2 exp(x/2) sinh(x/2) near zero, which keeps all digits, and exp(x) - 1 elsewhere."""
    return _expm1(*promoted(x))


def _expm1(x: Tensor) -> Tensor:
    half = x * 0.5
    return where(x.abs() < 1.0, half.exp() * half.op("Sinh") * 2.0, x.exp() - 1.0)


def log1p_of(x: Tensor) -> Tensor:
    """Return 2 atanh(x / (2 + x)) near zero, and log(1 + x) elsewhere."""
    return where(x.abs() < 0.5, (x / (x + 2.0)).op("Atanh") * 2.0, (x + 1.0).log())


@symbolic()
def trunc(x: Tensor) -> Tensor:
    return _trunc(x)


def _trunc(x: Tensor) -> Tensor:
    return where(x < 0.0, x.op("Ceil"), x.op("Floor")) if x.is_floating else x.op("Identity")


@symbolic()
def frac(x: Tensor) -> Tensor:
    return x - _trunc(x)


@symbolic()
def positive(x: Tensor) -> Tensor:
    return x.op("Identity")


@symbolic()
def real(x: Tensor) -> Tensor:
    return x.op("Identity")


@symbolic()
def sgn(x: Tensor) -> Tensor:
    if x.is_floating:
        return where(x.isnan(), 0, x.op("Sign"))
    return x.op("Identity" if x.dtype == torch.bool else "Sign")


def _is_negative(x: Tensor) -> Tensor:
    """Return where the sign is set, of zeros too, whose reciprocals tell; NaN counts as positive."""
    return (x < 0.0) | ((1.0 / x) < 0.0) if x.is_floating else x < 0


@symbolic()
def signbit(x: Tensor) -> Tensor:
    return x.to(torch.int32) < 0 if x.dtype == torch.bool else _is_negative(x)


@symbolic()
def copysign(x: Tensor, other: Tensor) -> Tensor:
    x, other = promoted(x, other)
    size = x.abs()
    return where(_is_negative(other), -size, size)


@symbolic()
def sinc(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    turned = x * math.pi
    return where(x.equals(0.0), 1.0, turned.op("Sin") / turned)


@symbolic()
def angle(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    return where(x.isnan(), x, where(x < 0.0, x.like(math.pi), 0.0))


@symbolic()
def special_entr(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    return where(x > 0.0, -x * x.log(), where(x.equals(0.0), 0.0, where(x.isnan(), x, -INFINITY)))


@symbolic()
def special_spherical_bessel_j0(x: Tensor) -> Tensor:
    """Return sin(x) / x, near zero by its series."""
    (x,) = promoted(x)
    square = x * x
    series = _polynomial((1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0), square)
    away = where(x.isinf(), 0.0, x.op("Sin") / x)
    return where(x.abs() < 0.5, series, away)


@symbolic()
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    x, y = promoted(x, y)
    return where(y.isnan(), y, where(x.equals(0.0), 0.0, x * y.log()))


@symbolic()
def special_xlog1py(x: Tensor, y: Tensor) -> Tensor:
    x, y = promoted(x, y)
    return where(y.isnan(), y, where(x.equals(0.0), 0.0, x * log1p_of(y)))


@symbolic()
def fmax(x: Tensor, y: Tensor) -> Tensor:
    x, y = promoted(x, y)
    return x + y if x.dtype == torch.bool else where(x.isnan() | (y > x), y, x)


@symbolic()
def fmin(x: Tensor, y: Tensor) -> Tensor:
    x, y = promoted(x, y)
    return x * y if x.dtype == torch.bool else where(x.isnan() | (y < x), y, x)


@symbolic()
def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """Return x times a power of 2, as PyTorch has it: the power overflows where its exponent does."""
    x, exponent = promoted(x, exponent)
    return x * (x.like(2.0) ** exponent)


@symbolic()
def float_power(x: Tensor, exponent: Tensor) -> Tensor:
    """Return a power in float64. The exporter takes float64 of no dims for float32, so that it gets one."""
    x, exponent = x.to(torch.float64), exponent.to(torch.float64)
    if x.rank or exponent.rank:
        return x**exponent
    return (x.reshape([1]) ** exponent.reshape([1])).reshape([])


@symbolic()
def heaviside(x: Tensor, values: Tensor) -> Tensor:
    x, values = promoted(x, values)
    return where(x.equals(0), values, (x > 0).to(x.dtype))


@symbolic()
def hypot(x: Tensor, y: Tensor) -> Tensor:
    """Return the larger side times the root of 1 plus a square up to 1, which overflows where the result does."""
    x, y = (one.abs() for one in promoted(x, y))
    large, small = where((x > y) | x.isnan(), x, y), where((x > y) | x.isnan(), y, x)
    ratio = small / where(large.equals(0.0), 1.0, large)
    length = large * (ratio * ratio + 1.0).sqrt()
    return where(x.isinf() | y.isinf(), INFINITY, length)


@symbolic()
def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    x, y = promoted(x, y)
    large = x.largest_of(y)
    return where(x.equals(y) & x.isinf(), x, large + log1p_of((-(x - y).abs()).exp()))


@symbolic()
def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    x, y = promoted(x, y)
    power = x.like(2.0) ** -(x - y).abs()
    return where(x.equals(y) & x.isinf(), x, x.largest_of(y) + log1p_of(power) * (1 / math.log(2)))


@symbolic()
def isclose(x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    close = x.equals(y)
    if equal_nan and x.is_floating:
        close = close | (x.isnan() & y.isnan())
    if not x.is_floating:
        x, y = x.to(torch.float32), y.to(torch.float32)
    error = (x - y).abs()
    return close | (error.at_most((y * rtol).abs() + atol) & (error < INFINITY))


@symbolic()
def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    number = threshold if x.is_floating else int(threshold)
    return where(x.at_most(number), value if x.is_floating else int(value), x)


@symbolic()
def addcdiv(x: Tensor, one: Tensor, other: Tensor, value: float) -> Tensor:
    x, one, other = promoted(x, one, other)
    return x + (one / other if value == 1 else one * value / other)


# ---- the error function ----------------------------------------------------------------------------------------

_ERFCX = (
    -2.02559896e-05, 6.33694584e-05, 0.000221571551, -0.000357920448, -0.00146407091, 0.00121741059, 0.00872460764,
    -0.00801896308, -0.0542202666, 0.164049454, -0.166030384, -0.0927637628, 1.27697838,
)  # fmt: skip
"""Of (1 + 2 x) exp(x * x) erfc(x) in 1 - 4 / (x + 2), for x from 0 on; to 1e-9."""
_NEAR = (
    4.14957743e-06, -3.33398093e-05, 2.51574354e-05, 0.000284075153, -0.000836468738, -0.000484349951, 0.0085259345,
    -0.019574194, -0.0261082808, 0.616600723, 1.50140935,
)  # fmt: skip
"""Of erfinv(x) / x in w / 2.5 - 1, with w = -log(1 - x * x) below 5; to 3e-9."""
_MIDDLE = (
    -8.49990642e-05, -0.000139407466, 0.000995847127, -0.00184957499, 0.00255776502, -0.00383305122, 0.00554395355,
    0.0048125172, -0.16627694,
)  # fmt: skip
"""Of erfinv(x) / x - sqrt(w), in sqrt(w) scaled from sqrt(5) to 4.2; to 4e-9."""
_FAR = (
    8.47273954e-05, -0.000172199125, 0.000160621109, -0.000268785657, 0.000382827334, 0.000347746852, -0.00484638768,
    0.0257013113, -0.128447551,
)  # fmt: skip
"""The same from 4.2 to 10.4, beyond which no float32 lies; to 2e-7."""


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    result = x * coefficients[0] + coefficients[1]
    for one in coefficients[2:]:
        result = result * x + one
    return result


def _erfcx(x: Tensor) -> Tensor:
    """Return exp(x * x) erfc(x) of numbers from 0 on."""
    return _polynomial(_ERFCX, 1.0 - 4.0 / (x + 2.0)) / (x * 2.0 + 1.0)


def _exp_of_square(x: Tensor, sign: float) -> Tensor:
    """Return exp(sign * x * x) of numbers from 0 on: the square of x in steps of 1/16 is exact."""
    x = x.least_of(16.0)
    near = (x * 16.0).op("Floor") * 0.0625
    return (near * near * sign).exp() * ((x - near) * (x + near) * sign).exp()


def _erfc(x: Tensor) -> Tensor:
    size = x.abs()
    tail = _exp_of_square(size, -1.0) * _erfcx(size)
    return where(x < 0.0, 2.0 - tail, tail)


@symbolic()
def erfc(x: Tensor) -> Tensor:
    return _erfc(*promoted(x))


@symbolic()
def special_erfcx(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    size = x.abs()
    tail = _erfcx(size)
    return where(x < 0.0, _exp_of_square(size, 1.0) * 2.0 - tail, tail)


@symbolic()
def special_ndtr(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    return _erfc(x * -math.sqrt(0.5)) * 0.5


@symbolic()
def special_log_ndtr(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    scaled = x * math.sqrt(0.5)
    below = (_erfcx(scaled.abs()) * 0.5).log() - scaled * scaled
    return where(x < -1.0, below, log1p_of(_erfc(scaled) * -0.5))


def _erfinv(x: Tensor, w: Tensor) -> Tensor:
    """Return erfinv(x) with w = -log(1 - x * x)."""
    root = w.largest_of(0.0).sqrt()
    low, middle, high = math.sqrt(5), 4.2, 10.4
    near = _polynomial(_NEAR, w * 0.4 - 1.0)
    tails = [
        root + _polynomial(series, (root - (start + end) / 2) * (2 / (end - start)))
        for series, start, end in ((_MIDDLE, low, middle), (_FAR, middle, high))
    ]
    return x * where(w < 5.0, near, where(root < middle, *tails))


@symbolic()
def erfinv(x: Tensor) -> Tensor:
    (x,) = promoted(x)
    w = -((1.0 - x) * (x + 1.0)).log()
    return where(x.abs().equals(1.0), x * INFINITY, _erfinv(x, w))


@symbolic()
def special_ndtri(p: Tensor) -> Tensor:
    (p,) = promoted(p)
    x = p * 2.0 - 1.0
    found = _erfinv(x, -(p * (1.0 - p) * 4.0).log()) * math.sqrt(2)
    return where(x.abs().equals(1.0) & (p.equals(0.0) | p.equals(1.0)), x * INFINITY, found)


# ---- modified Bessel functions ---------------------------------------------------------------------------------

_I0E = (
    -0.00274380409, -0.00181363251, 0.0149228678, 0.0113066566, -0.0358857743, -0.0325553216, 0.0507471018,
    0.0607460238, -0.05123889, -0.08598529, 0.0507491386, 0.11218182, -0.114780804, -0.043833093, 0.166945873,
    -0.185501595, 0.157885065, -0.13507443, 0.462870362,
)  # fmt: skip
"""Of sqrt(x + 1) exp(-x) I0(x) in 1 - 8 / (x + 4), for x from 0 on; to 1e-8."""
_I1E = (
    0.00248137961, 0.00256268664, -0.0130246506, -0.0151125711, 0.0292742867, 0.0411572333, -0.0362164455,
    -0.0716382177, 0.0260391834, 0.0967816881, -0.0137152029, -0.123439733, 0.0451713727, 0.129121692, -0.165467735,
    0.0577230766, 0.075305165, -0.167684711, 0.499623791,
)  # fmt: skip
"""Of (x + 1) ** 1.5 exp(-x) I1(x) / x, in the same."""


def _scaled(x: Tensor, order: int) -> Tensor:
    """Return exp(-abs(x)) I(x)."""
    size = x.abs()
    more = size + 1.0
    found = _polynomial((_I0E, _I1E)[order], 1.0 - 8.0 / (size + 4.0)) / more.sqrt()
    return where(size.isinf(), 0.0, found * (x / more) if order else found)


def _grown(x: Tensor, order: int) -> Tensor:
    """Return I(x): half of the exponential at a time, which overflows only where the result does. Of infinities it
    is NaN, as PyTorch has it."""
    half = (x.abs() * 0.5).exp()
    return _scaled(x, order) * half * half


@symbolic()
def i0(x: Tensor) -> Tensor:
    return _grown(*promoted(x), 0)


@symbolic()
def special_i0e(x: Tensor) -> Tensor:
    return _scaled(*promoted(x), 0)


@symbolic()
def special_i1(x: Tensor) -> Tensor:
    return _grown(*promoted(x), 1)


@symbolic()
def special_i1e(x: Tensor) -> Tensor:
    return _scaled(*promoted(x), 1)


@symbolic()
def special_modified_bessel_i0(x: Tensor) -> Tensor:
    return _grown(*promoted(x), 0)


@symbolic()
def special_modified_bessel_i1(x: Tensor) -> Tensor:
    return _grown(*promoted(x), 1)
