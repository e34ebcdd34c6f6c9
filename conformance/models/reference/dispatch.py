"""The bases of all that watches PyTorch's operators and functions as they are called, or computes something else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from conformance.process.errors import or_else

if TYPE_CHECKING:
    from typing import Self

    from torch import Tensor
    from torch._ops import OpOverload

Arguments: TypeAlias = tuple[Any, ...]
"""The arguments of an operator by place: tensors, numbers, lists of either."""
Keywords: TypeAlias = dict[str, Any]
"""The arguments of an operator by name."""
Operator: TypeAlias = "OpOverload[..., Any]"
"""What is called; a higher-order operator has a name alone."""
Function: TypeAlias = Callable[..., Any]
"""A function of PyTorch as Python calls it."""
Way: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Makes a context in which PyTorch computes the same otherwise."""


class OperatorCalls:
    """A context inside which each call of an operator is given to ``call``.

    PyTorch's compiler leaves such a context alone only where it may meet higher-order operators, as it has to under
    ``torch.cond``, and only once it is imported: arranging for that imports it, which takes longer than importing
    torch. Nothing may be compiled inside of others.
    """

    higher_order = False
    """Whether it takes calls of higher-order operators, such as ``torch.cond``, which otherwise raise."""

    def __init__(self) -> None:
        self._entered: list[Any] = []
        """The modes of PyTorch, one for each time that the context is entered, which it may be inside of itself."""

    def __enter__(self) -> Self:
        mode = self._mode()()
        mode.call = self.call
        self._entered.append(mode.__enter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._entered.pop().__exit__(*raised)

    def _mode(self) -> type[Any]:
        return _operator_mode(self.higher_order and "torch._dynamo" in sys.modules, self.higher_order)

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        """Return what the operator is to give."""
        raise NotImplementedError


class FunctionCalls(OperatorCalls):
    """The same for functions of PyTorch as Python calls them."""

    def _mode(self) -> type[Any]:
        return _function_mode()


@cache
def _operator_mode(compiled: bool, higher_order: bool) -> type[Any]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorMode(TorchDispatchMode):
        supports_higher_order_operators = higher_order
        call: Callable[..., object]

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return compiled

        def __torch_dispatch__(self, func: object, types: object, args: Any = (), kwargs: Any = None) -> object:
            return self.call(func, tuple(args), dict(kwargs or {}))

    return OperatorMode


@cache
def _function_mode() -> type[Any]:
    from torch.overrides import TorchFunctionMode

    class FunctionMode(TorchFunctionMode):
        call: Callable[..., object]

        def __torch_function__(self, func: object, types: object, args: Any = (), kwargs: Any = None) -> object:
            return self.call(func, args, kwargs or {})

    return FunctionMode


def is_float(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor of floats."""
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()


def draws_random(operators: Collection[str]) -> bool:
    """Return whether one of these operators, named as ``aten.rand``, draws random numbers."""
    import torch

    def draws(name: str) -> bool:
        space, _, operator = name.partition(".")
        packet = getattr(getattr(torch.ops, space), operator)
        return any(torch.Tag.nondeterministic_seeded in getattr(packet, one).tags for one in packet.overloads())

    return any(or_else(False, partial(draws, name)) for name in operators)
