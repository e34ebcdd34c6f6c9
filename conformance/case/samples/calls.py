"""From a call of PyTorch's to what a case file says of it, without knowing what is called."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Said = dict[str, Any]
"""What stands in a case file, as plain values."""
RISES = 12
"""Of neighbours in all samples of an operator: by chance no one in 4,000 of random values falls."""
ATTRIBUTES = ("H", "T", "mH", "mT")
"""Operators that are attributes of a tensor."""


class Unsaid(Exception):
    """A case file has no words for a value; the text says what kind it is."""


class Untaken(Exception):
    """A case takes no such tensor, by design."""


def declared(tensor: torch.Tensor) -> Said:
    """The type of a tensor, and a range that holds its values. Raises Untaken."""
    if tensor.is_quantized:
        raise Untaken("quantized tensors")
    if tensor.is_complex():
        raise Untaken("complex tensors")
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise Untaken("sparse and nested tensors")
    said: Said = {"type": f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"}
    if tensor.dtype is torch.bool:
        return said
    if tensor.is_floating_point():
        finite = tensor.detach().double()
        finite = finite[finite.isfinite()]
        if finite.numel():
            low, high = finite.min().item(), finite.max().item()
            if low == high:  # a single value would show nothing, and half of it is as likely to be allowed
                low, high = sorted((low / 2, high))
            said["values"] = {"uniform": {"low": low, "high": high}}
        return said
    least, most = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
    return {**said, "values": {"integers": {"low": least, "high": most}}}


def ascends(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether so many floats ascend along the last axis that an operator asks for it."""
    rises = [tensor.diff(dim=-1) for tensor in tensors if tensor.dim() and tensor.is_floating_point()]
    return sum(int((one > 0).sum()) for one in rises) >= RISES and all(bool((one >= 0).all()) for one in rises)


def named(value: Any) -> str | None:
    """The path below ``torch`` that gives this function or class; None where there is none."""
    path = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    return path if path.startswith("torch.") and at(path) is value else None


def at(path: str) -> Any:
    """Return the object at a path below ``torch``, or None."""
    found: Any = torch
    for word in path.split(".")[1:]:
        found = getattr(found, word, None)
    return found


def kind_of(value: Any) -> str:
    """Name the kind of a value that has no literal."""
    if isinstance(value, torch.Generator):
        return "a generator"
    if isinstance(value, torch.nn.Module):
        return "a module as an argument"
    return "a callable argument" if callable(value) else f"a Python object ({type(value).__name__})"


def expression(value: Any, tensors: list[torch.Tensor]) -> str:
    """The value as Python, in which each tensor has a name: x0, x1, and so on, in the order of ``tensors``, to which
    they are added. Raises Unsaid for what has no literal."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return f"x{len(tensors) - 1}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or type(value) in (bool, int, float, complex, str):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if isinstance(value, torch.device):
        return f"torch.device('{value}')"
    if isinstance(value, slice):
        return f"slice({', '.join(expression(one, tensors) for one in (value.start, value.stop, value.step))})"
    if value is Ellipsis:
        return "..."
    if isinstance(value, (list, torch.Size)) or type(value) is tuple:
        inside = "".join(f"{expression(one, tensors)}, " for one in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if type(value) is dict:
        return "{" + "".join(f"{key!r}: {expression(one, tensors)}, " for key, one in value.items()) + "}"
    if dataclasses.is_dataclass(value) and (path := named(type(value))) is not None:
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return f"{path}({', '.join(f'{name}={expression(one, tensors)}' for name, one in fields.items())})"
    if (path := named(value)) is not None:
        return path
    raise Unsaid(kind_of(value))


def call_of(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Said, list[torch.Tensor]]:
    """The case of ``function(*args, **kwargs)``, and the tensors that its inputs are in order. Raises Unsaid and
    Untaken."""
    tensors: list[torch.Tensor] = []
    parts = [expression(one, tensors) for one in args]
    parts += [f"{name}={expression(one, tensors)}" for name, one in kwargs.items()]
    inputs = {f"x{number}": declared(tensor) for number, tensor in enumerate(tensors)}
    call = f"{parts[0]}.{function}" if function in ATTRIBUTES else f"{function}({', '.join(parts)})"
    return {"forward": call, "inputs": inputs}, tensors


def name_of(operator: Callable[..., Any], name: str) -> str | None:
    """The path below ``torch`` of an operator that PyTorch's tests call ``name``: of the function that they call, or
    else of whatever has its name, as they call many by a lambda. None where nothing has."""
    paths = [f"{prefix}.{name}" for prefix in ("torch", "torch.Tensor", "torch.ops.aten")]
    if name in ATTRIBUTES:
        return name
    found = [path for path in paths if callable(at(path))]
    return next((path for path in found if at(path) is operator), found[0] if found else None)
