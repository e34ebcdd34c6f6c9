"""Say what forward returns: paths to compare, and why the rest cannot be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.errors import Stopped

DEPTH = 8
"""How deep objects are looked into."""


@dataclass(frozen=True)
class Returned:
    """Hold what is to be compared."""

    paths: tuple[str, ...] = ()
    """As ``returns:`` has them; none where forward returns tensors in tuples, lists and mappings alone."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """By path, why something is not compared."""


@dataclass(frozen=True)
class _Leaf:
    path: str
    value: Any
    why: str = ""
    """Why it is not compared."""


def returned(result: Any, other: Any) -> Returned:
    """Find what of a result can be compared. ``other`` is that at other sizes: a number that is the same there says
    nothing of a model. Stopped at ``declare`` where nothing can be compared."""
    import torch

    leaves = [*_leaves(result, "", set(), 0)]
    others = {leaf.path: leaf.value for leaf in _leaves(other, "", set(), 0)}
    left_out = {leaf.path: leaf.why for leaf in leaves if leaf.why}
    for leaf in leaves:
        if isinstance(leaf.value, (int, float)) and others.get(leaf.path) == leaf.value:
            left_out[leaf.path] = f"the same at all sizes that were tried ({leaf.value})"
    whole = all(isinstance(leaf.value, torch.Tensor) for leaf in leaves)
    if leaves and whole and not left_out and _is_plain(result):
        return Returned()
    paths = tuple(leaf.path for leaf in leaves if leaf.path and leaf.path not in left_out)
    if not paths:
        text = f"forward returns a {type(result).__name__} with no tensor in it that can be compared"
        raise Stopped("declare", "NoTensor", f"{text}{_because(left_out)}; write the case by hand", "case")
    return Returned(paths, left_out)


def _because(left_out: Mapping[str, str]) -> str:
    return "".join(f"; {path}: {why}" if path else f": {why}" for path, why in [*left_out.items()][:3])


def _leaves(value: Any, path: str, inside: set[int], depth: int) -> Iterator[_Leaf]:
    """The tensors and numbers in a result, and what else there is with the reason why that is left out."""
    import torch

    if value is None or callable(value) or isinstance(value, (torch.dtype, torch.device, torch.nn.Module)):
        return
    if isinstance(value, torch.Tensor):
        yield _Leaf(path, value, _no_array(value))
    elif isinstance(value, (bool, int, float)):
        yield _Leaf(path, value)
    elif id(value) in inside or depth > DEPTH:
        yield _Leaf(path, None, "it is inside of itself" if id(value) in inside else "it lies too deep")
    elif (named := _parts(value)) is None:
        yield _Leaf(path, None, f"a {type(value).__name__}, of which ONNX has no tensor")
    else:
        for name, inner in named:
            within = f"{path}.{name}" if path else str(name)
            if re.fullmatch(r"\w+", str(name)):
                yield from _leaves(inner, within, {*inside, id(value)}, depth + 1)
            elif inner is not None:
                yield _Leaf(within, None, "a path cannot name it")


def _parts(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """Return what an object holds, by name; None where nothing can be told of it."""
    if isinstance(value, Mapping):
        return iter(value.items())
    if isinstance(value, (list, tuple)):
        return iter(enumerate(value))
    own = {**{name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}}
    own |= getattr(value, "__dict__", {})
    return iter((name, inner) for name, inner in own.items() if not name.startswith("_")) if own else None


def _no_array(tensor: Any) -> str:
    """Why a tensor cannot be compared; nothing where it can."""
    import torch

    if tensor.is_quantized:
        return "a quantized tensor; forward may return its dequantize()"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}; forward may return its to_dense()"
    if tensor.is_complex():
        return "complex numbers, of which ONNX has no tensors; forward may return torch.view_as_real of them"
    try:
        tensor.detach().numpy()
    except (TypeError, RuntimeError):
        return f"NumPy has no {tensor.dtype}"
    return ""


def _is_plain(value: Any) -> bool:
    """Return whether it is of tuples, lists and mappings that all exporters know."""
    import torch

    if value is None or isinstance(value, torch.Tensor):
        return True
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return (type(value) in (list, tuple) or hasattr(value, "_fields")) and all(map(_is_plain, value))
