"""Run the float64 form of a module that computes in 16 bits between wider inputs and outputs, without these."""

from __future__ import annotations

import torch

from conformance.models.reference.dispatch import Arguments, Keywords, Operator, OperatorCalls

HALVES = ("bfloat16", "float16")
"""The dtypes of 16 bits, the one with fewer bits of significand first."""


class KeepWide(OperatorCalls):
    """A context in which float64 stays float64 where a module asks for another float."""

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        if kwargs.get("dtype") in (torch.float32, torch.bfloat16, torch.float16):
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)
