"""Operators whose zeros have the sign that IEEE 754 says, so that a runtime has no other.

Left out is whatever may be computed otherwise: sums may begin with a zero of either sign, and the larger of two zeros
is either. ONNX says that Floor, Ceil and Round give zeros back as they are.
"""

from __future__ import annotations

from collections.abc import Collection

_IN_PYTORCH = frozenset(
    f"aten.{name}" for name in (
        "abs", "alias", "cat", "ceil", "chunk", "clone", "contiguous", "detach", "div", "expand", "flip", "floor",
        "gather", "index_select", "lift_fresh", "mul", "neg", "permute", "reciprocal", "repeat", "reshape", "roll",
        "round", "select", "slice", "split", "split_with_sizes", "sqrt", "squeeze", "stack", "t", "transpose",
        "unbind", "unsafe_split", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
    )
)  # fmt: skip
_IN_ONNX = frozenset((
    "Abs", "Ceil", "Concat", "Constant", "Div", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "Identity",
    "Mul", "Neg", "Reciprocal", "Reshape", "Round", "Shape", "Slice", "Split", "Sqrt", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
))  # fmt: skip


def keep_signs(operators: Collection[str]) -> bool:
    """Return whether zeros have the right sign wherever these operators, PyTorch's or ONNX's, are all there is."""
    return bool(operators) and ({*operators} <= _IN_PYTORCH or {*operators} <= _IN_ONNX)
