"""Which operator of PyTorch is wrong in float32, where PyTorch itself is at fault: each call is made a second time,
of the same inputs in float64."""

from __future__ import annotations

from typing import Any

from conformance.arrays import Inputs
from conformance.checks.wrong_reference import WRONG
from conformance.coverage.calls import line_of_call
from conformance.export.reference import Reference


def wrong_operator(reference: Reference, inputs: Inputs) -> dict[str, Any]:
    """The record's field ``operator``: the first call whose float32 result is further from its float64 result than
    ``WRONG`` of the largest value there, which no rounding of one operator explains. Says so where there is none."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map

    told: list[dict[str, Any]] = []

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.double() if value.is_floating_point() else value
        return torch.float64 if value is torch.float32 else value

    class Compares(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if told or func._schema.is_mutable or any(map(_is_random, func.tags)):
                return func(*args, **kwargs)
            before = tree_map(
                lambda value: value.clone() if isinstance(value, torch.Tensor) else value, (args, kwargs)
            )
            result = func(*args, **kwargs)
            try:
                exact = func(*tree_map(widened, before[0]), **tree_map(widened, before[1]))
            except Exception:  # an operator that has no float64 form
                return result
            if any(_far(*both) for both in zip(tree_leaves(result), tree_leaves(exact), strict=False)):
                line = line_of_call()
                told.append({"operator": str(func.overloadpacket), **({"line": line} if line else {})})
            return result

    def _is_random(tag: Any) -> bool:
        return "nondeterministic" in str(tag)

    def _far(got: Any, right: Any) -> bool:
        if not (isinstance(got, torch.Tensor) and got.dtype == torch.float32 and got.numel()):
            return False
        if got.shape != right.shape or not bool(right.isfinite().all()):
            return False
        return not float((got.double() - right).abs().max()) <= WRONG * float(right.abs().max())

    positional, keywords = reference.arguments(inputs)
    reference.restore()
    with torch.no_grad(), Compares():  # type: ignore[no-untyped-call]
        reference.module(*positional, **keywords)
    return told[0] if told else {"unable": "raised", "detail": "no operator by itself is wrong in float32"}
