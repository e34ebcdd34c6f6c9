"""Run the float64 form of a module that computes in 16 bits between wider inputs and outputs, without these."""

from __future__ import annotations

from functools import cache
from typing import Any

from conformance.models.reference.dispatch import operator_mode

HALVES = ("bfloat16", "float16")
"""The dtypes of 16 bits, the one with fewer bits of significand first."""


def keep_wide() -> Any:
    """Return a context in which float64 stays float64 where a module asks for another float."""
    return _mode()()


@cache
def _mode() -> Any:
    import torch

    mode: Any = operator_mode()
    narrow = {torch.float32, *(getattr(torch, name) for name in HALVES)}

    class Wide(mode):
        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            if kwargs.get("dtype") in narrow:
                kwargs = {**kwargs, "dtype": torch.float64}
            return func(*args, **kwargs)

    return Wide
