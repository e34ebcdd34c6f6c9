"""The base of all that watches PyTorch's operators as they are called, or computes something in their place."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def operator_mode(*, compiled: bool = False) -> Any:
    """Return a class of contexts that are given each call of an operator inside, by ``call(func, args, kwargs)``.

    With ``compiled`` PyTorch's compiler leaves such a context alone, as it has to under ``torch.cond``. Without,
    nothing may be compiled inside: arranging for that imports the compiler at the first call, which takes longer than
    importing torch.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorMode(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return compiled

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.call(func, tuple(args), dict(kwargs or {}))

        def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            """Return what the operator is to give, by default what it gives."""
            return func(*args, **kwargs)

    return OperatorMode


def is_float(value: Any) -> bool:
    """Return whether a value is a tensor of floats."""
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point()
