"""What custom::LayerNorm means, as an ONNX local function over operators of opset 12."""

from collections.abc import Sequence

from onnxscript import opset12 as op
from onnxscript import script
from onnxscript.values import Opset

custom = Opset("custom", 1)


@script(custom, default_opset=op)
def LayerNorm(x, weight, bias, axes: Sequence[int], epsilon: float):
    """The attributes of the node go on to the operators inside; axes of ReduceMean is one until opset 17."""
    centered = x - op.ReduceMean(x, axes=axes, keepdims=1)
    variance = op.ReduceMean(centered * centered, axes=axes, keepdims=1)
    return centered / op.Sqrt(variance + op.Constant(value_float=epsilon)) * weight + bias
