"""Put other values in the place of those that PyTorch leaves undefined, to see what depends on them.

What some operators give is defined by nobody: neither is it the mistake of an exporter or a runtime. The module runs
again with other values there, and what changes in its outputs is open.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from conformance.models.otherwise.undefined_rules import RULES, Rule, is_integer, no_quantum, scale_of
from conformance.models.reference.dispatch import Arguments, Keywords, Operator, OperatorCalls, is_float

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor


class Undefining(Protocol):
    """A context in which results that are not defined are others."""

    rules: set[str]
    most_equal: int

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


def replace_undefined(seed: int | None) -> Undefining:
    """Return a context in which results that are not defined are others; which rules they fall under is noted.

    Without a ``seed`` it only notes them, and leaves the results as they are. As many seeds as ``most_equal`` put
    each of equal values at each of their places; of two in a row the second breaks the ties of quantizers and boxes
    the other way, and ``FILLED`` in a row have all values that there may be.
    """
    return _others()(seed)


BOXES = "torchvision.nms"
CHOOSERS = ("aten.topk", "aten.sort", "aten.kthvalue", "aten.median", "aten.nanmedian", BOXES)
"""Operators that leave open which of equal values they take, unless they are asked for a stable order."""


def leaves_open(operators: Collection[str]) -> bool:
    """Return whether some of these operators may leave a result undefined, or open which of equal values it takes."""
    return any(name in CHOOSERS or any(rule.operators.match(name) for rule in RULES) for name in operators)


FILLED = (math.nan, 0.0, math.inf, 1.0, -math.inf)
"""What takes the place of values that are not defined."""

_NEAR = 4 * float(np.finfo(np.float32).eps)
"""How near to a tie a quotient has to be, relative to itself, for another order of its rounding to decide."""


def _as_searched(args: Arguments, kwargs: Keywords) -> Arguments:
    """Return the arguments, with a sequence that is searched in the order of its ``sorter``."""
    sorter = kwargs.get("sorter")
    return args if sorter is None else (args[0].gather(-1, sorter), *args[1:])


_MOVES = re.compile(
    r"aten\.(clone|copy_?|_to_copy|cat|stack|index|select|gather|scatter|where|masked_fill|clamp|relu|neg|abs|max|min|"
    r"amax|amin|maximum|minimum|fmax|fmin|topk|sort|flip|roll|repeat|constant_pad_nd|round|floor|ceil|trunc|sign)"
)
"""Operators whose results are values of their arguments, or whole numbers: nothing is rounded."""


def _ranks(scores: Tensor, near: float) -> Tensor:
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

    places: Tensor
    first: Tensor
    end: Tensor
    """For each place, the first one of the values that are equal there, and the one after the last."""
    dim: int

    @property
    def most_equal(self) -> int:
        return int((self.end - self.first).max())

    def turned(self, by: int) -> Tensor:
        """Return for each value its place, after equal ones have moved on by some places, the last one to the first:
        after as many turns as there are equal ones each has been everywhere."""
        import torch

        place = self.first + (torch.arange(self.first.shape[-1]) - self.first + by) % (self.end - self.first)
        return torch.empty_like(place).scatter(-1, self.places, place).movedim(-1, self.dim).double()


def _in_row(ranks: Tensor, dim: int, rng: np.random.Generator) -> _InRow:
    import torch

    ranks = ranks.movedim(dim, -1).contiguous()
    places = (ranks + torch.from_numpy(rng.uniform(0, 0.5, size=tuple(ranks.shape)))).argsort(-1)
    ordered = ranks.gather(-1, places)
    first, end = (torch.searchsorted(ordered, ordered, right=right) for right in (False, True))
    return _InRow(places, first, end, dim)


@cache
def _others() -> Callable[[int | None], Undefining]:
    import torch
    from torch.utils._pytree import tree_leaves, tree_map_only

    class Others(OperatorCalls):
        def __init__(self, seed: int | None) -> None:
            super().__init__()
            self.rules: set[str] = set()
            self.most_equal = 1
            self._seed = seed or 0
            self._same = np.random.default_rng(0)
            self._rounded: dict[int, Tensor] = {}
            self._rng = None if seed is None else np.random.default_rng(seed // 2)
            self._direction = -1.0 if self._seed % 2 else 1.0

        def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
            name = str(func).rpartition(".")[0]
            if name == BOXES:
                return self._kept(func, *args, **kwargs)
            if name in CHOOSERS:
                return self._chosen(func, args, kwargs)
            rule = next((rule for rule in RULES if rule.operators.match(name)), None)
            if rule is None:
                result = func(*args, **kwargs)
                self._note_rounded(func, name, (args, kwargs), result)
                return result
            if rule.name == "quantizer" and is_float(args[0]):
                return func(self._quantized(func, args), *args[1:], **kwargs)
            result = func(*args, **kwargs)
            replaced = tree_map_only(
                torch.Tensor, lambda out: self._replaced(rule, func, _as_searched(args, kwargs), out), result
            )
            return result if func._schema.is_mutable else replaced

        def _note_rounded(self, func: Operator, name: str, arguments: object, result: object) -> None:
            if func.is_view or (_MOVES.match(name) and not any(map(self._is_rounded, tree_leaves(arguments)))):
                return
            for out in filter(is_float, tree_leaves(result)):
                if out.layout == torch.strided:
                    self._rounded[out.untyped_storage()._cdata] = out  # which keeps the number its own

        def _is_rounded(self, value: object) -> bool:
            """Return whether a tensor has values that were computed, which others may round otherwise."""
            if not is_float(value) or value.layout != torch.strided:
                return False
            return value.untyped_storage()._cdata in self._rounded

        def _chosen(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
            """The result with the places of others among equal values, and among values that are equal up to their
            last bits, where they were computed."""
            result, values = func(*args, **kwargs), args[0]
            if kwargs.get("stable") or not isinstance(result, tuple) or not values.dim() or not values.numel():
                return result
            named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
            row = _in_row(self._ranks(values), {**named, **kwargs}.get("dim", -1), self._same)
            if row.most_equal == 1:
                return result
            self.rules.add("ties")
            self.most_equal = max(self.most_equal, row.most_equal)
            if self._rng is None:
                return result
            apart = row.turned(self._seed)
            if "median" in str(func):  # which leaves NaN out, or is NaN
                apart = torch.where(values.isnan(), math.nan, apart)
            return result[0], func(apart, *args[1:], **kwargs)[1]

        def _kept(self, func: Operator, boxes: Tensor, scores: Tensor, threshold: float) -> object:
            """The boxes that stay: any of those with a NaN or an infinity among them; else those that stay with the
            corners of each in order, equal scores in another one, and another rounding of overlaps."""
            result = func(boxes, scores, threshold)
            if not bool(boxes.isfinite().all() and scores.isfinite().all()):
                self.rules.add("boxes")
                kept = (0, len(scores) // 2, len(scores))[self._seed % 3]
                return result if self._rng is None else torch.from_numpy(self._rng.permutation(len(scores))[:kept])
            ranks = self._ranks(scores)
            equal = int(ranks.unique(return_counts=True)[1].max()) if len(ranks) else 1
            low, high = boxes.double().split(2, dim=1)
            near = [func(boxes.double(), ranks, threshold * (1 + step * _NEAR)) for step in (0, -1, 1)]
            holds = {
                "ties": equal > 1,
                "corners": bool((low > high).any()),
                "overlap": not (torch.equal(near[0], near[1]) and torch.equal(near[0], near[2])),
            }
            self.rules.update(name for name in holds if holds[name])
            self.most_equal = max(self.most_equal, equal)
            if self._rng is None or not any(holds.values()):
                return result
            in_order = torch.arange(len(ranks)) / max(len(ranks), 1)
            by = in_order if self._seed < 2 else torch.from_numpy(self._rng.uniform(-1, 1, size=len(ranks)))
            step = (0, -1, 1)[self._seed // 2 % 3]
            in_corners = torch.cat([torch.minimum(low, high), torch.maximum(low, high)], 1)
            # of two that overlap, either has to come first
            return func(in_corners, ranks + self._direction * 0.2 * by, threshold * (1 + step * _NEAR))

        def _ranks(self, values: Tensor) -> Tensor:
            return _ranks(values, _NEAR if self._is_rounded(values) else 0.0)

        def _quantized(self, func: Operator, args: Arguments) -> Tensor:
            """The values with others for those that are no numbers of a quantizer, and on either side of a tie that
            the rounding of their quotient decides."""
            value: Tensor = args[0]
            scale, bad = scale_of(args), no_quantum(func, args, value)
            quotient = value.double() / scale
            tie = quotient.floor() + 0.5
            near = (quotient - tie).abs() <= _NEAR * quotient.abs()
            near &= (quotient.float().double() != quotient) & ~bad
            self.rules.update(["quantizer"] * bool(bad.any()), ["tie"] * bool(near.any()))
            if self._rng is None or not bool((bad | near).any()):
                return value
            side = torch.from_numpy(self._direction * self._rng.choice([-0.25, 0.25], size=tuple(value.shape)))
            other = torch.where(near, tie + side, (-1e6, 0.0, 1e6)[self._seed % 3]) * scale
            return torch.where(bad | near, other.to(value.dtype), value)

        def _replaced(self, rule: Rule, func: Operator, args: Arguments, out: Tensor) -> Tensor:
            number = out.is_floating_point() or out.is_complex()
            if not (number or rule.name in ("cast", "search")) or out.is_quantized:
                return out
            mask = rule.undefined(func, args, out)
            if mask is None or not bool(mask.any()):
                return out
            self.rules.add(rule.name)
            if self._rng is None:
                return out
            other = torch.where(mask, self._filled(out), out)
            return out.copy_(other) if func._schema.is_mutable else other

        def _filled(self, out: Tensor) -> Tensor:
            """A tensor like this one, of a value that it may as well have."""
            if not is_integer(out):
                value = FILLED[self._seed % len(FILLED)]
                return torch.full_like(out, complex(value, value) if out.is_complex() else value)
            limits = torch.iinfo(out.dtype)
            return torch.full_like(out, (limits.min, 0, limits.max)[self._seed % 3])

    return Others
