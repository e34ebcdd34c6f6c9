"""Runs of a module in which the result of one operator call is wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from conformance.models.coverage.operator_calls import CallsOfRun, disturbable, name_of, tensors_of
from conformance.models.reference.dispatch import operator_mode

Disturbance = Literal["zero", "noise", "scale", "shift"]
TENTHS: tuple[Disturbance, ...] = ("noise", "scale", "shift")
"""Disturbances by a tenth, the one that is noticed most often first: a constant factor or shift is what a
normalisation takes out again."""
SHARE = 0.1
"""How large a disturbance is, relative to the result: the factor is 1 + SHARE; shift and noise have SHARE of the mean
size of its values."""
LONGER = 4
"""How many times as many calls as usual a run may take; a loop that ends at a value may otherwise run for ever."""


class NoEnd(Exception):
    """The run called far more operators than usual after the disturbance."""


def disturb(results: list[Any], how: Disturbance) -> bool:
    """Disturb what a call gave, in place; whether a tenth of it is anything. Of zeros and infinities, as an additive
    mask has them, it is not."""
    import torch

    has_tenth = False
    for tensor in disturbable(results):
        has_tenth |= bool((torch.isfinite(tensor) & (tensor != 0)).any())
        _disturb(tensor, how)
    return has_tenth


def _disturb(tensor: Any, how: Disturbance) -> None:
    import torch

    if how == "zero":
        tensor.zero_()
    elif how == "scale":
        tensor.mul_(1 + SHARE)
    else:
        sizes = tensor.abs()
        finite = torch.isfinite(sizes)
        step = SHARE * float(sizes[finite].mean()) if finite.any() else SHARE
        if how == "shift":
            tensor.add_(step)
        else:
            generator = torch.Generator().manual_seed(0)  # the module's own randomness stays as it is
            tensor.add_(torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) * step)


def disturbed(run: CallsOfRun, index: int, how: Disturbance, products: Mapping[int, Any] | None = None) -> Any:
    """A context in which the call with this index of a run like ``run`` gives a disturbed result; of a call that
    writes to its argument, what it has written. ``products`` are results of calls after it that are known.

    ``off_course`` of what it gives is afterwards whether the run called another operator there, and ``has_tenth`` is
    what ``disturb`` said.
    """
    return _mode("torch._dynamo" in sys.modules)(run, index, how, products or {})


@cache
def _mode(compiles: bool) -> Any:
    """``compiles`` is whether PyTorch's compiler has been imported. Then it has to leave the mode alone, as under
    ``torch.cond``; else arranging for that would import it, which takes longer than importing torch."""

    mode: Any = operator_mode(compiled=compiles)

    class Disturbs(mode):
        supports_higher_order_operators = True

        def __init__(self, run: CallsOfRun, index: int, how: Disturbance, products: Mapping[int, Any]) -> None:
            super().__init__()
            before = {number: product for number, product in run.products.items() if number < index}
            self._ops, self._products = run.ops, {**before, **products}
            self._index, self._how = index, how
            self._count = 0
            self.has_tenth = self.off_course = False

        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            index, self._count = self._count, self._count + 1
            if index in self._products and name_of(func) == self._ops[index]:
                return self._products[index].clone()
            result = func(*args, **kwargs)
            if index == self._index:
                self.off_course = name_of(func) != self._ops[index]
                self.has_tenth = disturb(tensors_of(result), self._how)
            elif index > LONGER * len(self._ops) + 100:
                raise NoEnd
            return result

    return Disturbs
