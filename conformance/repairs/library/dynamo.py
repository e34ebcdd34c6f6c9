"""Nodes of ONNX for translations of the dynamo exporter."""

import onnx_ir
from onnxscript import opset18


class Op:
    """``op.Add(x, 1.0)`` puts a node into the graph; numbers and lists among its inputs become constants."""

    opset = 18  # that of torch's own translations, which are converted to others afterwards

    def __getattr__(self, name):
        return getattr(opset18, name)

    def dtype(self, x):
        return int(x.dtype)

    def rank(self, x):
        return None if x.shape is None else len(x.shape)

    def is_integer(self, x):
        return not x.dtype.is_floating_point()

    def alike(self, *values):
        """The values in the type that PyTorch computes in, which the exporter has seen to but for numbers."""
        like = next(value for value in values if isinstance(value, onnx_ir.Value))
        return [
            value if isinstance(value, onnx_ir.Value)
            else self.Constant(value=onnx_ir.tensor(value, dtype=like.dtype))
            for value in values
        ]  # fmt: skip

    def of_code(self, dtype):
        return dtype
