"""A module with inputs that it takes, from whatever source, and whether a case can be made of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree

from conformance.results.records.words import REGIMES

SLOW = ("ConvTranspose3d",)
"""Classes whose cases have one shape: onnx's evaluator takes seconds for an example."""
BATCH = (1, 2, 3, 4)
"""The sizes at which a first dim has to work before it is declared as variable."""
_DTYPES = {torch.float32: "float32", torch.int64: "int64", torch.int32: "int32", torch.bool: "bool"}
_PLAIN = (type(None), bool, int, float, str)


class Unfit(Exception):
    """No case can be made of a sample; the text says why."""


@dataclass
class Sample:
    """A module in evaluation mode and one call of it."""

    about: str
    module: torch.nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[int, str] = field(default_factory=dict)
    """What the case says under ``values`` of a tensor, by its place among the tensors; none where any number will
    do. Integers without an entry are between the least and the largest of the sample."""
    specials: Sequence[int] | None = None
    """The tensors, by place, that special values may be put into; None for all that are floats."""
    shapes: int = 3
    """Boundary shapes of its case: the one of the trace, the smallest, the largest."""
    changes: bool = False
    """True where a call changes the module, which is then called as a copy."""

    def tensors(self) -> list[torch.Tensor]:
        leaves = _pytree.tree_leaves((tuple(self.args), dict(self.kwargs)))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All outputs, depth first, with these tensors in place of its own; Unfit where some are no tensors."""
        left = iter(tensors)
        args, kwargs = _pytree.tree_map(
            lambda leaf: next(left) if isinstance(leaf, torch.Tensor) else leaf, (tuple(self.args), dict(self.kwargs))
        )
        module = copy.deepcopy(self.module) if self.changes else self.module
        with torch.no_grad():
            leaves = [one for one in _pytree.tree_leaves(module(*args, **kwargs)) if one is not None]
        if not leaves or not all(isinstance(one, torch.Tensor) and not one.is_sparse for one in leaves):
            raise Unfit("its outputs are not all tensors")
        return leaves


Named = tuple[str, Callable[[], Sample]]
"""A sample's name, and what makes it; random numbers are seeded before it is called."""


def case_of(sample: Sample) -> dict[str, Any]:
    """What a case file says of a sample, but for where its module is. Raises Unfit."""
    sample.module.eval()
    tensors = [tensor.detach() for tensor in sample.tensors()]
    if not tensors:
        raise Unfit("its forward takes no tensor")
    if any(tensor.dtype not in _DTYPES or tensor.is_sparse for tensor in tensors):
        raise Unfit(f"takes {', '.join(sorted({str(one.dtype) for one in tensors}))}")
    _check_eager(sample, tensors)
    batch = varies(sample, tensors)
    parameters, call = _call(sample, len(tensors))
    inputs: dict[str, Any] = {}
    for place, (name, tensor) in enumerate(zip(parameters, tensors, strict=True)):
        shape = ", ".join(["batch", *map(str, tensor.shape[1:])] if batch else map(str, tensor.shape))
        declared: dict[str, Any] = {"type": f"{_DTYPES[tensor.dtype]}[{shape}]"}
        values = sample.values.get(place) or _integers(tensor)
        if values is not None:
            declared["values"] = values
        if not call and name in sample.kwargs:
            declared["as"] = name
        inputs[name] = declared
    case: dict[str, Any] = {"about": sample.about, "inputs": inputs}
    if call:
        case["with"] = {"parameters": ", ".join(parameters), "call": call}
    case["examples"] = {
        "shapes": 0,
        "values": len(REGIMES),
        "boundary": 1 if type(sample.module).__name__ in SLOW else sample.shapes,
    }
    if sample.specials is not None:
        case["specials"] = [parameters[place] for place in sample.specials] or False
    if batch:
        case["dims"] = {"batch": f"{BATCH[0]}..{BATCH[-1]}"}
    return case


def _integers(tensor: torch.Tensor) -> str | None:
    if tensor.dtype in (torch.float32, torch.bool):
        return None
    if not tensor.numel():
        raise Unfit("an integer input is empty")
    return f"{{integers: {{low: {int(tensor.min())}, high: {int(tensor.max())}}}}}"


def _check_eager(sample: Sample, tensors: Sequence[torch.Tensor]) -> None:
    """Raises Unfit where PyTorch itself does not take the inputs or others like them, or is no function of them."""
    try:
        before = [tensor._version for tensor in tensors]
        one, other = sample(tensors), sample(tensors)
        if [tensor._version for tensor in tensors] != before:
            raise Unfit("changes its input in place")
        if not all(torch.equal(_plain(a), _plain(b)) for a, b in zip(one, other, strict=True)):
            raise Unfit("is random")
        for seed in range(5):
            sample(_others(tensors, seed))
    except Unfit:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:120]
        raise Unfit(f"PyTorch raises {type(error).__name__}: {text}") from None


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(tensor) if tensor.is_floating_point() else tensor


def _others(tensors: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Other integers of the same range and other flags; the floats as they are, whose range is declared by hand."""
    rng = torch.Generator().manual_seed(seed)
    others = []
    for tensor in tensors:
        if tensor.dtype is torch.bool:
            others.append(torch.randint(0, 2, tensor.shape, generator=rng).bool())
        elif tensor.dtype is not torch.float32 and tensor.numel():
            low, high = int(tensor.min()), int(tensor.max())
            others.append(torch.randint(low, high + 1, tensor.shape, generator=rng).to(tensor.dtype))
        else:
            others.append(tensor)
    return others


def varies(sample: Sample, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the first dim of all inputs is a batch: PyTorch takes each size of ``BATCH`` without a warning, and
    every output has that size first, or all are scalars."""
    if any(not tensor.ndim or tensor.shape[0] != tensors[0].shape[0] or not len(tensor) for tensor in tensors):
        return False
    follows = set()
    for size in BATCH:
        index = torch.arange(size) % len(tensors[0])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                outputs = sample([tensor[index] for tensor in tensors])
        except Exception:
            return False
        follows |= {"scalar" if not out.ndim else out.shape[0] == size for out in outputs}
    return follows in ({True}, {"scalar"})


def _call(sample: Sample, count: int) -> tuple[list[str], str]:
    """The names of the inputs, and how the module is called with them; without text where a case can say so itself.

    Raises Unfit where the module takes anything that is neither a tensor nor a plain value.
    """
    direct = all(isinstance(value, torch.Tensor) for value in (*sample.args, *sample.kwargs.values()))
    if direct:
        return [*(f"x{place}" for place in range(len(sample.args))), *sample.kwargs], ""
    names = iter([f"x{place}" for place in range(count)])
    parts = [_source(value, names) for value in sample.args]
    parts += [f"{name}={_source(value, names)}" for name, value in sample.kwargs.items()]
    return [f"x{place}" for place in range(count)], ", ".join(parts)


def _source(value: Any, names: Iterator[str]) -> str:
    if isinstance(value, torch.Tensor):
        return next(names)
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_source(one, names) for one in value)
        return f"({inner},)" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_source(one, names)}' for key, one in value.items())}}}"
    if isinstance(value, _PLAIN):
        return repr(value)
    raise Unfit(f"its forward takes a {type(value).__name__}")
