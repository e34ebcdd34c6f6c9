"""Find modules that compute in 16 bits between wider inputs and outputs, and run their float64 form without that."""

from __future__ import annotations

from functools import cache
from typing import Any

from conformance.export.dispatch import is_float, operator_mode

HALVES = ("bfloat16", "float16")
"""The dtypes of 16 bits, the one with fewer bits of significand first."""


def note_halves() -> Any:
    """Return a context that notes the ``dtypes`` of 16 bits that operators give, by name."""
    return _modes()[0]()


def keep_wide() -> Any:
    """Return a context in which float64 stays float64 where a module asks for another float."""
    return _modes()[1]()


@cache
def _modes() -> tuple[Any, Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    mode: Any = operator_mode()
    halves = {getattr(torch, name): name for name in HALVES}
    narrow = {*halves, torch.float32}

    class Notes(mode):
        def __init__(self) -> None:
            super().__init__()
            self.dtypes: set[str] = set()

        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            self.dtypes |= {
                halves[leaf.dtype] for leaf in tree_leaves(result) if is_float(leaf) and leaf.dtype in halves
            }
            return result

    class Wide(mode):
        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            if kwargs.get("dtype") in narrow:
                kwargs = {**kwargs, "dtype": torch.float64}
            return func(*args, **kwargs)

    return Notes, Wide
