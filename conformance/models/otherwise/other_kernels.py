"""Run a module by other kernels of PyTorch, which may part on NaN without the mistake of an exporter or a runtime."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from conformance.models.reference.dispatch import is_float, operator_mode


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Inside the block PyTorch takes no fused attention, no fast path of its transformers, and nothing of oneDNN."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

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
    with unfused(), _modes().Formula():
        yield


@contextlib.contextmanager
def element_by_element() -> Iterator[None]:
    """Inside the block operators on single elements compute one at a time, not several by one instruction: they do so
    of tensors whose elements are not side by side."""
    with _modes().Apart():
        yield


FUSED = re.compile(
    r"aten\.(_scaled_dot_product|_native_multi_head|_transformer|_flash|_efficient|mkldnn|binary_cross_entropy_with)"
)
"""Operators of which PyTorch has another kernel that gives other values, or another form that it documents."""

Way = Callable[[], contextlib.AbstractContextManager[None]]


def other_ways(operators: Collection[str], *, special: bool) -> list[Way]:
    """The other ways in which PyTorch computes a module that calls these operators; more of them where ``special``
    values, NaN and infinities, are among its own."""
    fused = any(map(FUSED.match, operators))
    return [
        *([unfused] if fused or special else []),
        *([by_formula] if fused else []),
        *([element_by_element] if special else []),
    ]


def note_operators(shapes: Collection[tuple[int, ...]] = ()) -> Any:
    """Return a context that notes the ``names`` of the operators that are called, the ``dtypes`` of the floats that
    they give, and those of their ``results`` that are floats of one of these ``shapes``, as arrays."""
    return _modes().Notes(shapes)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention as the documentation of ``scaled_dot_product_attention`` writes it, without dropout."""
    import torch

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
    logits: Any, target: Any, weight: Any = None, size_average: None = None, reduce: None = None,
    reduction: str = "mean", pos_weight: Any = None,
) -> Any:  # fmt: skip
    """The loss as the documentation of ``BCEWithLogitsLoss`` writes it."""
    from torch.nn.functional import logsigmoid

    positive = target * logsigmoid(logits) * (1 if pos_weight is None else pos_weight)
    loss = -(positive + (1 - target) * logsigmoid(-logits)) * (1 if weight is None else weight)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


@dataclass(frozen=True)
class _Modes:
    Apart: Any
    Formula: Any
    Notes: Any


@cache
def _modes() -> _Modes:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    mode: Any = operator_mode()

    class Notes(mode):
        def __init__(self, shapes: Collection[tuple[int, ...]]) -> None:
            super().__init__()
            self.names: set[str] = set()
            self.dtypes: set[str] = set()
            self.results: list[Any] = []
            self._shapes = shapes

        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            self.names.add(str(func).rpartition(".")[0])
            result = func(*args, **kwargs)
            for leaf in filter(is_float, tree_leaves(result)):
                self.dtypes.add(f"{leaf.dtype}".removeprefix("torch."))
                if tuple(leaf.shape) in self._shapes:
                    self.results.append(leaf.detach().double().numpy().copy())
            return result

    class Apart(mode):
        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            if torch.Tag.pointwise in func.tags and not func._schema.is_mutable:
                args, kwargs = tree_map_only(torch.Tensor, _spread, (args, kwargs))
            if func is torch.ops.aten.pow.Tensor_Scalar and is_float(args[0]):  # which takes a root for 0.5
                func, args = torch.ops.aten.pow.Tensor_Tensor, (args[0], torch.full_like(args[0], args[1]))
            return func(*args, **kwargs)

    class Formula(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.scaled_dot_product_attention:
                return _attention(*args, **(kwargs or {}))
            if func is torch.nn.functional.binary_cross_entropy_with_logits:
                return _binary_cross_entropy(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))

    def _spread(value: Any) -> Any:
        if value.layout != torch.strided or value.is_quantized or not value.dim():
            return value
        return torch.stack([value, value], -1)[..., 0]

    return _Modes(Apart, Formula, Notes)
