"""Why no verdict was given on some values: the rules that leave them open, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

RULES = {
    "kernels": "PyTorch's own kernels contradict each other there (fused or not, oneDNN or not, vectors or not)",
    "cast": "NaN, an infinity or a number out of range was cast to an integer, which is undefined (C++ [conv.fpint], "
    "ONNX Cast)",
    "quantizer": "NaN, an infinity or a number out of range was quantized by way of an integer, which is undefined "
    "(C++ [conv.fpint])",
    "tie": "a value to be quantized lies between two steps up to rounding, and goes either way",
    "ties": "which of equal values come first is left open (torch.topk, torch.sort, torchvision.ops.nms)",
    "transform": "a Fourier transform met NaN or infinities, of which each algorithm makes something else (0 * inf, "
    "inf - inf)",
    "matrix": "a matrix with NaN or infinities was factored, which LAPACK leaves undefined",
    "order": "a product overflows, or vanishes, in some orders of its factors and not in others, and their order is "
    "nowhere defined",
    "place": "values were sampled at a place that is NaN or infinite, which is undefined as an index (C++ "
    "[conv.fpint])",
    "boxes": "boxes or scores that are NaN or infinite were compared, and torchvision.ops.nms does not say with what "
    "result",
    "rounding": "rounding decides between values, or numbers of values, that are far apart",
    "unstable": "a unit in the last place decides whether there is a number, NaN or an infinity",
}
"""By the names that ``Record.left_open`` has."""


def left_open(record: Mapping[str, Any]) -> Iterator[str]:
    """The rules by which no verdict was given on some values, in words."""
    for name in record.get("left_open") or ():
        yield f"no verdict on some values: {RULES.get(str(name), name)}"
