"""What the node of the custom domain means, as an ONNX local function."""

from onnxscript import opset17 as op
from onnxscript import script, values

EXAMPLE = values.Opset("course.example", 3)


@script(EXAMPLE)
def Square(x):
    return op.Mul(x, x)
