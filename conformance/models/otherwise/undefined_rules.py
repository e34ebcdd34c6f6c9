"""The operators of PyTorch whose results nobody defines for some inputs, and which elements these are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from conformance.models.otherwise.rounding import MATRICES
from conformance.models.reference.dispatch import Arguments, Operator, is_float

if TYPE_CHECKING:
    from torch import Tensor

    from conformance.process.arrays import Array

TensorOrArray = TypeVar("TensorOrArray", "Tensor", "Array")
Mask = Callable[[Operator, Arguments, "Tensor"], "Tensor | None"]
"""Gets an operator, its arguments and one tensor of its result, and marks the elements that are not defined."""


@dataclass(frozen=True)
class Rule:
    """Operators whose results are not defined for some inputs."""

    name: str
    """As ``results.records.details`` words it, with its source."""
    operators: re.Pattern[str]
    undefined: Mask


def _no_integer(func: Operator, args: Arguments, out: Tensor) -> Tensor | None:
    """Floats that an integer does not hold, made integers."""
    import torch

    source = args[1] if func._schema.is_mutable else args[0]
    if not (is_float(source) and is_integer(out)):
        return None
    limits, source = torch.iinfo(out.dtype), source.double()
    return ~((source > limits.min - 1.0) & (source < limits.max + 1.0)).expand(out.shape)


def no_quantum(func: Operator, args: Arguments, out: Tensor) -> Tensor:
    """Values that a quantizer takes for an integer of 32 bits before it holds them to its range."""
    quotient: Tensor = args[0] / scale_of(args)
    return ~(quotient.abs() < 2.0**31)


def _transformed(func: Operator, args: Arguments, out: Tensor) -> Tensor | None:
    """Rows that are transformed with an infinity or NaN among them: in which order zeros and infinities are
    multiplied and added decides on what each element becomes."""
    bad: Tensor = ~args[0].isfinite()
    dims = [dim % bad.dim() for dim in args[1]]
    return bad.any(dim=dims, keepdim=True).expand(out.shape) if bad.dim() == out.dim() else None


def _factored(func: Operator, args: Arguments, out: Tensor) -> Tensor | None:
    """Matrices that are factored, or solved for, with an infinity or NaN in them."""
    if args[0].dim() < 2:
        return None
    bad: Tensor = (~args[0].isfinite()).any(-1).any(-1)
    if out.shape[: bad.dim()] != bad.shape:
        return None
    return bad.reshape(*bad.shape, *[1] * (out.dim() - bad.dim())).expand(out.shape)


def _sampled(func: Operator, args: Arguments, out: Tensor) -> Tensor:
    """Samples at a place that is no number, where PyTorch gives something else than it says: "NaN values in grid
    would be interpreted as -1", and what is beyond the border is padded; by reflections (2) an infinity never is."""
    meant: Tensor = func(args[0], args[1].nan_to_num(-1.0, 1e4, -1e4), *args[2:])
    parts = (meant != out) & ~(meant.isnan() & out.isnan())
    odd, endless = (each.any(-1).unsqueeze(1) for each in (~args[1].isfinite(), args[1].isinf()))
    found: Tensor = odd & (parts | (endless & (args[3] == 2)))
    return found


def _cropped(func: Operator, args: Arguments, out: Tensor) -> Tensor | None:
    """Regions whose corners are no numbers."""
    bad: Tensor = (~args[1].isfinite()).any(-1)
    if out.shape[:1] != bad.shape:
        return None
    return bad.reshape(-1, *[1] * (out.dim() - 1)).expand(out.shape)


def _multiplied(func: Operator, args: Arguments, out: Tensor) -> Tensor | None:
    """Products that go beyond the format in some orders of their factors, and end elsewhere in others."""
    import torch

    factors = args[0]
    if not out.is_floating_point() or not factors.is_floating_point():
        return None
    form, logs = torch.finfo(out.dtype), factors.double().abs().log2()
    most, least = math.log2(form.max), math.log2(form.smallest_normal)
    if "cumprod" in str(func):
        add = partial(torch.cumsum, dim=args[1])
    else:
        add = partial(torch.sum, dim=args[1] if len(args) > 1 else list(range(factors.dim())))
    up, down = add(logs.clamp(min=0)), add(logs.clamp(max=0))
    in_between = ((up >= most) & ((up + down < most) | (down < least))) | ((down < least) & (up + down > least))
    nan = (add(factors.isnan()) > 0) | ((add(factors == 0) > 0) & (add(factors.isinf()) > 0))  # in any order
    return (in_between & ~nan).reshape(out.shape)


def beyond_in_between(
    up: TensorOrArray, down: TensorOrArray, most: float, high: TensorOrArray, low: TensorOrArray, *, either_sign: bool
) -> TensorOrArray:
    """Return for which sums the order of their terms decides whether they go beyond the format, or are NaN.

    ``up`` and ``down`` are the sums of the finite terms of each sign, ``high`` and ``low`` say where an infinity of
    either sign is among the terms; tensors or arrays of one shape. ``either_sign``: terms of one sign count too.
    """
    over, under = up >= most, down <= -most
    finite = (over | under) & (((up > 0) & (down < 0)) | either_sign)
    return (finite & ~high & ~low) | (high & under & ~low) | (low & over & ~high)


def _added(func: Operator, args: Arguments, out: Tensor) -> Tensor | None:
    """Sums that go beyond the format in some orders of their terms, and means also where all terms have one sign:
    they may be divided before they are added."""
    import torch

    terms = args[0]
    if not out.is_floating_point() or not terms.is_floating_point():
        return None
    most, values = torch.finfo(out.dtype).max, terms.double()
    if "cumsum" in str(func):
        add = partial(torch.cumsum, dim=args[1])
    else:
        add = partial(torch.sum, dim=(args[1] if len(args) > 1 else None) or list(range(terms.dim())))
    finite = torch.where(values.isfinite(), values, 0.0)
    up, down = add(finite.clamp(min=0)), add(finite.clamp(max=0))
    high, low, nan = (add(each.double()) > 0 for each in (values == math.inf, values == -math.inf, values.isnan()))
    beyond = beyond_in_between(up, down, most, high, low, either_sign="mean" in str(func))
    return (beyond & ~nan).reshape(out.shape)


def _searched(func: Operator, args: Arguments, out: Tensor) -> Tensor:
    """All that is found in a sequence that does not ascend, or has NaN in it."""
    sequence: Tensor = args[0] if "searchsorted" in str(func) else args[1]
    ascends = (sequence[..., 1:] >= sequence[..., :-1]).all(-1) & ~sequence.isnan().any(-1)
    return (~ascends).unsqueeze(-1).expand(out.shape) if sequence.dim() > 1 else (~ascends).expand(out.shape)


RULES = (
    Rule("cast", re.compile(r"aten\.(_to_copy|copy_)"), _no_integer),
    Rule("quantizer", re.compile(r"(aten|quantized_decomposed)\._?(fake_)?quantize_"), no_quantum),
    Rule("search", re.compile(r"aten\.(bucketize|searchsorted)"), _searched),
    Rule("transform", re.compile(r"aten\._fft_"), _transformed),
    Rule("matrix", MATRICES, _factored),
    Rule("order", re.compile(r"aten\.(cum)?prod"), _multiplied),
    Rule("order", re.compile(r"aten\.((cum)?sum|mean)$"), _added),
    Rule("place", re.compile(r"aten\._?grid_sampler"), _sampled),
    Rule("place", re.compile(r"torchvision\.(roi|ps_roi)_"), _cropped),
)


def is_integer(value: Tensor) -> bool:
    import torch

    return not (value.is_floating_point() or value.is_complex() or value.is_quantized or value.dtype is torch.bool)


def scale_of(args: Arguments) -> Tensor | float:
    """The scale of a quantizer's arguments, as it is multiplied with the values."""
    import torch

    value: Tensor = args[0]
    scale: Tensor | float = args[1]
    if not isinstance(scale, torch.Tensor) or scale.numel() == 1:
        return scale
    axis = next((arg for arg in args[3:] if type(arg) is int), 0)
    return scale.reshape([-1 if dim == axis else 1 for dim in range(value.dim())])
