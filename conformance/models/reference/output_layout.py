"""The tensors of a module's outputs, and which of them are one output of its graph.

A traced module has an output for each tensor. A scripted one that returns a list has one output for the list, a
sequence; tuples are taken apart. ``outputs:`` may name either the graph's outputs or all tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from conformance.case.files.must_hold import Output
from conformance.process.arrays import Array
from conformance.process.errors import Stopped

if TYPE_CHECKING:
    from torch import Tensor


def tensors_of(result: object, *, listed: bool = False) -> list[Tensor]:
    """The tensors of an output, depth first; numbers, such as sizes, as tensors without dims. Stopped at ``declare``
    where it has none, or anything else; where it is ``listed``, as by a scripted module, a list may be empty."""
    import torch
    from torch.utils import _pytree

    if isinstance(result, torch.Tensor):
        return [result]
    leaves = [
        torch.as_tensor(leaf) if isinstance(leaf, bool | int | float) else leaf
        for leaf in _pytree.tree_leaves(result)
        if leaf is not None
    ]
    odd = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    if odd or not (leaves or (listed and layout_of(result))):
        what = f"a {odd[0]}" if odd else "nothing"
        text = f"forward returns {what} where tensors are expected"
        text += "; returns: names the tensors in it, as in [logits, past.0.key]" if odd else ""
        raise Stopped("declare", "NoTensor", text, "case")
    return leaves


def array_of(tensor: Tensor) -> Array:
    """Return the tensor as NumPy has it; Stopped at ``declare`` for one that it cannot hold."""
    try:
        array: Array = tensor.detach().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError):  # bfloat16, sparse, quantized
        how = "return its dequantize()" if tensor.is_quantized else "convert it"
        text = f"forward returns a tensor that NumPy cannot hold ({tensor.dtype}, {tensor.layout}); {how}"
        raise Stopped("declare", "NoTensor", text, "case") from None
    if tensor.is_complex():
        text = "forward returns complex numbers, of which ONNX has no tensors; return torch.view_as_real of them"
        raise Stopped("declare", "NoTensor", text, "case")
    return array


def layout_of(result: object) -> list[int]:
    """Return how many tensors each output of a scripted module's graph has."""
    if isinstance(result, tuple):
        return [count for part in result for count in layout_of(part)]
    if isinstance(result, list):
        return [sum(count for part in result for count in layout_of(part))]
    return [] if result is None else [1]


def names_in_graph(names: Sequence[str], layout: Sequence[int]) -> list[str]:
    """The names of the graph's outputs. Where there is one for each tensor, a sequence has that of its first."""
    if len(names) != sum(layout) or len(names) == len(layout):
        return list(names)
    starts = [sum(layout[:index]) for index in range(len(layout))]
    return [names[start] if count else f"empty_{start}" for start, count in zip(starts, layout, strict=True)]


def names_of_tensor(
    tensor: int, graph: Sequence[str], declared: Sequence[Output], layout: Sequence[int]
) -> list[str]:
    """The names of a tensor, the more particular first: its own where each has one, or else that of its output of the
    graph, which in a sequence ``parts`` has ``parts.0`` and ``parts.1`` before it."""
    if declared and len(declared) == sum(layout):
        return [declared[tensor].name] if tensor < len(declared) else []
    if len(graph) != len(layout):
        return list(graph[tensor : tensor + 1])
    names = [
        [name] if count == 1 else [f"{name}.{index}", name]
        for name, count in zip(graph, layout, strict=True)
        for index in range(count)
    ]
    return names[tensor] if tensor < len(names) else []


def fits(declared: Sequence[Output], layout: Sequence[int]) -> bool:
    """Return whether there is a name for each output of the graph, or for each tensor; or none is declared."""
    return not declared or len(declared) in (len(layout), sum(layout))


def of_tensors(declared: Sequence[Output], layout: Sequence[int]) -> list[Output]:
    """Return the declaration of each tensor: that of a sequence is one for all its tensors."""
    if len(declared) != len(layout) or len(declared) == sum(layout) == len(layout):
        return list(declared)
    return [
        output if count == 1 else output.model_copy(update={"name": f"{output.name}.{index}"})
        for output, count in zip(declared, layout, strict=True)
        for index in range(count)
    ]


def tensors_in(layout: Sequence[int]) -> str:
    """Say ``3 tensors``, or ``3 tensors (2 of them in lists)``."""
    count, listed = sum(layout), sum(tensors for tensors in layout if tensors != 1)
    text = "1 tensor" if count == 1 else f"{count} tensors"
    return f"{text} ({listed} of them in lists)" if 0 < listed < count else text
