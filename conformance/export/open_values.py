"""Find the values that PyTorch leaves open, by its other kernels, and by other values where none is defined.

Two of PyTorch's kernels may compute the same operator and part on NaN, and what some operators give is defined by
nobody. Neither is the mistake of an exporter or a runtime. Each is tried: the module runs again, and what changes in
its outputs is open.
"""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from conformance.export.dispatch import operator_mode
from conformance.export.rounding import MATRICES

Mask = Callable[[Any, Sequence[Any], Any], Any]
"""Gets an operator, its arguments and one tensor of its result, and marks the elements that are not defined."""


@dataclass(frozen=True)
class Rule:
    """Operators whose results are not defined for some inputs."""

    name: str
    """As ``records.open_rules`` words it, with its source."""
    operators: re.Pattern[str]
    undefined: Mask


# ---- other kernels -----------------------------------------------------------------------------------------------


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


class Operators:
    """A context that notes the ``names`` of the operators that are called, and those of their ``results`` that are
    floats of one of these ``shapes``, as arrays."""

    def __init__(self, shapes: Collection[tuple[int, ...]] = ()) -> None:
        self.names: set[str] = set()
        self.results: list[Any] = []
        self._mode = _modes().Notes(self, shapes)

    def __enter__(self) -> Operators:
        self._mode.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._mode.__exit__(*raised)


# ---- what is not defined -----------------------------------------------------------------------------------------


class Undefined:
    """A context in which results that are not defined are others; which rules they fall under is noted."""

    def __init__(self, seed: int | None) -> None:
        """Without a ``seed`` it only notes them, and leaves the results as they are. As many seeds as ``most_equal``
        put each of equal values at each of their places; of two in a row the second breaks the ties of quantizers and
        boxes the other way, and ``FILLED`` in a row have all values that there may be."""
        self.rules: set[str] = set()
        self.most_equal = 1
        self._mode = _modes().Others(self, seed)

    def __enter__(self) -> Undefined:
        self._mode.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._mode.__exit__(*raised)


def _no_integer(func: Any, args: Sequence[Any], out: Any) -> Any:
    """Floats that an integer does not hold, made integers."""
    import torch

    source = args[1] if func._schema.is_mutable else args[0]
    if not (_is_float(source) and _is_integer(out)):
        return None
    limits, source = torch.iinfo(out.dtype), source.double()
    return ~((source > limits.min - 1.0) & (source < limits.max + 1.0)).expand(out.shape)


def _no_quantum(func: Any, args: Sequence[Any], out: Any) -> Any:
    """Values that a quantizer takes for an integer of 32 bits before it holds them to its range."""
    return ~((args[0] / _by_channel(args)).abs() < 2.0**31)


def _transformed(func: Any, args: Sequence[Any], out: Any) -> Any:
    """Rows that are transformed with an infinity or NaN among them: in which order zeros and infinities are
    multiplied and added decides on what each element becomes."""
    bad = ~args[0].isfinite()
    dims = [dim % bad.dim() for dim in args[1]]
    return bad.any(dim=dims, keepdim=True).expand(out.shape) if bad.dim() == out.dim() else None


def _factored(func: Any, args: Sequence[Any], out: Any) -> Any:
    """Matrices that are factored, or solved for, with an infinity or NaN in them."""
    if args[0].dim() < 2:
        return None
    bad = (~args[0].isfinite()).any(-1).any(-1)
    if out.shape[: bad.dim()] != bad.shape:
        return None
    return bad.reshape(*bad.shape, *[1] * (out.dim() - bad.dim())).expand(out.shape)


def _sampled(func: Any, args: Sequence[Any], out: Any) -> Any:
    """Samples at a place that is no number."""
    return (~args[1].isfinite()).any(-1).unsqueeze(1).expand(out.shape)


def _cropped(func: Any, args: Sequence[Any], out: Any) -> Any:
    """Regions whose corners are no numbers."""
    bad = (~args[1].isfinite()).any(-1)
    if out.shape[:1] != bad.shape:
        return None
    return bad.reshape(-1, *[1] * (out.dim() - 1)).expand(out.shape)


def _multiplied(func: Any, args: Sequence[Any], out: Any) -> Any:
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


RULES = (
    Rule("cast", re.compile(r"aten\.(_to_copy|copy_)"), _no_integer),
    Rule("quantizer", re.compile(r"(aten|quantized_decomposed)\._?(fake_)?quantize_"), _no_quantum),
    Rule("transform", re.compile(r"aten\._fft_"), _transformed),
    Rule("matrix", MATRICES, _factored),
    Rule("order", re.compile(r"aten\.(cum)?prod"), _multiplied),
    Rule("place", re.compile(r"aten\._?grid_sampler"), _sampled),
    Rule("place", re.compile(r"torchvision\.(roi|ps_roi)_"), _cropped),
)

CHOOSERS = ("aten.topk", "aten.sort", "aten.kthvalue", "aten.median", "aten.nanmedian", "torchvision.nms")
"""Operators that leave open which of equal values they take, unless they are asked for a stable order."""


def leaves_open(operators: Collection[str]) -> bool:
    """Return whether some of these operators may leave a result undefined, or open which of equal values it takes."""
    return any(name in CHOOSERS or any(rule.operators.match(name) for rule in RULES) for name in operators)


FILLED = (math.nan, 0.0, math.inf, 1.0, -math.inf)
"""What takes the place of values that are not defined."""

_NEAR = 4 * float(np.finfo(np.float32).eps)
"""How near to a tie a quotient has to be, relative to itself, for another order of its rounding to decide."""


def _is_float(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_integer(value: Any) -> bool:
    import torch

    return not (value.is_floating_point() or value.is_complex() or value.is_quantized or value.dtype is torch.bool)


def _by_channel(args: Sequence[Any]) -> Any:
    """The scale of a quantizer's arguments, as it is multiplied with the values."""
    import torch

    value, scale = args[0], args[1]
    if not isinstance(scale, torch.Tensor) or scale.numel() == 1:
        return scale
    axis = next((arg for arg in args[3:] if type(arg) is int), 0)
    return scale.reshape([-1 if dim == axis else 1 for dim in range(value.dim())])


_MOVES = re.compile(
    r"aten\.(clone|copy_?|_to_copy|cat|stack|index|select|gather|scatter|where|masked_fill|clamp|relu|neg|abs|max|min|"
    r"amax|amin|maximum|minimum|fmax|fmin|topk|sort|flip|roll|repeat|constant_pad_nd|round|floor|ceil|trunc|sign)"
)
"""Operators whose results are values of their arguments, or whole numbers: nothing is rounded."""


def _ranks(scores: Any, near: float) -> Any:
    """Return the place of each value among all that are distinct, from 0; NaN comes last, as PyTorch sorts it. Values
    that are ``near``, relative to their size, are one."""
    import torch

    values, places = torch.unique(scores.double().nan_to_num(math.inf, math.inf, -math.inf), return_inverse=True)
    apart = values.diff() > near * values.abs()[1:]
    ranks = torch.cat([torch.zeros(1), apart.double().cumsum(0)])
    return torch.where(scores.isnan(), ranks[-1] + 1, ranks[places])


@dataclass(frozen=True)
class _InRow:
    """Values as they stand in a row along a dim; those that are equal in an order of chance, always the same."""

    places: Any
    first: Any
    end: Any
    """For each place, the first one of the values that are equal there, and the one after the last."""
    dim: int

    @property
    def most_equal(self) -> int:
        return int((self.end - self.first).max())

    def turned(self, by: int) -> Any:
        """Return for each value its place, after equal ones have moved on by some places, the last one to the first:
        after as many turns as there are equal ones each has been everywhere."""
        import torch

        place = self.first + (torch.arange(self.first.shape[-1]) - self.first + by) % (self.end - self.first)
        return torch.empty_like(place).scatter(-1, self.places, place).movedim(-1, self.dim).double()


def _in_row(ranks: Any, dim: int, rng: np.random.Generator) -> _InRow:
    import torch

    ranks = ranks.movedim(dim, -1).contiguous()
    places = (ranks + torch.from_numpy(rng.uniform(0, 0.5, size=tuple(ranks.shape)))).argsort(-1)
    ordered = ranks.gather(-1, places)
    first, end = (torch.searchsorted(ordered, ordered, right=right) for right in (False, True))
    return _InRow(places, first, end, dim)


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
    Others: Any


@cache
def _modes() -> _Modes:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    mode: Any = operator_mode()

    class Notes(mode):
        def __init__(self, noted: Operators, shapes: Collection[tuple[int, ...]]) -> None:
            super().__init__()
            self._noted, self._shapes = noted, shapes

        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            self._noted.names.add(str(func).rpartition(".")[0])
            result = func(*args, **kwargs)
            for leaf in tree_leaves(result) if self._shapes else ():
                if _is_float(leaf) and tuple(leaf.shape) in self._shapes:
                    self._noted.results.append(leaf.detach().double().numpy().copy())
            return result

    class Apart(mode):
        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            if torch.Tag.pointwise in func.tags and not func._schema.is_mutable:
                args, kwargs = tree_map_only(torch.Tensor, _spread, (args, kwargs))
            if func is torch.ops.aten.pow.Tensor_Scalar and _is_float(args[0]):  # which takes a root for 0.5
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

    class Others(mode):
        def __init__(self, noted: Undefined, seed: int | None) -> None:
            super().__init__()
            self._noted, self._rules, self._seed = noted, noted.rules, seed or 0
            self._same = np.random.default_rng(0)
            self._rounded: dict[int, Any] = {}
            self._rng = None if seed is None else np.random.default_rng(seed // 2)
            self._direction = -1.0 if self._seed % 2 else 1.0

        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            name = str(func).rpartition(".")[0]
            if name in CHOOSERS:
                return self._chosen(func, name, args, kwargs)
            rule = next((rule for rule in RULES if rule.operators.match(name)), None)
            if rule is None:
                result = func(*args, **kwargs)
                self._note_rounded(func, name, (args, kwargs), result)
                return result
            if rule.name == "quantizer" and _is_float(args[0]):
                return func(self._quantized(rule, func, args), *args[1:], **kwargs)
            result = func(*args, **kwargs)
            replaced = tree_map_only(torch.Tensor, lambda out: self._replaced(rule, func, args, out), result)
            return result if func._schema.is_mutable else replaced

        def _note_rounded(self, func: Any, name: str, given: Any, result: Any) -> None:
            if func.is_view or (_MOVES.match(name) and not any(map(self._is_rounded, tree_leaves(given)))):
                return
            for out in filter(_is_float, tree_leaves(result)):
                if out.layout == torch.strided:
                    self._rounded[out.untyped_storage()._cdata] = out  # which keeps the number its own

        def _is_rounded(self, value: Any) -> bool:
            """Return whether a tensor has values that were computed, which others may round otherwise."""
            plain = _is_float(value) and value.layout == torch.strided
            return plain and value.untyped_storage()._cdata in self._rounded

        def _chosen(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
            """The result with the places of others among equal values, and among scores that are equal up to their
            last bits, where they were computed."""
            result, of_boxes = func(*args, **kwargs), name == "torchvision.nms"
            scores = args[1] if of_boxes else args[0]
            odd = [~arg.isfinite() for arg in args if _is_float(arg)] if of_boxes else []
            if any(bool(each.any()) for each in odd):
                self._rules.add("boxes")
                if self._rng is None:
                    return result
                kept = (0, len(scores) // 2, len(scores))[self._seed % 3]
                return torch.from_numpy(self._rng.permutation(len(scores))[:kept])
            ties = not kwargs.get("stable") and (of_boxes or isinstance(result, tuple)) and scores.dim()
            if not ties or not scores.numel():
                return result
            named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
            ranks = _ranks(scores, _NEAR if self._is_rounded(scores) else 0.0)
            row = _in_row(ranks, {**named, **kwargs}.get("dim", -1), self._same)
            if row.most_equal == 1:
                return result
            self._rules.add("ties")
            self._noted.most_equal = max(self._noted.most_equal, row.most_equal)
            if self._rng is None:
                return result
            apart = row.turned(self._seed)
            if of_boxes:  # of two that overlap, either has to come first
                apart = ranks + torch.from_numpy(self._direction * self._rng.uniform(-0.2, 0.2, size=len(ranks)))
            if "median" in name:  # which leaves NaN out, or is NaN
                apart = torch.where(scores.isnan(), math.nan, apart)
            if of_boxes:
                return func(args[0].double(), apart, *args[2:], **kwargs)
            return result[0], func(apart, *args[1:], **kwargs)[1]

        def _quantized(self, rule: Rule, func: Any, args: Any) -> Any:
            """The values with others for those that are no numbers of a quantizer, and on either side of a tie that
            the rounding of their quotient decides."""
            value, scale = args[0], _by_channel(args)
            bad = rule.undefined(func, args, value)
            quotient = value.double() / scale
            tie = quotient.floor() + 0.5
            near = (quotient - tie).abs() <= _NEAR * quotient.abs()
            near &= (quotient.float().double() != quotient) & ~bad
            self._rules.update([rule.name] * bool(bad.any()), ["tie"] * bool(near.any()))
            if self._rng is None or not bool((bad | near).any()):
                return value
            side = torch.from_numpy(self._direction * self._rng.choice([-0.25, 0.25], size=tuple(value.shape)))
            other = torch.where(near, tie + side, (-1e6, 0.0, 1e6)[self._seed % 3]) * scale
            return torch.where(bad | near, other.to(value.dtype), value)

        def _replaced(self, rule: Rule, func: Any, args: Any, out: Any) -> Any:
            number = out.is_floating_point() or out.is_complex()
            if not (number or rule.name == "cast") or out.is_quantized:
                return out
            mask = rule.undefined(func, args, out)
            if mask is None or not bool(mask.any()):
                return out
            self._rules.add(rule.name)
            if self._rng is None:
                return out
            other = torch.where(mask, self._filled(out), out)
            return out.copy_(other) if func._schema.is_mutable else other

        def _filled(self, out: Any) -> Any:
            """A tensor like this one, of a value that it may as well have."""
            if not _is_integer(out):
                value = FILLED[self._seed % len(FILLED)]
                return torch.full_like(out, complex(value, value) if out.is_complex() else value)
            limits = torch.iinfo(out.dtype)
            return torch.full_like(out, (limits.min, 0, limits.max)[self._seed % 3])

    return _Modes(Apart, Formula, Notes, Others)
