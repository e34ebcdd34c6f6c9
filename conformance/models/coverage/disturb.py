"""Runs of a module in which the result of one operator call is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from conformance.models.coverage.operator_calls import CallsOfRun, disturbable, name_of, tensors_of
from conformance.models.reference.dispatch import Arguments, Keywords, Operator, OperatorCalls

if TYPE_CHECKING:
    from torch import Tensor

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


def disturb(results: list[Tensor], how: Disturbance) -> bool:
    """Disturb the results of a call in place, and return whether a tenth of it is anything. Of zeros and infinities,
    as an additive mask has them, it is not."""
    import torch

    has_tenth = False
    for tensor in disturbable(results):
        has_tenth |= bool((torch.isfinite(tensor) & (tensor != 0)).any())
        _disturb(tensor, how)
    return has_tenth


def _disturb(tensor: Tensor, how: Disturbance) -> None:
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


class Disturbed(OperatorCalls):
    """A context in which one call of a run gives a disturbed result; one that writes to its argument writes that."""

    higher_order = True

    def __init__(self, run: CallsOfRun, index: int, how: Disturbance) -> None:
        """``run`` is one like this, ``index`` that of the call."""
        super().__init__()
        self._ops = run.ops
        self._products = {number: product for number, product in run.products.items() if number < index}
        self._index, self._how = index, how
        self._count = 0
        self.has_tenth = False
        """What ``disturb`` has said."""
        self.off_course = False
        """Whether the run called another operator there."""

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
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
