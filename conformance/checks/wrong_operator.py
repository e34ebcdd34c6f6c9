"""Find the operator of PyTorch that is wrong in float32, where PyTorch itself is at fault: each call is made a second
time, of the same inputs in float64."""

from __future__ import annotations

from typing import Any

from conformance.arrays import Inputs
from conformance.checks.wrong_reference import WRONG
from conformance.compare.close import Limit, differs
from conformance.coverage.operator_calls import line_of_call, name_of
from conformance.errors import attempt
from conformance.export.dispatch import operator_mode
from conformance.export.reference import Reference
from conformance.worker.warm import one_thread


def wrong_operator(reference: Reference, inputs: Inputs) -> dict[str, Any]:
    """The record's field ``operator``: the first call whose float32 result is further from its float64 result than
    ``WRONG`` of the largest value there, which no rounding of one operator explains. Says so where there is none."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    told: list[dict[str, Any]] = []
    one_thread()

    mode: Any = operator_mode()

    class Compares(mode):
        def call(self, func: Any, args: Any, kwargs: Any) -> Any:
            if told or func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
                return func(*args, **kwargs)
            wide, wide_keywords = tree_map(_widened, (args, kwargs))  # before the call, which may write to its inputs
            result = func(*args, **kwargs)
            exact = attempt(lambda: func(*wide, **wide_keywords))
            if isinstance(exact, Exception):  # the operator has no float64 form
                return result
            if any(_far(*both) for both in zip(tree_leaves(result), tree_leaves(exact), strict=False)):
                line = line_of_call()
                told.append({"operator": name_of(func), **({"line": line} if line else {})})
            return result

    positional, keywords = reference.arguments(inputs)
    reference.restore()
    with torch.no_grad(), reference.standing(), Compares():
        reference.module(*positional, **keywords)
    return told[0] if told else {"unable": "nothing"}


def _widened(value: Any) -> Any:
    """A tensor, or a dtype, of float32 as one of float64."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    return torch.float64 if value is torch.float32 else value


def _far(got: Any, right: Any) -> bool:
    """Return whether a float32 result is off by more than one operator rounds; what is infinite or NaN is passed
    over."""
    import torch

    if not (isinstance(got, torch.Tensor) and got.dtype == torch.float32 and got.numel()):
        return False
    if not bool(right.isfinite().all()):
        return False
    return differs(got.numpy(), right.numpy(), Limit(share=WRONG), dtypes=False) == "value"
