"""Copies of modules, also of those that PyTorch alone does not copy."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any


def copied(module: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a deep copy of a module; ``memo`` is that of ``copy.deepcopy``. Raises what copying raises.

    A tensor that a module has computed and keeps, as ``spectral_norm`` does, is copied by its values: PyTorch refuses
    to, since the copy has no part in how it was computed.
    """
    with _by_values()():
        return copy.deepcopy(module, memo)


@cache
def _by_values() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    class ByValues(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
                tensor, memo = args
                memo[id(tensor)] = tensor.detach().clone()
                return memo[id(tensor)]
            return func(*args, **(kwargs or {}))

    return ByValues
