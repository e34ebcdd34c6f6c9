"""Run a module by other kernels of PyTorch, which may part on NaN without the mistake of an exporter or a runtime."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Collection, Iterator

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import logsigmoid
from torch.utils._pytree import tree_leaves, tree_map_only

from conformance.models.reference.dispatch import (
    Arguments,
    Function,
    FunctionCalls,
    Keywords,
    Operator,
    OperatorCalls,
    Way,
    is_float,
)
from conformance.process.arrays import Array


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Inside the block PyTorch takes no fused attention, no fast path of its transformers, and nothing of oneDNN."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")  # setting oneDNN's flags warns of those for other hardware
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextlib.contextmanager
def by_formula() -> Iterator[None]:
    """Inside the block attention is what its documentation writes it as, but for rows of which a mask leaves nothing,
    which all of PyTorch's kernels make zero; and so is the binary cross entropy of logits."""
    with unfused(), _ByFormula():
        yield


@contextlib.contextmanager
def element_by_element() -> Iterator[None]:
    """Inside the block operators on single elements compute one at a time, not several by one instruction: they do so
    of tensors whose elements are not side by side."""
    with _Apart():
        yield


FUSED = re.compile(
    r"aten\.(_scaled_dot_product|_native_multi_head|_transformer|_flash|_efficient|mkldnn|binary_cross_entropy_with)"
)
"""Operators of which PyTorch has another kernel that gives other values, or another form that it documents."""


def other_ways(operators: Collection[str], *, special: bool) -> list[Way]:
    """The other ways in which PyTorch computes a module that calls these operators; more of them where ``special``
    values, NaN and infinities, are among its own."""
    fused = any(map(FUSED.match, operators))
    return [
        *([unfused] if fused or special else []),
        *([by_formula] if fused else []),
        *([element_by_element] if special else []),
    ]


DROPPING = ("aten.native_dropout", "aten.dropout", "aten.bernoulli_")
"""Operators by which values are dropped at random."""


def _named(func: Operator, args: Arguments, kwargs: Keywords) -> Keywords:
    named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
    return {**named, **kwargs}


class NotedOperators(OperatorCalls):
    """A context that notes which operators are called, and what they give."""

    def __init__(self, shapes: Collection[tuple[int, ...]] = ()) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.training: set[str] = set()
        """Those of the operators that compute as in training."""
        self.dtypes: set[str] = set()
        """Those of the floats that the operators give."""
        self.results: list[Array] = []
        """The floats of one of the ``shapes`` that the operators give."""
        self._shapes = shapes

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        name = str(func).rpartition(".")[0]
        self.names.add(name)
        if name in DROPPING or ("batch_norm" in name and _named(func, args, kwargs).get("training")):
            self.training.add(name)
        result = func(*args, **kwargs)
        for leaf in filter(is_float, tree_leaves(result)):
            self.dtypes.add(f"{leaf.dtype}".removeprefix("torch."))
            if tuple(leaf.shape) in self._shapes:
                self.results.append(leaf.detach().double().numpy().copy())
        return result


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Attention as the documentation of ``scaled_dot_product_attention`` writes it, without dropout."""
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    bias = torch.zeros(query.size(-2), key.size(-2), dtype=query.dtype)
    if is_causal:
        attn_mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril()
    if attn_mask is not None:
        bias = torch.where(attn_mask, 0.0, -math.inf) if attn_mask.dtype is torch.bool else attn_mask
    scores = query @ key.transpose(-2, -1) * (query.size(-1) ** -0.5 if scale is None else scale)
    weights = torch.softmax(scores + bias.to(query.dtype), -1)
    return torch.where((bias == -math.inf).all(-1, keepdim=True), 0.0, weights) @ value


def _binary_cross_entropy(
    logits: Tensor, target: Tensor, weight: Tensor | None = None, size_average: None = None, reduce: None = None,
    reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The loss as the documentation of ``BCEWithLogitsLoss`` writes it."""
    positive = target * logsigmoid(logits) * (1 if pos_weight is None else pos_weight)
    loss = -(positive + (1 - target) * logsigmoid(-logits)) * (1 if weight is None else weight)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


class _Apart(OperatorCalls):
    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        if torch.Tag.pointwise in func.tags and not func._schema.is_mutable:
            args, kwargs = tree_map_only(torch.Tensor, _spread, (args, kwargs))
        if func is torch.ops.aten.pow.Tensor_Scalar and is_float(args[0]):  # which takes a root for 0.5
            func, args = torch.ops.aten.pow.Tensor_Tensor, (args[0], torch.full_like(args[0], args[1]))
        return func(*args, **kwargs)


class _ByFormula(FunctionCalls):
    def call(self, func: Function, args: Arguments, kwargs: Keywords) -> object:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func is torch.nn.functional.binary_cross_entropy_with_logits:
            return _binary_cross_entropy(*args, **kwargs)
        return func(*args, **kwargs)


def _spread(value: Tensor) -> Tensor:
    """Return a tensor of the same values, whose elements are not side by side."""
    if value.layout != torch.strided or value.is_quantized or not value.dim():
        return value
    return torch.stack([value, value], -1)[..., 0]
