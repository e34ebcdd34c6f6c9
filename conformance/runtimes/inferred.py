"""The types and shapes that ONNX infers of a model, without its weights passing through a buffer twice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

SMALL = 256
"""The elements up to which shape inference may need the values of an initializer, as those of a shape."""


def is_weight(tensor: TensorProto) -> bool:
    """Return whether shape inference does not need the values of an initializer.

    As it is so large.
    """
    return bool(math.prod(tensor.dims) > SMALL)


def without_weights(model: ModelProto) -> ModelProto:
    """A copy of the model whose weights (``is_weight``) have types and dims and no values."""
    import onnx
    from onnx import TensorProto

    bare = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(bare, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(bare.graph, field.name, value)
    for tensor in model.graph.initializer:
        bare.graph.initializer.append(
            TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            if is_weight(tensor)
            else tensor
        )
    return bare


def inferred(model: ModelProto) -> ModelProto:
    """``without_weights(model)`` with what ``onnx.shape_inference`` infers.

    Raises what ONNX raises for types that contradict each other.
    """
    import onnx

    return onnx.shape_inference.infer_shapes(without_weights(model))


def infer(model: ModelProto) -> ModelProto:
    """The model itself, to which is added what ONNX infers; raises as ``inferred``."""
    result = inferred(model)
    for name in ("node", "value_info", "input", "output"):  # nodes too, as they may have graphs inside
        model.graph.ClearField(name)
        _copy(model.graph, name, getattr(result.graph, name))
    return model


def _copy(to: object, field: str, value: object) -> None:
    """Copy a field of a protobuf message, whether it is repeated, a message or a plain value."""
    if hasattr(value, "extend"):
        getattr(to, field).extend(value)
    elif hasattr(value, "CopyFrom"):
        getattr(to, field).CopyFrom(value)
    else:
        setattr(to, field, value)
