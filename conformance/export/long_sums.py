"""Find how far sums are off in float32 where their terms are added up in another order, or one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

OF_SUMS = 0.5
"""How far another order of the same sum is taken to be off, in units of the sum of its terms' sizes.

The bound is one unit for each addition (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section
4.2; TOSA's conformance tests allow as many, ``verify_dot_product``). Products of both signs come nowhere near: adding
up 4,096 one by one is off by 0.1 of these units, in blocks by less; products of 10 bits are off by 30. Terms of one
sign do, as those of a mean: 16,384 equal ones are off by 400 to 800. So a plain sum is added up one by one as well,
to see how far it is off, and so are products of matrices and convolutions, whose terms may have one sign for a
while."""

ONE_BY_ONE = 0.05
"""The same for a pool, whose terms may have one sign, for each of its terms: what equal ones come to."""

LONG = 32
"""From how many terms on a sum is added up one by one; for fewer ``OF_SUMS`` is more."""

PLAIN_SUMS = ("aten.sum", "aten.mean", "aten.cumsum", "prims.sum")
"""Operators that add up their first argument, along the dims that their second one names."""

POOLS = (
    "aten.avg_pool2d", "aten.avg_pool3d", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d",
)  # fmt: skip

PRODUCTS = {
    "aten.mm": 0, "aten.bmm": 0, "aten.mv": 0, "aten.dot": 0, "aten.linear": 0, "aten.addmm": 1, "aten.baddbmm": 1,
    "aten.addmv": 1,
}  # fmt: skip
"""Operators that multiply matrices, with the place of the first factor among their arguments."""

MOST_TERMS = 2**19
"""Of how many terms all sums of a product are added up one by one; those of more take too long."""

SUMS = {*PLAIN_SUMS, *POOLS, *PRODUCTS, "aten.convolution", "aten.mkldnn_convolution"}
"""Operators that add up products of their tensors: of the sizes of their tensors they give the sizes of their terms,
added up."""


def one_by_one(name: str, args: Sequence[Any], out: Any, magnitude: Any) -> Any:
    """Return how far each value of a sum is off in float32 where its terms are added up one after another; for pools,
    how far it may be; 0 for other operators and for short sums."""
    import torch

    if name in POOLS:
        spatial = 3 if name.endswith("3d") else 2
        window: float = args[0].shape[-spatial:].numel() / out.shape[-spatial:].numel()
        if "adaptive" not in name:
            window = math.prod(args[1]) ** (spatial // len(args[1]))
        return magnitude * (ONE_BY_ONE * window * 2.0**-24)
    if name in PRODUCTS or name == "aten.convolution":
        products = _products(name, args) if name in PRODUCTS else _of_convolution(args, out)
        return 0.0 if products is None else torch.from_numpy(_off_one_by_one(products).reshape(out.shape))
    if name not in PLAIN_SUMS:
        return 0.0
    value, dims = args[0], args[1] if len(args) > 1 else None
    axes = [dims] if isinstance(dims, int) else dims or [*range(value.dim())]
    count = math.prod(value.shape[axis] for axis in axes)
    if count < LONG:
        return 0.0
    last = [*range(-len(axes), 0)]
    terms = value.movedim(axes, last).flatten(-len(axes))
    error = torch.from_numpy(_off_one_by_one(terms, partial=name == "aten.cumsum"))
    if name == "aten.cumsum":
        return error.movedim(-1, axes[0])
    return error.reshape(out.shape) / (count if name == "aten.mean" else 1)


def _products(name: str, args: Sequence[Any]) -> Any:
    """Return the terms of each value of a product of matrices along the last axis; None where a sum has few, or all
    together are too many."""
    left, right = args[PRODUCTS[name] :][:2]
    right = right.unsqueeze(0) if right.dim() == 1 else right if name == "aten.linear" else right.mT
    if left.shape[-1] < LONG or left.numel() * right.shape[-2] > MOST_TERMS:
        return None
    return left.unsqueeze(-2) * (right if left.dim() == 1 else right.unsqueeze(-3))


def _of_convolution(args: Sequence[Any], out: Any) -> Any:
    """Return the same of a convolution over one or two dims without groups, of shape ``[*out.shape, terms]``."""
    import torch

    value, weight, _, stride, padding, dilation, transposed, _, groups = args[:9]
    count, spatial = weight[0].numel(), weight.dim() - 2
    if transposed or groups > 1 or spatial not in (1, 2) or count < LONG or out.numel() * count > MOST_TERMS:
        return None
    if spatial == 1:  # one dim of size 1 before its own
        value, weight = value.unsqueeze(-2), weight.unsqueeze(-2)
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    columns = torch.nn.functional.unfold(value, weight.shape[2:], dilation, padding, stride)
    return columns.mT.unsqueeze(1) * weight.flatten(1).unsqueeze(1)


PHASES = (1.0, 1.13, 1.37, 1.71)
"""By what terms are multiplied before they are added up one by one. Of many equal terms each addition rounds alike
for a while, up or down by what is in their last bits: 262,144 equal ones are off by 3e-6 to 3e-3 of their sum. A
runtime's terms have other last bits, so that its sum may drift where the one that is tried does not."""


def _off_one_by_one(terms: Any, *, partial: bool = False) -> np.ndarray[Any, Any]:
    """Return how far a sum of terms along the last axis is off where they are added up one by one: the most that it,
    or a sum of the first of them, is; with ``partial`` so for each of these sums. 0 for sums that are exact."""
    values = terms.detach().numpy()
    first, *others = (_drift((values * phase).astype(np.float32), partial) / phase for phase in PHASES)
    most = np.where(first == 0, 0.0, np.maximum.reduce([first, *others]))
    return np.nan_to_num(most, nan=0.0, posinf=0.0)


def _drift(values: np.ndarray[Any, Any], partial: bool) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(values, -1, dtype=np.float64)
        sums -= np.add.accumulate(values, -1, dtype=np.float32)
    sizes = np.abs(sums, out=sums)  # the largest counts, since the error of a whole sum may be small by luck
    return np.maximum.accumulate(sizes, -1) if partial else sizes.max(-1, keepdims=True)
