"""Copies of modules, also of those that PyTorch alone does not copy."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch.overrides import TorchFunctionMode

T = TypeVar("T")


def copied(module: T, memo: dict[int, object] | None = None) -> T:
    """Return a deep copy of a module; ``memo`` is that of ``copy.deepcopy``. Raises what copying raises.

    A tensor that a module has computed and keeps, as ``spectral_norm`` does, is copied by its values: PyTorch refuses
    to, since the copy has no part in how it was computed.
    """
    with _by_values()():
        return copy.deepcopy(module, memo)


@cache
def _by_values() -> type[TorchFunctionMode]:
    import torch
    from torch.overrides import TorchFunctionMode

    class ByValues(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
            if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
                tensor, memo = args
                memo[id(tensor)] = tensor.detach().clone()
                return memo[id(tensor)]
            return func(*args, **(kwargs or {}))

    return ByValues
