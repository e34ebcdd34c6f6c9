"""Run the float64 form of a module with every operator's result rounded and moved, to see what rounding decides."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from conformance.models.otherwise.rounding import MATRICES, OF_SUMS, SUMS, Rounding, Units, one_by_one
from conformance.models.reference.dispatch import Arguments, Function, Keywords, Operator, OperatorCalls
from conformance.process.arrays import Array
from conformance.process.errors import attempt

TRANSFORMS = ("aten._fft_r2c", "aten._fft_c2r", "aten._fft_c2c")
"""Fourier transforms, whose results are sums of all of a row, each times a number of size one."""

FUSED = (
    "gelu", "native_group_norm", "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "var", "std", "var_mean", "std_mean", "addcmul", "addcdiv", "lerp",
    "_softmax", "_safe_softmax", "_log_softmax", "logsumexp", "linalg_vector_norm", "_fused_rms_norm",
)  # fmt: skip
"""Operators of ``aten`` that are several by their definition, of which a graph has each. What is rounded in between
may be all that is left of their result: the mean, where equal values are normalised, or a tanh of nearly -1 in
GELU. Their sums may be long."""


def _variance(value: Tensor, dims: tuple[int, ...], correction: int = 1, **_: object) -> Tensor:
    """Return what ``prims.var`` computes, by two sums."""
    count = math.prod(value.shape[dim] for dim in dims)
    off = value - value.mean(dims, keepdim=True)
    return (off * off).sum(dims) / max(count - correction, 0)


def _var_mean(
    value: Tensor, dims: tuple[int, ...] | None = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return what ``aten.var_mean`` computes."""
    var = _decompositions()[torch.ops.aten.var.correction]
    variance = var(value, dims, correction=unbiased if correction is None else correction, keepdim=keepdim)
    total = value.sum(dims, keepdim=keepdim)
    return variance, total / (value.numel() // max(total.numel(), 1))


_OWN_PARTS: Mapping[str, Function] = {
    "prims.var.default": _variance, "aten.var_mean.correction": _var_mean, "aten.var_mean.dim": _var_mean,
}  # fmt: skip
"""Decompositions of norms come to these, of which PyTorch has no parts, or parts that import its compiler."""


@cache
def _decompositions() -> Mapping[Any, Function]:
    """Return PyTorch's decompositions of the operators of ``FUSED``; a version without these tables leaves them
    whole."""
    try:
        from torch._decomp import get_decompositions
    except ImportError:
        return {}
    packets = (getattr(torch.ops.aten, name, None) for name in FUSED)
    return dict(get_decompositions([packet for packet in packets if packet is not None]))


def _kernel(func: Operator) -> Function:
    """Return what computes an operator. One of ``prims`` is called by its function of ``aten``: PyTorch wraps its own
    kernel so that torch.compile leaves it alone, and imports its compiler for that at the first call, for seconds."""
    return getattr(func, "impl_aten", func)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().resolve_neg().numpy()


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.asarray(array))


class Rounded(OperatorCalls):
    """A context in which torch's operators round their float64 results. It sees what the dispatcher runs, scripted
    code included; of what a single operator does inside, only that of ``FUSED``, by PyTorch's own decompositions."""

    def __init__(self, rounding: Rounding) -> None:
        super().__init__()
        self._units = Units(rounding)
        self._sums, self._count = rounding.sums, 0

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        with np.errstate(all="ignore"):
            return self._called(func, args, kwargs)

    def _called(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        args = self._constants(func, args)
        name = str(func).rpartition(".")[0]
        if MATRICES.match(name):
            args = tuple(self._perturbed(arg) for arg in args)
        result = self._run(func, args, kwargs)
        if func.is_view:
            return result
        if name in SUMS and self._is_plain(result) and result.numel():
            terms = self._terms(func, name, args, kwargs, result)
            result = _tensor(self._units.summed(_array(result), *map(_array, terms)))
        if name in TRANSFORMS:
            return self._transformed(name, args, result)
        if func._schema.is_mutable:  # what is written to stays the same tensor
            tree_map_only(torch.Tensor, self._write, result)
            return result
        return tree_map_only(torch.Tensor, self._rounded, result)

    def _terms(
        self, func: Operator, name: str, args: Arguments, kwargs: Keywords, result: Tensor
    ) -> tuple[Tensor, ...]:
        """Return what the terms of a sum add up to without their signs, in as many units as it may be off, and how
        far off adding them up one by one is, where they are many."""

        def measure() -> tuple[Tensor, ...]:
            magnitude = self._of_sizes(func, args, kwargs, torch.float32)  # in half the time and memory
            if not torch.isfinite(magnitude).all():
                magnitude = self._of_sizes(func, args, kwargs, torch.float64)
            alone = one_by_one(name, args, result, magnitude)
            return (magnitude * OF_SUMS, *([] if alone is None else [alone]))

        self._count += 1
        values = result.detach().numpy()
        return self._sums.of((self._count, name, tuple(result.shape)), values, measure)

    def _of_sizes(self, func: Operator, args: Arguments, kwargs: Keywords, dtype: torch.dtype) -> Tensor:
        """Return what an operator gives for the sizes of its tensors, those of float64 in another type."""

        def size(one: Tensor) -> Tensor:
            return one.abs().to(dtype) if self._is_plain(one) else one.abs()

        sizes = tree_map_only(torch.Tensor, size, (args, kwargs))
        magnitude: Tensor = _kernel(func)(*sizes[0], **sizes[1])
        return magnitude

    def _transformed(self, name: str, args: Arguments, result: Any) -> object:
        """A transform off as its sums are; real and imaginary parts each by themselves."""
        value, dims, norm = args[:3]
        parts = torch.view_as_real(result.resolve_conj()) if result.is_complex() else result
        if not self._is_plain(parts):
            return result
        count = math.prod((result if name == "aten._fft_c2r" else value).shape[dim] for dim in dims)
        size = value.abs().sum(dims, keepdim=True) * {0: 1.0, 1: count**-0.5, 2: 1.0 / count}[norm]
        size = (size * (1 + (name == "aten._fft_c2r"))).expand(result.shape)  # of which half is not given
        size = size.unsqueeze(-1).expand(parts.shape) if result.is_complex() else size
        moved = _tensor(self._units.summed(_array(parts), _array(size) * OF_SUMS))
        return torch.view_as_complex(moved.contiguous()) if result.is_complex() else moved

    def _run(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        parts = None if func._schema.is_mutable else _decompositions().get(func)
        if str(func) in _OWN_PARTS:
            parts = _OWN_PARTS[str(func)]
        elif parts is not None and all(
            self._is_plain(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
        ):
            parts = inspect.unwrap(parts)  # without what promotes types, which imports PyTorch's compiler
        if parts is not None:
            with self:
                result = attempt(partial(parts, *args, **kwargs))
            if not isinstance(result, Exception):  # some decompositions refuse arguments that the operator takes
                return result
        return _kernel(func)(*args, **kwargs)

    def _constants(self, func: Operator, args: Arguments) -> Arguments:
        """The arguments with numbers that are computed with rounded; others may say how many values there are."""
        if torch.Tag.pointwise in func.tags:
            return tuple(map(self._constant, args))
        declared = zip(func._schema.arguments, args, strict=False)
        return tuple(self._constant(arg) if isinstance(of.type, torch.TensorType) else arg for of, arg in declared)

    def _constant(self, arg: object) -> object:
        """A number in the code of the module, such as 0.1, which a model holds rounded. What is beyond the format
        is a limit that the module takes of its own dtype."""
        if type(arg) is not float or not abs(arg) <= self._units.largest:
            return arg
        return float(self._units.rounded(np.array(arg)))

    def _perturbed(self, arg: object) -> object:
        if not self._is_plain(arg) or arg.dim() < 2 or not arg.numel():
            return arg
        return _tensor(self._units.perturbed(_array(arg)))

    def _is_plain(self, out: object) -> TypeGuard[Tensor]:
        if not isinstance(out, torch.Tensor):
            return False
        return out.dtype == torch.float64 and out.layout == torch.strided and out.device.type == "cpu"

    def _rounded(self, out: Tensor) -> Tensor:
        return _tensor(self._units.rounded(_array(out))) if self._is_plain(out) else out

    def _write(self, out: Tensor) -> Tensor:
        rounded = self._rounded(out)
        return out if rounded is out else out.copy_(rounded)
