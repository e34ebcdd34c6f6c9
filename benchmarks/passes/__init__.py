"""Passes of optimizers that are wrong, those of ONNX Runtime, of the dynamo exporter (onnxscript) and onnxsim: is the
guilty one named, and is ever another?"""

from benchmarks.passes.page import rows, write

__all__ = ["rows", "write"]
