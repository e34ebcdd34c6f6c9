"""What custom_domain::customOp2 means, as an ONNX local function: it travels inside the model."""

from onnxscript import opset17 as op
from onnxscript import script
from onnxscript.values import Opset

custom_domain = Opset("custom_domain", 1)


@script(custom_domain, default_opset=op)
def customOp2(x):
    """Uses only operators that are the same at every opset, as the function runs at the model's opset.

    Number literals are left out on purpose: onnxscript gives them the type of x by CastLike, which
    came with opset 15.
    """
    clamped = op.Relu(x)
    return clamped * op.Sigmoid(clamped)
